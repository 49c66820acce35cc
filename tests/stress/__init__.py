"""Damaged files, random texts, full disks and read-only folders: nothing may be lost.

    STRESS_TRIES=500 STRESS_SEED=1 python -m pytest tests/stress -rP

uses each file and text of `damage.py` 500 times, and prints how often; without the variable, 10
times. Kills are in tests/by_hand.
"""

import os

TRIES = int(os.environ.get("STRESS_TRIES", 10))
SEED = int(os.environ.get("STRESS_SEED", 7))
