"""The adapter to fairseq: models, flags, checkpoints, hub, criterions.

Files that read checkpoints and tokenizers need no fairseq, so this file imports nothing.
"""
