"""fairseq-generate that logs the time of its search.

    python -m examples.translation.timed_generate FLAGS

FLAGS include `--task timed_translation`, which is fairseq's translation with a clock. At the end
it logs `clock | {"tokens": N, "seconds": S}`, where S is the time of the search, without start-up
and reading: on a CPU the processor time of this process, which does not depend on other programs,
and on a GPU wall-clock time.
"""

import json
import time

import torch
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq_cli import generate as fairseq_generate

from tupe_fairseq import commands

now = time.perf_counter if torch.cuda.is_available() else time.process_time


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
    with commands.running("generate"):
        fairseq_generate.cli_main()
    clock = {"tokens": TimedTranslation.tokens, "seconds": round(TimedTranslation.seconds, 3)}
    print(f"timed_generate | clock | {json.dumps(clock)}", flush=True)
