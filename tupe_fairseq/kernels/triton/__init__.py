"""Kernels of the backend `triton`; its modules import triton, so nothing imports them before use.

Shapes: B sequences, H heads, T tokens, D head dimension; tiles of R queries by S keys.
"""
