"""`checks.first_rank`: one rank checks, and all raise its error."""

import multiprocessing

import pytest
import torch.distributed as dist

from tupe_fairseq.checks.first_rank import on_first_rank
from tupe_fairseq.errors import DataError


def fail():
    raise DataError("train.bin is cut off")


@pytest.mark.parametrize(("rank", "made"), [(0, 1), (1, 0)])
def test_without_torch_distributed_the_given_rank_decides(rank, made):
    calls = []
    on_first_rank(lambda: calls.append(rank), rank)
    assert len(calls) == made


def test_without_torch_distributed_errors_pass():
    with pytest.raises(DataError, match=r"train\.bin"):
        on_first_rank(fail, 0)
    on_first_rank(fail, 1)


def _rank(rank: int, store: str, results) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    calls = []
    on_first_rank(lambda: calls.append(rank), rank)
    try:
        on_first_rank(fail, rank)
    except DataError as error:
        results.put((rank, len(calls), str(error)))
    dist.destroy_process_group()


def test_all_ranks_raise_the_error_of_rank_0(tmp_path):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    ranks = [
        context.Process(target=_rank, args=(rank, str(tmp_path / "store"), results))
        for rank in (0, 1)
    ]
    for process in ranks:
        process.start()
    found = sorted(results.get(timeout=60) for _ in ranks)
    assert found == [(0, 1, "train.bin is cut off"), (1, 0, "train.bin is cut off")]
    for process in ranks:
        process.join(60)
        assert process.exitcode == 0
