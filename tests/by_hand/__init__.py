"""Tests that run by hand only: kills at random moments, sanitizers, and the check for GPUs.

    STRESS_KILLS=20 STRESS_SEED=1 python -m pytest tests/by_hand -rP

kills each command of `commands.py` 20 times, and prints how often. .pytest.ini leaves this folder
out of all other runs.
"""

import os

KILLS = int(os.environ.get("STRESS_KILLS", 20))
SEED = int(os.environ.get("STRESS_SEED", 7))
