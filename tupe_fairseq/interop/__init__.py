"""Conversion between `tupe_roberta` directories and other formats.

`formats/` has one file per format, which registers itself in the table of `conversion.py`;
`convert.py` is the command.
"""
