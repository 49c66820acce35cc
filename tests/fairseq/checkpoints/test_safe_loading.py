"""Checkpoints with payloads, which must not run, and files that cannot be read."""

import json
import os
import pickle
import re
import subprocess
from argparse import Namespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from examples.glue import predict, pretrained
from examples.glue.tasks import TASKS
from tests import ROOT, processes
from tests.convert import release
from tupe_fairseq import TupeRobertaModel, UsageError
from tupe_fairseq.base.errors import CheckpointError
from tupe_fairseq.convert.command import convert
from tupe_fairseq.convert.formats import huggingface
from tupe_fairseq.fairseq.checkpoints.reading import read_checkpoint


class Calls:
    """Calls a function when unpickled."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def payloads(trace):
    """Pickles that would create a file, by functions and inside of listed classes."""
    touch = f"touch {trace}"
    objects = np.empty(1, dtype=object)
    objects[0] = Calls(os.system, touch)
    return {
        "os.system": Calls(os.system, touch),
        "eval": Calls(eval, f"__import__('os').system({touch!r})"),
        "subprocess": Calls(subprocess.getoutput, touch),
        "getattr": Calls(getattr, Calls(__import__, "os"), "system"),
        "loads": Calls(pickle.loads, pickle.dumps(Calls(os.system, touch))),
        "in settings": Namespace(hidden=Calls(os.system, touch)),
        "in an array": objects,
    }


#: torch names functions and classes that it refuses; `safe_numpy` names no array.
REFUSED = r"cannot be loaded: it holds [\w.]+, which is not a tensor|cannot be loaded: it is"


@pytest.mark.parametrize("name", payloads(""))
@pytest.mark.parametrize("where", ["args", "extra_state"])
def test_payloads_never_run(tmp_path, name, where):
    """In the reader, the hub and the converter. Each runs without these checks.

    `args` are those of old files, which torch wrote in another format than today's zip archives.
    """
    trace = tmp_path / "it-ran"
    checkpoint = release.write(tmp_path / "release")
    state = torch.load(checkpoint, weights_only=True)
    place = state.setdefault(where, {})
    payload = payloads(trace)[name]
    if where == "args":
        place.more = payload
    else:
        place["more"] = payload
    torch.save(state, checkpoint, _use_new_zipfile_serialization=where != "args")
    for load in (
        lambda: read_checkpoint(checkpoint),
        lambda: TupeRobertaModel.from_pretrained(checkpoint),
        lambda: convert(
            ["--from", "tupe-official", str(checkpoint), "--out", str(tmp_path / "o")]
        ),
    ):
        with pytest.raises(UsageError, match=REFUSED):
            load()
    assert not trace.exists()
    assert not (tmp_path / "o").exists()
    if name != "getattr":
        torch.load(checkpoint, weights_only=False)
        assert trace.exists(), "the payload of this test does nothing"


def test_a_file_that_cannot_be_read_is_not_called_damaged(tmp_path, monkeypatch):
    """Otherwise training would advise to replace it by an older checkpoint."""
    with pytest.raises(UsageError, match="cannot be read: Is a directory") as raised:
        read_checkpoint(tmp_path)
    assert not isinstance(raised.value, CheckpointError)
    monkeypatch.setattr(torch, "load", Mock(side_effect=OSError(5, "Input/output error")))
    with pytest.raises(UsageError, match="cannot be read: Input/output error") as raised:
        read_checkpoint(tmp_path)
    assert not isinstance(raised.value, CheckpointError)


def test_other_ways_in(tmp_path):
    """Scripts that read a checkpoint, and a pickle in place of a safetensors file."""
    checkpoint = release.write(tmp_path / "release")
    trace = tmp_path / "it-ran"
    state = torch.load(checkpoint, weights_only=True)
    torch.save(state | {"more": Calls(os.system, f"touch {trace}")}, checkpoint)
    data = tmp_path / "RTE-bin"
    data.mkdir()
    examples = {split.name: 1 for split in TASKS["RTE"].tests}
    settings = {"task": "RTE", "max_positions": 8, "examples": examples}
    for folder in (data, checkpoint.parent):
        (folder / "task.json").write_text(json.dumps(settings))
    checkpoint.rename(checkpoint.with_name("model.pt"))
    words = ["--data", str(tmp_path), "--out", str(tmp_path / "s.zip"), str(checkpoint.parent)]
    for load in (
        lambda: predict.main(predict.arguments(words)),
        lambda: pretrained.overrides(data, checkpoint.with_name("model.pt")),
        lambda: convert(["--to", "huggingface", words[-1], "--out", str(tmp_path / "plain")]),
    ):
        with pytest.raises(UsageError, match=REFUSED):
            load()
    drawn = processes.run(
        ROOT / "scripts/plot_positional_correlations.py", words[-1], "--out", tmp_path / "maps.png"
    )
    assert re.search(REFUSED, drawn.stderr)
    (tmp_path / "config.json").write_text('{"model_type": "tupe"}')
    checkpoint.with_name("model.pt").rename(tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match=r"model.safetensors cannot be loaded as safetensors"):
        huggingface.read(tmp_path)
    assert not trace.exists()
    (tmp_path / "model.safetensors").rename(checkpoint)
    torch.load(checkpoint, weights_only=False)
    assert trace.exists(), "the payload of this test does nothing"
