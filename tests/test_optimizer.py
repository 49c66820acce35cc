"""`--optimizer fused_adam` against fairseq's Adam."""

import pytest
import torch
from fairseq.optim import adam

from tests.fairseq_commands import parameters, pretrain
from tests.tolerances import FORWARD, assert_trained_alike, error, largest
from tupe_fairseq.checkpoints.reading import read_checkpoint
from tupe_fairseq.optimizer import FusedAdam

#: ε and weight decay are large enough to be seen.
SETTINGS = {"lr": 0.01, "betas": (0.9, 0.98), "eps": 1e-2, "weight_decay": 0.1}


def train(optimizer, tensors, steps: range) -> None:
    """Random gradients; every third step, the first tensor has none, so that steps differ."""
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for number, tensor in enumerate(tensors):
            gradient = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
            has_none = number == 0 and step % 3 == 1
            tensor.grad = None if has_none else gradient.to(tensor.dtype)
        optimizer.step()


def tensors_of(dtype) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((5,), (3, 4), (1,))
    made = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return [torch.nn.Parameter(tensor.to(dtype)) for tensor in made]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_updates_are_those_of_fairseq_in_double_precision(dtype):
    ours, theirs = tensors_of(dtype), tensors_of(torch.float64)
    train(FusedAdam(ours, **SETTINGS), ours, range(20))
    train(adam.Adam(theirs, **SETTINGS), theirs, range(20))
    for found, expected in zip(ours, theirs, strict=True):
        assert error(found.double(), expected, largest(expected)) <= FORWARD[dtype]


@pytest.mark.parametrize(
    ("dtype", "more"), [(torch.bfloat16, {}), (torch.float32, {"amsgrad": True})]
)
def test_what_is_not_fused_is_as_in_fairseq(dtype, more):
    ours, theirs = tensors_of(dtype), tensors_of(dtype)
    train(FusedAdam(ours, **SETTINGS, **more), ours, range(5))
    train(adam.Adam(theirs, **SETTINGS, **more), theirs, range(5))
    assert all(map(torch.equal, ours, theirs))


def test_sparse_gradients_are_refused_as_by_fairseq():
    (tensor,) = tensors_of(torch.float32)[:1]
    tensor.grad = torch.ones(5).to_sparse()
    with pytest.raises(RuntimeError, match="does not support sparse gradients"):
        FusedAdam([tensor]).step()


@pytest.fixture(scope="module")
def trained_by_adam(toy_masked_lm_data, tmp_path_factory):
    flags = ("--weight-decay", 0.1, "--max-update", 8)
    return pretrain(toy_masked_lm_data, tmp_path_factory.mktemp("adam"), *flags)


@pytest.mark.parametrize("names", [("adam", "fused_adam"), ("fused_adam", "adam")])
def test_training_goes_on_with_the_other(toy_masked_lm_data, trained_by_adam, tmp_path, names):
    for name, updates in zip(names, (4, 8), strict=True):
        more = ("--optimizer", name, "--weight-decay", 0.1, "--max-update", updates)
        found = pretrain(toy_masked_lm_data, tmp_path, *more)
    assert_trained_alike(parameters(found), parameters(trained_by_adam))
    history = read_checkpoint(found)["optimizer_history"]
    assert [entry["num_updates"] for entry in history] == [4, 8], "resumed"
