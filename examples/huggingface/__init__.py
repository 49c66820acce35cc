"""Use of trained models in transformers."""
