"""Random bits, dropout, softmax and products, with kernels in C."""
