"""The best epoch of a fine-tuning, from its log.

    python -m examples.glue.result TASK LOG OUT

Writes JSON: task, metric, score (of the best epoch on the validation set, in percent), all metrics
of that epoch, epoch, updates. For MNLI, `mismatched_accuracy` is that of the mismatched set.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from examples.glue.tasks import Task, task_of

LINE = re.compile(r"epoch (\d+) \| valid on '(valid1?)' subset \| (.*\bnum_updates \d+.*)")


def best_epoch(task: Task, log: str) -> dict[str, Any] | None:
    """The validation whose checkpoint fairseq keeps as the best: the last of equal ones.

    Args:
        task: of the fine-tuning.
        log: text that fairseq-hydra-train logged with common.log_format=simple or tqdm.

    Returns:
        None if there was no validation.
    """
    # By subset and number of updates: an epoch may have several validations.
    found: dict[tuple[str, int], dict[str, float]] = {}
    for epoch, subset, stats in LINE.findall(log):
        pairs = (stat.rsplit(" ", 1) for stat in stats.split(" | "))
        entry = {"epoch": int(epoch), **{key: float(value) for key, value in pairs}}
        found[subset, int(entry["num_updates"])] = entry
    scores = {n: stats[task.metric] for (subset, n), stats in found.items() if subset == "valid"}
    if not scores:
        return None
    best = max(sorted(scores, reverse=True), key=scores.__getitem__)
    entry = found["valid", best]
    metrics = {name: entry[name] for name in task.metrics if name in entry}
    if ("valid1", best) in found:
        metrics["mismatched_accuracy"] = found["valid1", best]["accuracy"]
    result = {"task": task.name, "metric": task.metric, "score": scores[best], "metrics": metrics}
    return result | {"epoch": entry["epoch"], "updates": best}


if __name__ == "__main__":
    name, log, out = sys.argv[1:]
    result = best_epoch(task_of(name), Path(log).read_text(encoding="utf-8"))
    if result is None:
        sys.exit(f"error: {log} contains no validation.")
    Path(out).write_text(json.dumps(result, indent=2) + "\n")
