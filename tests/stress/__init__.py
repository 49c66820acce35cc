"""Kill commands at random moments, and damage files at random places: nothing may be lost.

    STRESS_KILLS=20 STRESS_TRIES=500 STRESS_SEED=1 python -m pytest tests/stress -rP

kills each command of `commands.py` 20 times, uses each file and text of `damage.py` 500 times, and
prints how often. Without these variables no command is killed, and each file is used 25 times.
"""

import os

KILLS = int(os.environ.get("STRESS_KILLS", 0))
TRIES = int(os.environ.get("STRESS_TRIES", 25))
SEED = int(os.environ.get("STRESS_SEED", 7))
