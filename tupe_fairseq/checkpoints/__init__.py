"""Checkpoints: safe reading, restoring, migration of old names, explanation of mismatches."""

# The models, which import files of this folder, are registered as soon as fairseq is imported.
import fairseq  # noqa: F401
