"""What `tupe_fairseq.distributed.launch` says before and after its processes."""

import re
import signal

import pytest
import torch
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.rendezvous.api import (
    RendezvousConnectionError,
    RendezvousTimeoutError,
)

from tupe_fairseq import UsageError
from tupe_fairseq.distributed import launch


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "N is 'missing'"),
        (["two", "data"], "N is 'two'"),
        (["0", "data"], "N is '0'"),
        (["2"], "nothing to train"),
        (["2", "--nnodes", "2", "--"], "nothing to train"),
        (["2", "data", "--distributed-world-size", "4"], "--distributed-world-size is set from"),
        (["2", "data", "--device-id=1"], "--device-id is set from"),
    ],
)
def test_bad_command_lines(words, part):
    with pytest.raises(UsageError, match=re.escape(part)):
        launch.split(words)


def test_flags_of_torchrun_stand_before_the_dashes():
    words = ["8", "--nnodes", "2", "--", "data", "--cpu"]
    assert launch.split(words) == (8, ["--nnodes", "2"], ["data", "--cpu"])


def test_fewer_gpus_than_processes(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    launch.check_devices(2, ["--cpu"])
    launch.check_devices(1, [])
    with pytest.raises(UsageError, match="N is 2, but this machine has 1 GPU"):
        launch.check_devices(2, [])


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (SignalException("got signal", signal.SIGINT), r"stopped by SIGINT, .*; the same command"),
        (
            RendezvousConnectionError("no store"),
            r"rendezvous failed at localhost:0 \(.*Connection",
        ),
        (RendezvousTimeoutError(), r"rendezvous failed at localhost:0 \(.*Timeout"),
    ],
)
def test_the_launcher_tells_in_one_line(error, told, monkeypatch):
    def run(_):
        raise error

    monkeypatch.setattr(launch, "run", run)
    with pytest.raises(UsageError, match=told):
        launch.launch(["1", "data", "--cpu"])
