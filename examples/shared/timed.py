"""fairseq-train and fairseq-generate that log the time of their work, without start-up.

    python -m examples.shared.timed train FLAGS
    python -m examples.shared.timed generate --task timed_translation FLAGS

At the end they log `clock | {"updates": N, "seconds": S}`, the time between successive reports of
training (--log-interval) except those with a validation or a checkpoint between them; or `clock |
{"tokens": N, "seconds": S}`, the time of the search. On a CPU it is the processor time of this
process, which does not depend on other programs; on a GPU wall-clock time.
"""

import json
import logging
import sys
import time

import torch

# The first of fairseq's modules, because it sets up logging.
from fairseq_cli import train  # isort: skip
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq_cli import generate

from tupe_fairseq.fairseq import commands
from tupe_fairseq.fairseq.models import prepare_process

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
        done = int(json.loads(record.getMessage())["num_updates"])
        time_now = now()
        if self.last is not None:
            self.updates += done - self.last[0]
            self.seconds += time_now - self.last[1]
        self.last = done, time_now


@register_task("timed_translation", dataclass=TranslationConfig)
class TimedTranslation(TranslationTask):
    """Sums the time of all searches of this process, and the tokens of the best hypotheses."""

    tokens = 0
    seconds = 0.0

    def inference_step(self, *args, **kwargs):
        """Search as fairseq does."""
        began = now()
        found = super().inference_step(*args, **kwargs)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        TimedTranslation.seconds += now() - began
        TimedTranslation.tokens += sum(len(hypotheses[0]["tokens"]) for hypotheses in found)
        return found


if __name__ == "__main__":
    name = sys.argv.pop(1)
    clock = Clock(logging.INFO)
    if name == "train":
        logging.getLogger().addHandler(clock)
        # `Clock` reads these reports; of two equal flags, the last takes effect.
        sys.argv += ["--log-format", "json"]
    with commands.running(name):
        prepare_process()
        (train if name == "train" else generate).cli_main()
    timed, key = (clock, "updates") if name == "train" else (TimedTranslation, "tokens")
    found = {key: getattr(timed, key), "seconds": round(timed.seconds, 3)}
    print(f"timed | clock | {json.dumps(found)}", flush=True)
