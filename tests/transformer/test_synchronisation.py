"""How often the host waits for the device: an encoder or decoder once, to read the padding of ids.

Tensors on torch's device "meta" have no values, so whatever would make the host wait for a GPU to
read a value raises an error there. Copies from the host to the device are counted, too.
"""

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from tests.attention.cases import OPTIONS, encoder_of, served
from tests.fairseq.decoder.samples import build
from tupe_fairseq.attention import Padding
from tupe_fairseq.position import POSITION_ENCODINGS

LENGTH = 9
WIDTH = 16
#: FIRE reads on the host the lengths up to which its scores are tables by distance.
ENCODINGS = sorted(set(POSITION_ENCODINGS) - {"fire"})
ON_GPUS = served(("eager", "flash", "sdpa", "triton"), ENCODINGS)
#: What makes a tensor of values on the host.
FROM_VALUES = {
    torch.tensor,
    torch.as_tensor,
    torch.asarray,
    torch.from_numpy,
    torch.Tensor.new_tensor,
}


class NoCopiesFromTheHost(TorchFunctionMode):
    """Fails where a tensor is made of values on the host, or is on the CPU."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        assert func not in FROM_VALUES, f"{func.__name__} copies from the host"
        out = func(*args, **(kwargs or {}))
        tensors = [each for each in tree_leaves(out) if isinstance(each, torch.Tensor)]
        assert all(each.is_meta for each in tensors), f"{func.__name__} makes a tensor on the CPU"
        return out


def tokens():
    return torch.full((2, LENGTH), 5, device="meta")


def inputs():
    """Vectors, a padding mask and ids."""
    x = torch.randn(2, LENGTH, WIDTH, device="meta", requires_grad=True)
    return x, torch.zeros(2, LENGTH, dtype=torch.bool, device="meta"), tokens()


@pytest.fixture
def reads(monkeypatch):
    """The masks that were read; each read counts as one synchronisation, of half padding."""
    found = []

    def read(mask):
        found.append(mask)
        return Padding(mask, (LENGTH, LENGTH - 5)) if mask is not None else None

    monkeypatch.setattr(Padding, "read", read)
    return found


@pytest.mark.parametrize(("backend", "name"), ON_GPUS)
def test_vectors_without_padding_need_no_synchronisation(backend, name):
    x, _, ids = inputs()
    encoder = encoder_of(name, LENGTH, WIDTH, 4, attention_backend=backend).to("meta")
    encoder(x, None, ids).sum().backward()
    assert x.grad.shape == x.shape


@pytest.mark.parametrize(
    ("name", "window"),
    [
        *((name, None) for name in ENCODINGS),
        *((n, 3) for n in ("none", "alibi", "tupe_a", "tupe_r")),
    ],
)
def test_a_padded_batch_is_read_once_and_nothing_is_copied_from_the_host(name, window, reads):
    causal = not OPTIONS.get(name, {}).get("bidirectional", True)
    encoder = encoder_of(name, LENGTH, WIDTH, 4, {"attention_window": window}, causal=causal).to(
        "meta"
    )
    batch = inputs()
    with NoCopiesFromTheHost():
        encoder(*batch).sum().backward()
    assert len(reads) == 1


@pytest.mark.parametrize("name", ["tupe_r", "rope"])
def test_the_kernels_of_triton_find_padding_on_the_device(name, reads):
    encoder = encoder_of(name, LENGTH, WIDTH, 4, attention_backend="triton").to("meta")
    batch = inputs()
    with NoCopiesFromTheHost():
        encoder(*batch).sum().backward()


@pytest.mark.parametrize("arch", ["tupe_transformer", "tupe_transformer_lm"])
def test_each_of_encoder_and_decoder_reads_once(arch, reads):
    model = build("tupe_r", arch).train().to("meta")
    if arch == "tupe_transformer":
        logits, _ = model(tokens(), None, tokens())
    else:
        logits, _ = model(tokens())
    logits.sum().backward()
    assert len(reads) == (2 if arch == "tupe_transformer" else 1)


def test_reading_a_mask_is_one_transfer(monkeypatch):
    """Whether there is padding, where, and how much: one tensor goes to the host."""
    transfers = []
    tolist = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda x: transfers.append(x) or tolist(x))
    for name in ("__bool__", "item", "__int__"):
        monkeypatch.setattr(torch.Tensor, name, lambda x: pytest.fail("read a value"))
    mask = torch.tensor([[False, False, True], [True, False, False]])
    padding = Padding.read(mask)
    assert (padding.lengths, padding.leading, padding.scattered) == ((2, 2), True, True)
    assert len(transfers) == 1
    assert Padding.read(torch.zeros_like(mask)) is None
