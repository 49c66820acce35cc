"""Translation of Multi30k: see README.md."""
