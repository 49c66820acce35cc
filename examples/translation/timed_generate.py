"""fairseq-generate that also tells how long it searches: `python timed_generate.py FLAGS`.

At its end it logs `clock | {"tokens": N, "seconds": S}`, S being the time inside the search: no
start-up and no reading. On a CPU it is the time that the processor spent on this process, which
stays the same when other programs take turns with it; on a GPU it is the time of the wall clock.
"""

from __future__ import annotations

import json
import time

import torch
from fairseq.logging.meters import StopwatchMeter
from fairseq_cli import generate as fairseq_generate

now = time.perf_counter if torch.cuda.is_available() else time.process_time


class SearchClock(StopwatchMeter):
    """Adds up the time of all searches of this process."""

    tokens = 0
    seconds = 0.0

    def start(self):
        super().start()
        self.began = now()

    def stop(self, n=1, prehook=None):
        super().stop(n, prehook)
        SearchClock.tokens += int(n)
        SearchClock.seconds += now() - self.began


if __name__ == "__main__":
    fairseq_generate.StopwatchMeter = SearchClock
    fairseq_generate.cli_main()
    clock = {"tokens": SearchClock.tokens, "seconds": round(SearchClock.seconds, 3)}
    print(f"timed_generate | clock | {json.dumps(clock)}", flush=True)
