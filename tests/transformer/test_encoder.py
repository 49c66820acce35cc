"""`TUPEEncoder`, used without fairseq; hooks and tracing: tests/huggingface."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.attention.cases import EMBED_DIM, IN_ENCODERS, encoder_of, enlarged, normal
from tests.tolerances import assert_close
from tupe_fairseq import TUPEConfig, TUPEEncoder, UsageError, build_position_encoding
from tupe_fairseq.base.errors import DataError

BUCKETS = {"num_buckets": 8, "max_distance": 6}
SMALL = TUPEConfig(num_layers=2, num_heads=2, d_model=16, max_len=12, dropout=0.0, **BUCKETS)


def build(**changes):
    return TUPEEncoder(replace(SMALL, **changes))


def vectors(batch=2, length=12):
    return normal(batch, length, 16, seed=2)


def test_defaults():
    sizes = {"num_layers": 6, "num_heads": 8, "d_model": 128, "max_len": 256}
    relative = {"relative_bias": True, "bidirectional_bias": True}
    relative |= {"num_buckets": 32, "max_distance": 128}
    told = TUPEConfig(**sizes, **relative, dropout=0.1, expansion_factor=1)
    assert told == TUPEConfig()
    assert told.d_head == 16


def test_config_reaches_every_part():
    encoder = build(dropout=0.25, expansion_factor=3)
    assert encoder(vectors()).shape == (2, 12, 16)
    assert len(encoder.layers) == 2
    assert encoder.layers[0].fc1.out_features == 48
    assert {m.p for m in encoder.modules() if isinstance(m, nn.Dropout)} == {0.0, 0.25}
    assert {layer.self_attn.dropout for layer in encoder.layers} == {0.25}


@pytest.mark.parametrize(
    ("changes", "name", "options"),
    [
        ({}, "tupe_r", {"tie_cls": True, **BUCKETS}),
        ({"relative_bias": False}, "tupe_a", {"tie_cls": True}),
        ({"untie_cls": True}, "tupe_r", {"tie_cls": False, **BUCKETS}),
        (
            {"bidirectional_bias": False, "num_buckets": 5},
            "tupe_r",
            {"tie_cls": True, "bidirectional": False, "num_buckets": 5, "max_distance": 6},
        ),
    ],
    ids=str,
)
def test_config_selects_the_encoding(changes, name, options):
    expected = enlarged(build_position_encoding(name, 16, 2, 12, **options), 1)
    positions = build(**changes).embed_positions
    positions.load_state_dict(expected.state_dict())
    assert torch.equal(
        positions.attention_bias(12, 12).dense(), expected.attention_bias(12, 12).dense()
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": 3}, "must divide the model width, but 3 heads"),
        ({"num_heads": 0}, "must divide the model width, but 0 heads"),
        ({"num_buckets": 13}, "--num-buckets must be even, but is 13"),
        ({"attention_backend": "fast"}, "is 'fast', but the known ones are: auto, blocked, ea"),
    ],
)
def test_invalid_configs(changes, message):
    with pytest.raises(UsageError, match=message):
        build(**changes)


@pytest.mark.parametrize("columns", [[0, 1], [4], [3, 4, 5], [1, 8]])
def test_padding_before_a_token_is_refused(columns):
    """Padding is taken out by the number of tokens alone: results would be wrong."""
    mask = torch.zeros(2, 12, dtype=torch.bool)
    mask[1, columns] = True
    with pytest.raises(UsageError, match="padding precedes a token: pad on the right"):
        build()(vectors(), mask)


RELEASED = {"deberta_released": True, "relative_clip": 3}


@pytest.mark.parametrize(
    ("name", "options", "is_served"),
    [
        *((name, {}, False) for name in IN_ENCODERS),
        ("deberta", RELEASED, True),
        ("deberta", {**RELEASED, "deberta_released": False}, False),
        ("deberta", {**RELEASED, "deberta_emd": True}, False),
        ("deberta", {**RELEASED, "deberta_absolute": True}, False),
        ("deberta", {**RELEASED, "bidirectional": False}, False),
    ],
)
@torch.no_grad()
def test_texts_of_more_tokens_than_positions(name, options, is_served):
    """Only DeBERTa in an encoder, as released, takes them."""
    encoder = encoder_of(name, 5, options=options, causal=not options.get("bidirectional", True))
    x = normal(1, 6, EMBED_DIM, seed=0)
    ids = torch.full((1, 6), 3)
    if is_served:
        assert encoder(x, tokens=ids).isfinite().all()
    else:
        with pytest.raises(UsageError, match=r"6 tokens, but --max-positions \(max_len\) is 5"):
            encoder(x, tokens=ids)


@pytest.mark.parametrize("backend", ["auto", "blocked", "eager", "sdpa"])
def test_an_empty_batch(backend):
    encoder = build(attention_backend=backend)
    for mask in (None, torch.zeros(0, 12, dtype=torch.bool)):
        assert encoder(vectors(batch=0), mask).shape == (0, 12, 16)


def test_projections_without_a_bias():
    encoder = build()
    other = build()
    for each in (encoder, other):
        each.load_state_dict(enlarged(build(), 1).state_dict())
    own = other.layers[0].self_attn
    weight = encoder.layers[0].self_attn.k_proj.weight
    nn.init.zeros_(encoder.layers[0].self_attn.k_proj.bias)
    own.k_proj = nn.Linear(16, 16, bias=False)
    own.k_proj.weight = weight
    assert_close(other(vectors()), encoder(vectors()))


def test_lengths_without_a_position_are_refused():
    with pytest.raises(UsageError, match="a sequence has no tokens"):
        build()(vectors(length=0))
    with pytest.raises(UsageError, match=r"13 tokens, but .*max_len\) is 12"):
        build()(vectors(length=13))


def test_layerdrop_skips_layers_in_training_only():
    encoder, whole = (
        enlarged(encoder_of("tupe_a", 12, 16, 2, **more), 1) for more in ({"layerdrop": 1.0}, {})
    )
    assert_close(encoder.train()(vectors()), vectors())
    assert_close(encoder.eval()(vectors()), whole.eval()(vectors()))


def test_checkpointed_layers_run_twice():
    """What they compute is the same: tests/test_contract.py."""
    encoder = encoder_of("tupe_a", 12, 16, 2, checkpoint_activations=True)
    runs = []
    for layer in encoder.layers:
        layer.self_attn.register_forward_hook(lambda *_: runs.append(None))
    encoder(vectors()).sum().backward()
    assert len(runs) == 4


WITHOUT_FAIRSEQ = """
import sys
sys.modules["fairseq"] = sys.modules["fairseq_cli"] = None  # as if not installed
import torch
from tupe_fairseq import TUPEConfig, TUPEEncoder
assert TUPEEncoder(TUPEConfig())(torch.randn(8, 100, 128)).shape == (8, 100, 128)
assert not [name for name in sys.modules if name.startswith(("fairseq.", "fairseq_cli."))]
assert "tupe_fairseq.fairseq.models" not in sys.modules
"""


def test_needs_torch_only():
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_FAIRSEQ], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert not done.stdout, "the import must not print"


@pytest.mark.parametrize(
    "mask",
    [
        torch.zeros(2, 11, dtype=torch.bool),
        torch.zeros(1, 12, dtype=torch.bool),
        torch.zeros(2, 12, dtype=torch.int64),
        torch.ones(2, 12),
    ],
    ids=["short", "of-one-row", "int64", "float"],
)
def test_masks_of_another_shape_or_type_are_refused(mask):
    message = r"padding_mask is .*, but must be torch.bool of shape \(2, 12\)"
    with pytest.raises(DataError, match=message):
        build()(vectors(), mask)
