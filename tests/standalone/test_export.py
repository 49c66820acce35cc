"""`torch.export` of `TUPEMaskedLM`: one program for every batch size and length."""

import pytest
import torch

from tests.tolerances import assert_close
from tupe_fairseq import TUPEConfig, TUPEMaskedLM

LENGTH, WORDS, PADDING = 24, 40, 1
KINDS = {
    "tupe_r": {"untie_cls": True},
    "tupe_a": {"untie_cls": True, "relative_bias": False},
    "tied_cls": {},
    "window": {"attention_window": 3, "global_every": 2},
    "pre_norm": {"untie_cls": True, "normalize_before": True, "layernorm_embedding": True},
}


def model(**changes) -> TUPEMaskedLM:
    """A model in eval mode whose parameters are large enough for positions to matter."""
    sizes = {"num_layers": 2, "num_heads": 2, "d_model": 16, "max_len": LENGTH}
    built = TUPEMaskedLM(TUPEConfig(**sizes, num_buckets=8, max_distance=16, **changes), WORDS)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return built.eval()


def tokens(batch: int, length: int, padded: bool) -> torch.Tensor:
    """Ids B×T; if padded, the last sequence has one token."""
    ids = torch.randint(4, WORDS, (batch, length), generator=torch.Generator().manual_seed(length))
    ids[:, 0] = 0
    if padded:
        ids[-1, 1:] = PADDING
    return ids


def exported(built: TUPEMaskedLM) -> torch.nn.Module:
    """The module of a program that was traced on one small unpadded batch."""
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length", min=2, max=LENGTH)
    program = torch.export.export(
        built, (tokens(3, 11, padded=False),), dynamic_shapes=((batch, length),)
    )
    return program.module()


@torch.no_grad()
def assert_any_batch(built: TUPEMaskedLM) -> None:
    program = exported(built)
    for batch, length in ((1, 2), (3, 11), (2, 17), (5, LENGTH)):
        for padded in (False, True):
            ids = tokens(batch, length, padded)
            words = ids.ne(PADDING)
            for actual, expected in zip(program(ids), built(ids), strict=True):
                assert actual.shape == expected.shape
                assert_close(actual[words], expected[words])


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_any_batch_and_length(kind):
    assert_any_batch(model(**kind))


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_exact_up_to_rounding(backend):
    """In float64, whose tolerance is far below 1e-6."""
    assert_any_batch(model(untie_cls=True, attention_backend=backend).double())
