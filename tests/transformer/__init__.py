"""Tests of tupe_fairseq.transformer."""
