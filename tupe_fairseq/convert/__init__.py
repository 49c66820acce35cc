"""Conversion between directories of this package and other formats.

Every format reads into `models.Converted` and writes from it: settings of `TupeConfig`, parameters
by the names of `tupe_fairseq.huggingface`, a tokenizer and names of classes. `formats/` has a file
per format, or two of a kind, which register themselves in the table of `conversion.py`;
`command.py` is the command. Directories of this package are read and written by `directory.py`.

Only fairseq's formats know dictionaries, and fairseq's names of arguments and parameters
(`directory.py`, `dictionaries.py`, `fairseq_models.py`, `settings.py`).
`architectures/` has a table for each kind of model of transformers: `formats/huggingface.py` reads
models by it, and `classes.py` builds them.
"""
