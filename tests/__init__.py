"""The tests, as a package so that they can share references, cases and tolerances."""

import os
from pathlib import Path

#: The root of the repository.
ROOT = Path(__file__).parents[1]

# In bfloat16 oneDNN uses AMX where the processor names it; some virtual machines name it but stop
# the process ("Illegal instruction") when it is used. Read at the first use of oneDNN.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
