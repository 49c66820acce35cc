"""fairseq-train that logs the time of its updates.

    python -m examples.study.timed_train FLAGS

It logs in JSON (--log-format json). At the end it logs `clock | {"updates": N, "seconds": S}`: the
time between successive reports of training (--log-interval), except those with a validation or a
checkpoint between them. On a CPU it is the processor time of this process, which does not depend
on other programs; on a GPU wall-clock time.
"""

import json
import logging
import sys
import time

import torch
from fairseq_cli import train as fairseq_train

from tupe_fairseq import commands

#: Loggers of validation and checkpoints.
OTHERS = ("valid", "fairseq.checkpoint_utils")

now = time.perf_counter if torch.cuda.is_available() else time.process_time


class Clock(logging.Handler):
    """Sums the time between reports of training."""

    updates = 0
    seconds = 0.0
    last: tuple[int, float] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Count the updates since the last report, unless another logger has reported since."""
        if record.name in OTHERS:
            self.last = None
        if record.name != "train_inner":
            return
        done, time_now = int(json.loads(record.getMessage())["num_updates"]), now()
        if self.last is not None:
            self.updates += done - self.last[0]
            self.seconds += time_now - self.last[1]
        self.last = done, time_now


if __name__ == "__main__":
    clock = Clock(logging.INFO)
    logging.getLogger().addHandler(clock)
    # `Clock` reads these reports; of two equal flags, the last takes effect.
    sys.argv += ["--log-format", "json"]
    with commands.running("train"):
        fairseq_train.cli_main()
    entry = {"updates": clock.updates, "seconds": round(clock.seconds, 3)}
    print(f"timed_train | clock | {json.dumps(entry)}", flush=True)
