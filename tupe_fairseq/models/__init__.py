"""The models fairseq knows by `--arch`; fairseq imports every file of this folder."""
