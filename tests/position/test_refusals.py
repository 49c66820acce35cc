"""What an encoding cannot be built for is refused in one line that names the flag."""

import pytest
import torch

from tests.tolerances import assert_close
from tupe_fairseq import UsageError, build_position_encoding
from tupe_fairseq.position import POSITION_ENCODINGS

EMBED_DIM = 12
NUM_HEADS = 3
MAX_POSITIONS = 32
#: The least value of each option that has one.
LEAST = [
    ("cape", "cape_global_shift", 0),
    ("cape", "cape_local_shift", 0),
    ("cape", "cape_scale", 1),
    ("deberta", "relative_clip", 1),
    ("deberta", "deberta_dropout", 0),
    ("fire", "fire_width", 1),
    ("fire", "fire_threshold", 1),
    ("floater", "floater_steps", 1),
    ("floater", "floater_width", 1),
    ("hierarchical", "hierarchical_rows", 6),
    ("rope", "rope_skip_every", 0),
    ("shape", "shape_shifts", 0),
    ("shaw", "relative_clip", 1),
    ("xpos", "xpos_scale_base", 1),
]
LONG = {"extend_positions": "toeplitz", "trained_positions": 6}
#: Registered name, options, what the message says.
REFUSED = [
    ("cape", {"cape_local_shift": float("nan")}, "--cape-local-shift must .*, but is nan"),
    ("cnn", {"cnn_kernel": 4, "cnn_groups": 4}, "--cnn-kernel must be odd.*, but is 4"),
    ("cnn", {"cnn_kernel": -1, "cnn_groups": 4}, "--cnn-kernel must .*, but is -1"),
    ("cnn", {"cnn_groups": 16}, "--cnn-groups must divide the model width 12, but is 16"),
    ("cnn", {"cnn_groups": 0}, "--cnn-groups must .*, but is 0"),
    ("complex_order", {}, "complex_order needs token ids"),
    ("deberta", {"deberta_terms": "p2p"}, "--deberta-terms is 'p2p', but must be one of: c2p"),
    ("deberta", {"deberta_buckets": 1}, "--deberta-buckets is 1, but must be"),
    ("deberta", {"deberta_buckets": 12, "relative_clip": 7}, "--relative-clip is 7"),
    ("deberta", {"deberta_dropout": 1.0}, "--deberta-dropout is 1.0, but must be"),
    ("hierarchical", {"hierarchical_rows": -8}, "--hierarchical-rows must .*, but is -8"),
    ("sandwich", {"sandwich_width": 5}, "--sandwich-width must be even .*, but is 5"),
    ("sandwich", {"sandwich_width": 0}, "--sandwich-width must be .* least 2, but is 0"),
    ("alibi", {"alibi_slopes": "steep"}, "--alibi-slopes is 'steep', but must be one of: geom"),
    ("alibi", {"alibi_sides": True, "bidirectional": False}, "--alibi-sides changes the bias of"),
    ("xpos", {}, "xpos is for decoders only, .* use it in "),
    ("tupe_a", {"toeplitz_slope": -0.5}, "--toeplitz-slope must be at least 0, but is -0.5"),
    (
        "tupe_r",
        {"toeplitz_slope": float("nan")},
        "-slope must be at least 0, but is nan",
    ),
    ("tupe_r", LONG | {"trained_positions": 33}, "-positions is 33, .* --max-positions, .* 32"),
    ("tupe_r", LONG | {"trained_positions": 2}, "-positions is 2, but must be at least 3"),
    ("tupe_r", LONG | {"toeplitz_far": 5}, "-far is 5, but must be at least 1 and below 5"),
    ("tupe_r", LONG | {"toeplitz_far": 0}, "--toeplitz-far is 0"),
    ("rope", {"rope_theta_local": 10.0}, "--rope-theta-local .* needs --attention-window"),
    (
        "rope",
        {"rope_theta_local": -1.0, "attention_window": 2},
        "--rope-theta-local must .*, but is -1",
    ),
    ("rope", {"rope_skip_every": 1}, "--rope-skip-every is 1, but then no layer rotates"),
    (
        "rope",
        {"rope_theta_local": 10.0, "attention_window": 2},
        "--rope-theta-local .* without --global-every all layers are local",
    ),
    ("rope", {"rope_theta": 0.0}, "--rope-theta must .*, but is 0"),
    ("rope", {"rope_theta": -1.0}, "--rope-theta must .*, but is -1"),
    ("rope", {"rope_theta": float("inf")}, "--rope-theta must .*, but is inf"),
    (
        "rope",
        {"rope_theta_local": float("inf"), "attention_window": 2},
        "--rope-theta-local .* is inf",
    ),
    ("pope", {"rope_theta": float("inf")}, "--rope-theta must .*, but is inf"),
    ("xpos", {"rope_theta": float("inf"), "bidirectional": False}, "--rope-theta .* is inf"),
    ("pope", {"rope_theta": 0.0}, "--rope-theta must .*, but is 0"),
    ("rope", {"embed_dim": 9}, "rope rotates pairs: the head width must be even, but is 3"),
    ("rnn", {"embed_dim": 9}, "the model width into two directions, but it is odd: 9"),
    (
        "learned",
        {"extend_positions": "no"},
        "--extend-positions is 'no', but must be one of: hier",
    ),
    ("learned", {"extend_positions": "toeplitz"}, "tupe_a and tupe_r, but the encoding"),
    ("none", {"num_heads": 5}, "5 heads do not divide 12"),
]


def build(name, **options):
    sizes = {"embed_dim": EMBED_DIM, "num_heads": NUM_HEADS, "max_positions": MAX_POSITIONS}
    return build_position_encoding(name, **sizes | options)


@pytest.mark.parametrize(("name", "options", "expected"), REFUSED)
def test_refused_in_one_line(name, options, expected):
    with pytest.raises(UsageError, match=expected) as raised:
        build(name, **options)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("name", "option", "least"), LEAST)
def test_the_least_value_is_accepted_and_less_refused(name, option, least):
    sides = not POSITION_ENCODINGS[name].causal_only
    assert build(name, bidirectional=sides, **{option: least}) is not None
    # hierarchical names the number of positions that the rows reach.
    expected = {
        "hierarchical_rows": "--max-positions is 32, but .* of 5 positions reaches 25",
    }.get(option, f"--{option.replace('_', '-')} must be at least {least}, but is {least - 1}")
    with pytest.raises(UsageError, match=expected):
        build(name, bidirectional=sides, **{option: least - 1})


def test_xpos_for_too_many_positions():
    with pytest.raises(UsageError, match="--xpos-scale-base 8 is too small for 4096 positions"):
        build("xpos", max_positions=4096, bidirectional=False, xpos_scale_base=8)


def test_xpos_in_half_precision():
    """Queries times powers of 5e8, as at 16,384 positions, would be infinite in fp16."""
    xpos = build("xpos", max_positions=16384, bidirectional=False)
    x = torch.ones(1, NUM_HEADS, 16384, EMBED_DIM // NUM_HEADS)
    q, k, _ = xpos.rotate(*(x.bfloat16(),) * 3)
    assert q.isfinite().all()
    assert (k != 0).any(-1).all()
    with pytest.raises(UsageError, match=r"too small for 16384 positions.*use bf16"):
        xpos.rotate(*(x.half(),) * 3)


def test_complex_order_needs_the_words():
    """As many as the vocabulary has: none must be taken from the wrong row."""
    encoding = build("complex_order", vocab_size=7)
    with pytest.raises(UsageError, match="complex_order needs token ids"):
        encoding.embed(torch.zeros(1, 7, EMBED_DIM))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_floater_in_half_precision_at_full_length(dtype):
    """Times 0.1·k of neighbours coincide in half precision: the solver must not see them so."""
    encoding = build("floater", max_positions=512, floater_width=5)
    expected = encoding.path(512)
    found = encoding.to(dtype).path(512)
    assert_close(found, expected, torch.bfloat16)
