"""In int8, the vectors of a text do not depend on its batch, its padding and its neighbours."""

import pytest
import torch
from torch import Tensor

from tests.huggingface.encoders import NAMES, build
from tupe_fairseq.huggingface import optimize
from tupe_fairseq.huggingface.modules import row_by_row

#: A text has a first and a last token.
LENGTHS = (20, 2, 7, 20, 13, 3, 16)


def vectors(model, texts: list[Tensor], side: str = "right") -> list[Tensor]:
    """The vectors of each text, in one batch."""
    pad = model.config.pad_token_id or 0
    ids = torch.nn.utils.rnn.pad_sequence(texts, True, pad, padding_side=side)
    ones = [torch.ones_like(each) for each in texts]
    mask = torch.nn.utils.rnn.pad_sequence(ones, True, 0, padding_side=side)
    with torch.no_grad():
        out = model(input_ids=ids, attention_mask=mask)[0]
    return [row[seen] for row, seen in zip(out, mask.bool(), strict=True)]


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("bert", "right"),
        ("v3", "right"),
        ("modernbert", "right"),
        ("mpnet", "right"),
        # Where no embedding of a position depends on it.
        ("v3", "left"),
        ("modernbert", "left"),
    ],
)
def test_in_every_batch(name, side, way):
    model = optimize(build(name, num_hidden_layers=2), "int8")
    texts = [torch.randint(4, 60, (length,)) for length in LENGTHS]
    alone = [vectors(model, [each])[0] for each in texts]
    for order in (range(len(LENGTHS)), (1, 2), (4, 6), (5, 0), (3, 0)):
        together = vectors(model, [texts[i] for i in order], side)
        assert all(map(torch.equal, together, (alone[i] for i in order)))


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_beside_a_broken_text(name, way):
    """Vectors that are not numbers stay in their text."""
    model = optimize(build(name, num_hidden_layers=2), "int8")
    width = model.config.hidden_size
    x = torch.randn(3, 11, width)
    mask = torch.ones(3, 11, dtype=torch.long)
    mask[1:, 8:] = 0
    expected = model(inputs_embeds=x, attention_mask=mask)[0]
    for number in (float("nan"), float("inf")):
        broken = x.clone()
        broken[0, 4] = number
        found = model(inputs_embeds=broken, attention_mask=mask)[0]
        assert not found[0].isfinite().all()
        assert torch.equal(found[1:], expected[1:])


@pytest.mark.parametrize("act", ["silu", "gelu_pytorch_tanh"])
@pytest.mark.parametrize("seed", range(3))
def test_after_activations_of_any_width(act, seed):
    """torch computes numbers that fill no vector in another way, which rounds otherwise."""
    model = build("bert", seed=seed, intermediate_size=9, hidden_act=act)
    model = optimize(model, "int8")
    texts = [torch.randint(4, 60, (length,)) for length in LENGTHS]
    alone = [vectors(model, [each])[0] for each in texts]
    assert all(map(torch.equal, vectors(model, texts), alone))


@torch.no_grad()
def test_activations_on_several_threads():
    """Each thread computes whole rows."""
    x = torch.randn(2001, 768)
    act = torch.nn.SiLU()
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(5)
        together = row_by_row(act, x.clone())
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(together, act(x))
    alone = [row_by_row(act, row.clone()) for row in x.split(1)]
    assert torch.equal(together, torch.cat(alone))
