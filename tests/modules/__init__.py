"""Tests of tupe_fairseq.modules."""
