"""--attention-window and an untied [CLS]: it sees all tokens, and all tokens see it."""

import pytest
import torch

from tests.attention.cases import (
    EMBED_DIM,
    build,
    gradients,
    normal,
    padding_mask,
    run,
)
from tests.tolerances import assert_close, assert_gradients_close
from tupe_fairseq.attention.layout import Layout

CASES = ("tupe_a", "tupe_r", "tupe_a-tie_cls", "tupe_r-tie_cls")
LENGTH, WINDOW = 9, 2


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("lengths", [None, (300, 170, 20)], ids=["full", "packed"])
@pytest.mark.parametrize("causal", [False, True], ids=["two-sided", "causal"])
@pytest.mark.parametrize("trained", [False, True], ids=["evaluated", "trained"])
def test_many_blocks(case, lengths, causal, trained):
    """The fastest backend in fp32 against `eager` in fp64, at a length of several blocks."""
    length, how = 300, {"window": 20, "causal": causal}
    padding = None if lengths is None else padding_mask(length, *(length - n for n in lengths))
    tokens = torch.ones(3, length, 1) if padding is None else (~padding)[:, :, None].float()
    found, of_found = attended(case, length, torch.float32, tokens, lengths, trained, **how)
    expected, of_expected = attended(
        case, length, torch.float64, tokens, lengths, trained, backend="eager", **how
    )
    assert_close(found, expected)
    if trained:
        assert_gradients_close(of_found, of_expected, torch.float32)


def attended(case, length, dtype, tokens, lengths, trained, **how):
    """The outputs at tokens, and the gradients where they are recorded."""
    encoding, attention = (module.to(dtype) for module in build(case, length))
    x = normal(3, length, EMBED_DIM, seed=0).to(dtype).requires_grad_(trained)
    mask = None if lengths is None else tokens[:, :, 0] == 0
    layout = Layout(3, length, mask, lengths)
    with torch.set_grad_enabled(trained):
        out = tokens * run(encoding, attention, x, layout=layout, **how)
        return out, gradients(out, x, encoding, attention) if trained else None
