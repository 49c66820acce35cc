"""Checkpoints: safe reading, restoring, migration of old names, explanation of mismatches."""
