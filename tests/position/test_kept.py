"""Terms that are kept between forward passes: used while nothing changes, and never after."""

import copy
import gc
import pickle

import pytest
import torch
from torch import nn

from tupe_fairseq import build_position_encoding
from tupe_fairseq.position import kept
from tupe_fairseq.position.score import PositionalScore

LENGTH = 9


@pytest.fixture(params=["tupe_a", "tupe_r"])
def encoding(request):
    torch.manual_seed(0)
    built = build_position_encoding(request.param, 16, 2, 40)
    for parameter in built.parameters():
        nn.init.normal_(parameter)
    return built.eval()


def cells(encoding, length=LENGTH):
    """The term, computed or kept."""
    with torch.no_grad():
        return encoding.score(length, length).dense()


def computed(encoding, length=LENGTH):
    """The term, which is never kept while gradients are recorded."""
    return encoding.score(length, length).dense()


def is_kept(encoding):
    with torch.no_grad():
        return encoding.score(LENGTH, LENGTH) is encoding.score(LENGTH, LENGTH)


def change_in_place(encoding):
    with torch.no_grad():
        encoding.q_proj.weight.mul_(2)


def change_data(encoding):
    encoding.k_proj.weight.data[3, 4] += 1


def change_a_row(encoding):
    encoding.weight.data[LENGTH - 1] += 1


def load(encoding):
    encoding.load_state_dict({n: 2 * value for n, value in encoding.state_dict().items()})


def step(encoding):
    encoding.train()
    encoding.score(LENGTH, LENGTH).dense().square().sum().backward()
    torch.optim.SGD(encoding.parameters(), 0.1).step()
    encoding.eval()


def replace(encoding):
    encoding.q_proj = nn.Linear(16, 16)


def hook(encoding):
    encoding.q_proj.register_forward_hook(lambda module, args, out: 3 * out)


CHANGES = [change_in_place, change_data, change_a_row, load, step, replace, hook]


@pytest.mark.parametrize("change", CHANGES)
def test_no_change_is_missed(encoding, change):
    before = cells(encoding)
    assert is_kept(encoding)
    change(encoding)
    assert torch.equal(cells(encoding), computed(encoding))
    assert not torch.equal(cells(encoding), before)


def test_a_row_that_a_longer_text_reads(encoding):
    cells(encoding)
    encoding.weight.data[LENGTH + 3] += 1
    assert is_kept(encoding)
    assert torch.equal(cells(encoding, LENGTH + 4), computed(encoding, LENGTH + 4))
    assert torch.equal(cells(encoding), computed(encoding))


def test_dtypes_and_gradients(encoding):
    cells(encoding)
    assert cells(encoding.double()).dtype == torch.float64
    assert computed(encoding).requires_grad
    assert cells(encoding.bfloat16()).dtype == torch.float32
    with torch.inference_mode():
        encoding.float().score(LENGTH, LENGTH)
    assert torch.equal(cells(encoding), computed(encoding))


def test_an_adapter_that_is_switched_off(encoding):
    class Adapter(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner, self.scale = inner, 2.0

        def forward(self, x):
            return self.scale * self.inner(x)

    encoding.q_proj = Adapter(encoding.q_proj)
    before = cells(encoding)
    encoding.q_proj.scale = 1.0
    assert not torch.equal(cells(encoding), before)
    assert torch.equal(cells(encoding), computed(encoding))


def test_copies_and_memory(encoding, monkeypatch):
    monkeypatch.setattr(kept, "LENGTHS", 3)
    size = len(pickle.dumps(encoding))
    for length in range(1, 9):
        cells(encoding, length)
        assert len(kept._kept[encoding].scores) <= 3
    assert len(pickle.dumps(encoding)) == size
    copied = copy.deepcopy(encoding)
    assert copied not in kept._kept
    change_in_place(copied)
    assert torch.equal(cells(copied), computed(copied))
    assert torch.equal(cells(encoding), computed(encoding))
    count = len(kept._kept)
    del copied
    gc.collect()
    assert len(kept._kept) < count


def test_a_kept_term_stays_where_no_more_are_kept(encoding, monkeypatch):
    monkeypatch.setattr(kept, "LENGTHS", 3)
    with torch.no_grad():
        terms = [encoding.score(length, length) for length in (1, 2, 3)]
        assert [encoding.score(length, length) for length in (1, 2, 3)] == terms


def test_long_inputs_are_not_kept(encoding, monkeypatch):
    monkeypatch.setattr(kept, "LONGEST", LENGTH - 1)
    assert not is_kept(encoding)
    assert isinstance(encoding.score(LENGTH, LENGTH), PositionalScore)
