"""What trainings in this process share."""

import sys

import pytest


@pytest.fixture
def under_fairseq_train(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run as the command would: its name makes its checks run."""
    monkeypatch.setattr(sys, "argv", ["fairseq-train"])
