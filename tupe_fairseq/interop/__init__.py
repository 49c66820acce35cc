"""Conversion between directories of this package and other formats.

`formats/` has a file per format, or two of a kind, which register themselves in the table of
`conversion.py`; `convert.py` is the command. Between reading and writing, a model is a
`models.Converted`: settings, parameters, dictionary, tokenizer and names of classes, all by the
names of this package.
`architectures/` has a table for each kind of model of transformers: `formats/huggingface.py` reads
models by it, and `classes.py` builds them.
"""
