"""What the benchmarks share: rows that take turns, tables, flags.

torch.utils.benchmark is not used: its Timer runs a statement twice more before each measurement,
and its Compare prints neither ratios nor memory.
"""
