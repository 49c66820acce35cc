"""Logs of fairseq in JSON (--log-format json)."""

import json
import re
from pathlib import Path
from typing import Any

ENTRY = re.compile(r"\| (train_inner|valid|clock) \| (\{.*\})$")


def read_log(log: Path) -> list[tuple[str, dict[str, Any]]]:
    """The JSON entries `train_inner`, `valid` and `clock` of a log in order, numbers as floats."""
    entries = []
    for line in log.read_text(encoding="utf-8").split("\n") if log.exists() else ():
        if match := ENTRY.search(line):
            values = json.loads(match[2])
            entries.append((match[1], {key: _number(value) for key, value in values.items()}))
    return entries


def _number(value: Any) -> Any:
    try:
        return float(value)
    except (TypeError, ValueError):
        return value
