"""fairseq-train that also tells how long its updates take: `python timed_train.py FLAGS`.

At its end it logs `clock | {"updates": N, "seconds": S}`, S being the time inside the trainer's
updates but the first: no start-up, validation, or writing of checkpoints. On a CPU it is the time
that the processor spent on this process, which stays the same when other programs take turns with
it; on a GPU it is the time of the wall clock.
"""

from __future__ import annotations

import json
import time

import torch
from fairseq_cli import train as fairseq_train

now = time.perf_counter if torch.cuda.is_available() else time.process_time


class TimedTrainer(fairseq_train.Trainer):
    """Adds up the time of `train_step`, of all trainers of this process."""

    updates = -1
    seconds = 0.0

    def train_step(self, *args, **kwargs):
        start = now()
        ended = super().train_step(*args, **kwargs)
        TimedTrainer.updates += 1
        if TimedTrainer.updates:
            TimedTrainer.seconds += now() - start
        return ended


if __name__ == "__main__":
    fairseq_train.Trainer = TimedTrainer
    fairseq_train.cli_main()
    clock = {"updates": TimedTrainer.updates, "seconds": round(TimedTrainer.seconds, 3)}
    print(f"timed_train | clock | {json.dumps(clock)}", flush=True)
