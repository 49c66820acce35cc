"""Random bits, dropout, LayerNorm and softmax, with kernels in C and Triton."""
