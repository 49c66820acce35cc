"""`--optimizer fused_adam` against fairseq's Adam."""

import pytest
import torch
from fairseq.optim import adam

from tests.fairseq_commands import parameters, pretrain
from tests.tolerances import FORWARD, assert_trained_alike, error, largest
from tupe_fairseq import UsageError
from tupe_fairseq.fairseq.checkpoints.reading import read_checkpoint
from tupe_fairseq.fairseq.commands import running
from tupe_fairseq.fairseq.optimizer import FusedAdam

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
    ours = tensors_of(dtype)
    theirs = tensors_of(torch.float64)
    train(FusedAdam(ours, **SETTINGS), ours, range(20))
    train(adam.Adam(theirs, **SETTINGS), theirs, range(20))
    for found, expected in zip(ours, theirs, strict=True):
        assert error(found.double(), expected, largest(expected)) <= FORWARD[dtype]


@pytest.mark.parametrize(
    ("dtype", "more"), [(torch.bfloat16, {}), (torch.float32, {"amsgrad": True})]
)
def test_what_is_not_fused_is_as_in_fairseq(dtype, more):
    ours = tensors_of(dtype)
    theirs = tensors_of(dtype)
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


@pytest.mark.parametrize(
    "shapes", [((64, 4), (192, 4)), ((3, 4), (5, 4)), ((5, 4), (3, 4)), ((4,), ())]
)
def test_a_state_of_another_shape_is_refused(shapes):
    """Of a model with more positions, or with other classes."""
    old, new = (torch.nn.Parameter(torch.ones(shape)) for shape in shapes)
    before = FusedAdam([old])
    after = FusedAdam([new])
    old.grad = torch.ones_like(old)
    new.grad = torch.ones_like(new)
    before.step()
    after.load_state_dict(before.state_dict())
    with pytest.raises(UsageError, match=r"exp_avg of shape .* give --reset-optimizer") as error:
        after.step()
    assert "\n" not in str(error.value)
    assert torch.equal(new, torch.ones_like(new))


@pytest.mark.parametrize("name", ["exp_avg", "exp_avg_sq"])
def test_a_part_of_a_state_of_another_shape_is_refused(name):
    tensor = torch.nn.Parameter(torch.ones(3, 4))
    tensor.grad = torch.ones_like(tensor)
    optimizer = FusedAdam([tensor])
    optimizer.step()
    optimizer.state[tensor][name] = torch.ones(5, 4)
    kept = tensor.detach().clone()
    with pytest.raises(UsageError, match=rf"{name} of shape \(5, 4\) .* --reset-optimizer"):
        optimizer.step()
    assert torch.equal(tensor, kept)


def test_more_positions_end_a_resumed_training_in_one_line(
    toy_masked_lm_data, trained_by_adam, tmp_path, capfd
):
    flags = ("--optimizer", "fused_adam", "--restore-file", trained_by_adam)
    flags += ("--max-positions", 128, "--extend-positions", "hierarchical", "--max-update", 12)
    with running("train"), pytest.raises(SystemExit, match="--reset-optimizer"):
        pretrain(toy_masked_lm_data, tmp_path, *flags)


@pytest.mark.parametrize("strided", ["parameter", "gradient", "state"])
def test_numbers_in_any_order_of_memory(strided):
    tensors = [torch.nn.Parameter(torch.arange(12.0).view(3, 4)) for _ in range(2)]
    if strided == "parameter":
        tensors[0].data = torch.arange(12.0).view(3, 4).t().contiguous().t()
    ours = FusedAdam(tensors[:1], **SETTINGS)
    theirs = adam.Adam(tensors[1:], **SETTINGS)
    for step in range(3):
        gradient = torch.randn(3, 4, generator=torch.Generator().manual_seed(step))
        for tensor in tensors:
            tensor.grad = gradient.clone()
        if strided == "gradient":
            tensors[0].grad = gradient.t().contiguous().t()
        ours.step()
        theirs.step()
        if strided == "state":
            for name, value in ours.state[tensors[0]].items():
                if name != "step":
                    ours.state[tensors[0]][name] = value.t().contiguous().t()
    assert error(tensors[0], tensors[1], largest(tensors[1])) <= FORWARD[torch.float32]
