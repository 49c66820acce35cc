"""Random bits, dropout, LayerNorm, softmax and products, with kernels in C."""
