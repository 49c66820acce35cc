"""Conversion between directories of this package and other formats.

`formats/` has one file per format, which registers itself in the table of `conversion.py`;
`convert.py` is the command.
"""
