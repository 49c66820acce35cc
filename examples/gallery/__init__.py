"""A card for each registered encoding, written from the code."""
