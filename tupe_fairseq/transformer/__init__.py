"""Transformer modules on torch alone."""
