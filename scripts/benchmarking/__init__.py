"""What the benchmarks share: interleaved measurements, tables, flags.

torch.utils.benchmark is not used: its Timer runs a statement twice more before each measurement,
and its Compare prints neither ratios nor memory.
"""
