"""Sweeps of fairseq-hydra-train, whose runs share a process."""

import shutil

import pytest
import torch

from tests.examples.hydra_configs import PRETRAINING, run_command


@pytest.mark.slow
def test_a_sweep_goes_on_after_finished_runs(toy_masked_lm_data, tmp_path):
    settings = ("optimization.max_update=2", "lr_scheduler.warmup_updates=1")
    folders = (f"hydra.sweep.dir={tmp_path}", "hydra.sweep.subdir=${common.seed}")
    small = ("dataset.batch_size=2", "task.tokens_per_sample=32")
    sweep = ("common.seed=1,2", *settings, *small, *folders, "--multirun")

    def updates() -> list[int]:
        done = run_command(PRETRAINING / "tiny.yaml", *sweep, data=toy_masked_lm_data)
        assert done.returncode == 0, done.stderr
        found = []
        for seed in "12":
            best, last = (
                torch.load(tmp_path / seed / "checkpoints" / name, weights_only=True)
                for name in ("checkpoint_best.pt", "checkpoint_last.pt")
            )
            # fairseq would compare with the best score of the run before.
            assert best["extra_state"]["best"] == best["extra_state"]["val_loss"]
            found.append(last["optimizer_history"][-1]["num_updates"])
        return found

    assert updates() == [2, 2]
    shutil.rmtree(tmp_path / "2")
    # fairseq makes one update more of finished runs, here with a learning rate of 0.
    assert updates() == [3, 2]
