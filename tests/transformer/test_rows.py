"""What a text gives does not depend on the texts beside it, nor on how long they are.

Of every encoding and each of its options that could depend on the length, with the backend that
`auto` takes and with each other in turn; in fairseq's models and transformers' classes too.
"""

import pytest
import torch

from tests.attention.cases import BACKENDS, ENCODINGS, IN_ENCODERS, OPTIONS, encoder_of, enlarged
from tests.covering import in_turn
from tests.fairseq.decoder.samples import PAD, sentences, stock, targets
from tests.huggingface.samples import config, filled
from tests.tolerances import assert_close
from tupe_fairseq import BackendError, PositionEncoding, TUPEConfig, TUPEEncoder
from tupe_fairseq.position.rope_scaling import ROPE_SCALINGS

WIDTH = 24
LENGTHS = (16, 9, 3, 1)
LENGTH = max(LENGTHS)
#: Beyond 4 tokens, the rotation depends on their number.
BY_LENGTH = {"rope_scaling_factor": 3.0, "rope_original_positions": 4}
SCALED = {f"rope-{kind}": {"rope_scaling": kind, **BY_LENGTH} for kind in ROPE_SCALINGS}
WINDOW = {"attention_window": 2, "global_every": 2}
#: Test id -> encoding and options.
CASES = (
    ENCODINGS
    | {case: ("rope", options) for case, options in SCALED.items()}
    | {f"{name}-window": (name, {**OPTIONS.get(name, {}), **WINDOW}) for name in IN_ENCODERS}
)
dynamic = {"position_encoding": "rope", **SCALED["rope-dynamic"]}


@pytest.mark.parametrize(
    ("case", "backend"),
    [*((case, "auto") for case in CASES), *in_turn(CASES, BACKENDS)],
)
@torch.no_grad()
def test_a_text_alone_and_beside_longer_ones(case, backend):
    name, options = CASES[case]
    causal = not options.get("bidirectional", True)
    how = {"options": options, "attention_backend": backend, "causal": causal}
    try:
        encoder = enlarged(encoder_of(name, LENGTH, WIDTH, 3, **how), 0).eval().double()
    except BackendError:
        assert backend not in ("auto", "eager")
        return
    ids = torch.arange(4 * LENGTH).view(4, LENGTH) * 7 % 9 + 2
    x = torch.randn(4, LENGTH, WIDTH, generator=torch.Generator().manual_seed(0)).double()
    padding = torch.arange(LENGTH) >= torch.tensor(LENGTHS)[:, None]
    # All rows, of which padding is taken out, and two, in which it stays.
    for rows in ([2, 0, 3, 1], [1, 1, 0]):
        shown = slice(max(LENGTHS[row] for row in rows))
        found = encoder(x[rows, shown], padding[rows, shown], ids[rows, shown])
        for row, features in zip(rows, found, strict=True):
            own = slice(LENGTHS[row])
            alone = encoder(x[row, own][None], None, ids[row, own][None])
            assert_close(features[own], alone[0])


@pytest.mark.parametrize("arch", ["tupe_roberta", "tupe_transformer", "tupe_transformer_lm"])
@torch.no_grad()
def test_models_of_fairseq(arch):
    model = enlarged(stock(arch, **dynamic), 0).eval()
    words = targets(3, 12) if arch.endswith("lm") else sentences(3, 12)
    given = (None, targets(3, 7)) if arch == "tupe_transformer" else ()
    words[1, 9:] = PAD
    words[2, 3:] = PAD
    found = model(words, *given)[0]
    for row, length in enumerate((12, 9, 3)):
        of_row = [each if each is None else each[row : row + 1] for each in given]
        alone = model(words[row : row + 1, :length], *of_row)[0]
        assert_close(found[row, : alone.size(1)], alone[0])


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@torch.no_grad()
def test_classes_of_transformers(attention):
    hf = pytest.importorskip("tupe_fairseq.huggingface")
    model = filled(hf.TupeModel, config("rope", position_options=SCALED["rope-dynamic"]))
    model.set_attn_implementation(attention)
    ids = torch.arange(36).view(3, 12) + 4
    mask = torch.ones(3, 12, dtype=torch.int64)
    mask[1, :4] = 0
    mask[2, 3:] = 0
    found = model(ids, attention_mask=mask, output_hidden_states=True)
    for row, own in enumerate((slice(12), slice(4, 12), slice(3))):
        alone = model(ids[row : row + 1, own], output_hidden_states=True)
        for states, expected in zip(found.hidden_states, alone.hidden_states, strict=True):
            assert_close(states[row, own], expected[0])


@torch.no_grad()
def test_encodings_are_asked_once_for_each_forward_pass(monkeypatch):
    calls = []
    monkeypatch.setattr(
        PositionEncoding, "for_pass", lambda self, length, *_: calls.append(length) or self
    )
    stock("tupe_transformer", position_encoding="tupe_r")(sentences(2, 9), None, targets(2, 6))
    stock("tupe_transformer_lm", position_encoding="tupe_r")(targets(2, 7))
    TUPEEncoder(TUPEConfig(d_model=16, num_heads=2))(torch.randn(2, 5, 16))
    assert calls == [9, 6, 7, 5]
