"""Checks of binarised data and dictionaries before they are used."""
