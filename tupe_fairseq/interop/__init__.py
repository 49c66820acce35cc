"""Conversion between directories of this package and other formats.

`formats/` has one file per format, which registers itself in the table of `conversion.py`, and
`architectures/` one file per kind of model of transformers. `convert.py` is the command. Between
reading and writing, a model is a `models.Converted`: settings, parameters and dictionary, all by
the names of this package.
"""
