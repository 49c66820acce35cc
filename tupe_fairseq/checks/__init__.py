"""Checks of binarised data and dictionaries before they are used."""

# The models, which import files of this folder, are registered as soon as fairseq is imported.
import fairseq  # noqa: F401
