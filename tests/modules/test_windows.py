"""--attention-window and --global-every: the hidden keys, the layers, and what is refused."""

from argparse import Namespace

import pytest
import torch
from omegaconf import OmegaConf

from tests.attention.cases import (
    BACKENDS,
    EMBED_DIM,
    IN_ENCODERS,
    NUM_HEADS,
    OPTIONS,
    VOCAB_SIZE,
    build,
    gradients,
    layer_values,
    normal,
    padding_mask,
    run,
    run_with_weights,
    served,
    words,
)
from tests.tolerances import assert_close, assert_gradients_close
from tests.toy_data import Task
from tupe_fairseq import UsageError, build_position_encoding
from tupe_fairseq.arguments.completion import completed
from tupe_fairseq.arguments.roberta import ROBERTA
from tupe_fairseq.attention import Feature
from tupe_fairseq.attention.backend import ATTENTION_BACKENDS
from tupe_fairseq.models.tupe_roberta import TupeRobertaModel
from tupe_fairseq.models.tupe_transformer import TupeTransformerModel
from tupe_fairseq.modules.stack import positions_of_layers
from tupe_fairseq.position import POSITION_ENCODINGS

LENGTH, WINDOW = 9, 3


TIED = ("tupe_a-tie_cls", "tupe_r-tie_cls")
#: FLOATER's solver takes other steps in float64; its attention is that of `learned`.
WITH_WINDOWS = [
    (backend, case)
    for backend, case in served(BACKENDS, [*sorted(set(POSITION_ENCODINGS) - {"floater"}), *TIED])
    if Feature.WINDOW in ATTENTION_BACKENDS[backend].supports
]


def by_renormalised_weights(encoding, attention, x, padding):
    """The weights of full attention, those beyond the window set to 0, divided by their sum."""
    _, weights = run_with_weights(encoding, attention, x, padding)
    x = encoding.embed(x, words(x), padding)
    near = [[float(abs(i - j) <= WINDOW) for j in range(LENGTH)] for i in range(LENGTH)]
    near = torch.tensor(near, dtype=x.dtype)
    if encoding.untie_cls:
        # An untied [CLS] stays visible, and sees all.
        near[0] = near[:, 0] = 1
    weights = weights * near
    weights = weights / weights.sum(-1, keepdim=True)
    if encoding.multiplies_weights:
        weights = weights * encoding.attention_bias(LENGTH, LENGTH).factors().dense()
    # B×T×C -> B×H×T×D
    v = attention.v_proj(x).unflatten(-1, (NUM_HEADS, -1)).transpose(1, 2)
    out = weights @ v
    if attention.layer_terms is not None and attention.layer_terms.has_values:
        out = out + layer_values(attention.layer_terms, weights, encoding)
    return attention.out_proj(out.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("padding", [None, padding_mask(LENGTH, 0, 3)], ids=["full", "padded"])
@pytest.mark.parametrize(("backend", "case"), WITH_WINDOWS)
def test_keys_beyond_the_window_have_no_weight(backend, case, padding):
    encoding, attention = build(case, LENGTH)
    x = normal(2, LENGTH, EMBED_DIM, seed=0).requires_grad_()
    tokens = torch.ones(2, LENGTH, 1) if padding is None else (~padding)[:, :, None].float()
    found = tokens * run(encoding, attention, x, padding, backend=backend, window=WINDOW)
    exact, exact_attention = build(case, LENGTH, torch.float64)
    wide = x.detach().double().requires_grad_()
    expected = tokens * by_renormalised_weights(exact, exact_attention, wide, padding)
    assert_close(found, expected)
    assert_gradients_close(
        gradients(found, x, encoding, attention),
        gradients(expected, wide, exact, exact_attention),
        torch.float32,
    )


def test_encoders_of_the_registry_have_windows_in_local_layers():
    for name in IN_ENCODERS:
        encoding = build_position_encoding(
            name, EMBED_DIM, NUM_HEADS, LENGTH, vocab_size=VOCAB_SIZE, num_layers=4,
            attention_window=WINDOW, global_every=3, **OPTIONS.get(name, {}),
        )  # fmt: skip
        windows = [window for _, window in positions_of_layers(encoding, 4)]
        assert windows == [None, WINDOW, WINDOW, None], name


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"attention_window": 0}, "--attention-window is 0, but must be at least 1"),
        ({"attention_window": -2}, "--attention-window is -2, but must be at least 1"),
        (
            {"attention_window": 2, "global_every": 1},
            "--global-every is 1, but must be",
        ),
        ({"attention_window": 2, "global_every": -1}, "--global-every is -1, but must be"),
        ({"global_every": 3}, "--global-every is 3, but without --attention-window all layers"),
    ],
)
def test_windows_without_a_meaning(given, message):
    for model in (TupeRobertaModel, TupeTransformerModel):
        for args in (Namespace(**given), OmegaConf.create(given)):
            with pytest.raises(UsageError, match=message) as raised:
                model.build_model(args, Task())
            assert "\n" not in str(raised.value)
    with pytest.raises(UsageError, match=message):
        build_position_encoding("tupe_r", 8, 2, LENGTH, **given)


@pytest.mark.parametrize(
    ("kept", "fits"), [("0,1,2", True), ("0,2,4", True), ("0,3", False), ("1,2", False)]
)
def test_pruning_keeps_layers_local_and_global(kept, fits):
    """With 3, layers 0, 3, ... are global; those that remain are counted anew."""
    given = {"attention_window": 2, "global_every": 3, "encoder_layers_to_keep": kept}
    if fits:
        assert completed(ROBERTA, Namespace(**given), Task()).encoder_layers_to_keep == kept
        return
    with pytest.raises(UsageError, match=f"--encoder-layers-to-keep is {kept}, but with"):
        completed(ROBERTA, Namespace(**given), Task())


@pytest.mark.parametrize(
    ("kept", "message"),
    [("0,1,5", None), ("0,1,3,4", "with --rope-skip-every 3"), ("0,x", "must be numbers")],
)
def test_pruning_keeps_layers_with_and_without_rotation(kept, message):
    """With 3, layers 2, 5, ... counted from 0 do not rotate."""
    given = {"position_encoding": "rope", "rope_skip_every": 3, "encoder_layers_to_keep": kept}
    if message is None:
        assert completed(ROBERTA, Namespace(**given), Task()).encoder_layers_to_keep == kept
        return
    with pytest.raises(UsageError, match=f"^--encoder-layers-to-keep .*{message}"):
        completed(ROBERTA, Namespace(**given), Task())
