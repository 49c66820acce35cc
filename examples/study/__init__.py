"""Comparison of position encodings: see README.md."""
