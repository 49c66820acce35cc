"""What an encoding cannot be built for is refused in one line that names the flag."""

import sys

import pytest
import torch

from tests.tolerances import assert_close
from tupe_fairseq import UsageError, build_position_encoding

EMBED_DIM, NUM_HEADS, MAX_POSITIONS = 12, 3, 32
#: Registered name, options, what the message says.
OUT_OF_RANGE = [
    ("shaw", {"relative_clip": 0}, "--relative-clip must be at least 1, but is 0"),
    ("shaw", {"relative_clip": -1}, "--relative-clip must be at least 1, but is -1"),
    ("deberta", {"relative_clip": 0}, "--relative-clip must be at least 1, but is 0"),
    ("cnn", {"cnn_kernel": 4, "cnn_groups": 4}, "--cnn-kernel must be odd.*, but is 4"),
    ("cnn", {"cnn_kernel": -1, "cnn_groups": 4}, "--cnn-kernel must .*, but is -1"),
    ("cnn", {"cnn_groups": 16}, "--cnn-groups must divide the model width 12, but is 16"),
    ("cnn", {"cnn_groups": 0}, "--cnn-groups must .*, but is 0"),
    ("cnn", {"cnn_groups": -4}, "--cnn-groups must .*, but is -4"),
    ("floater", {"floater_steps": 0}, "--floater-steps must be at least 1, but is 0"),
    ("floater", {"floater_width": 0}, "--floater-width must .*, but is 0"),
    ("floater", {"floater_width": -1}, "--floater-width must .*, but is -1"),
    ("hierarchical", {"hierarchical_rows": 5}, "--max-positions is 32, but .* reaches 25"),
    ("hierarchical", {"hierarchical_rows": 0}, "reaches 0|--hierarchical-rows .* is 0"),
    ("hierarchical", {"hierarchical_rows": -8}, "--hierarchical-rows must .*, but is -8"),
    ("fire", {"fire_width": 0}, "--fire-width must be at least 1, but is 0"),
    ("fire", {"fire_threshold": 0}, "--fire-threshold must be at least 1, but is 0"),
    ("cape", {"cape_global_shift": -1.0}, "--cape-global-shift must .* least 0, but is -1"),
    ("cape", {"cape_local_shift": float("nan")}, "--cape-local-shift must .*, but is nan"),
    ("cape", {"cape_scale": 0.5}, "--cape-scale must be at least 1, but is 0.5"),
    ("shape", {"shape_shifts": -1}, "--shape-shifts must be at least 0, but is -1"),
    ("sandwich", {"sandwich_width": 5}, "--sandwich-width must be even .*, but is 5"),
    ("sandwich", {"sandwich_width": 0}, "--sandwich-width must be .* least 2, but is 0"),
    ("alibi", {"alibi_slopes": "steep"}, "--alibi-slopes is 'steep', but must be one of: geom"),
    ("alibi", {"alibi_sides": True, "bidirectional": False}, "--alibi-sides is about keys on the"),
    ("xpos", {}, "xpos has no form for keys on the right, which an encoder .* use it in "),
    ("cope", {}, "cope has no form for keys on the right, which an encoder .* use it in "),
    ("xpos", {"bidirectional": False, "xpos_scale_base": 0}, "--xpos-scale-base .* is 0"),
    ("cope", {"bidirectional": False, "cope_positions": 0}, "--cope-positions .* is 0"),
    ("dape", {"dape_width": 0}, "--dape-width must be at least 1, but is 0"),
    ("dape", {"dape_base": "albi"}, "--dape-base is 'albi', but there is no such encoding"),
    ("dape", {"dape_base": "rope"}, "--dape-base is 'rope', but must be an encoding that adds"),
    ("dape", {"dape_base": "none"}, "--dape-base is 'none', but must be an encoding that adds"),
    ("dape", {"dape_base": "dape"}, "--dape-base is 'dape', but must be an encoding that adds"),
    ("rope", {"rope_theta_local": -1.0, "window": 2}, "--rope-theta-local must .*, but is -1"),
    ("rope", {"rope_theta": 0.0}, "--rope-theta must .*, but is 0"),
    ("rope", {"rope_theta": -1.0}, "--rope-theta must .*, but is -1"),
]


def message_of(name, embed_dim=EMBED_DIM, **options):
    with pytest.raises(UsageError) as raised:
        build_position_encoding(name, embed_dim, NUM_HEADS, MAX_POSITIONS, **options)
    return str(raised.value)


def test_xpos_for_too_many_positions():
    with pytest.raises(UsageError, match="--xpos-scale-base 8 is too small for 4096 positions"):
        build_position_encoding("xpos", EMBED_DIM, NUM_HEADS, 4096, False, xpos_scale_base=8)


def test_xpos_in_half_precision():
    """Queries times powers of 5e8, as at 16,384 positions, would be infinite in fp16."""
    xpos = build_position_encoding("xpos", EMBED_DIM, NUM_HEADS, 16384, False)
    x = torch.ones(1, NUM_HEADS, 16384, EMBED_DIM // NUM_HEADS)
    q, k, _ = xpos.rotate(*(x.bfloat16(),) * 3)
    assert q.isfinite().all()
    assert (k != 0).any(-1).all()
    with pytest.raises(UsageError, match=r"too small for 16384 positions.*use bf16"):
        xpos.rotate(*(x.half(),) * 3)


#: The least that each option takes.
LEAST = [
    *(("cope", "cope_positions", 1), ("dape", "dape_width", 1), ("deberta", "relative_clip", 1)),
    *(("fire", "fire_width", 1), ("fire", "fire_threshold", 1), ("floater", "floater_steps", 1)),
    *(
        ("floater", "floater_width", 1),
        ("rope", "rope_skip_every", 0),
        ("shaw", "relative_clip", 1),
    ),
    *(("shape", "shape_shifts", 0), ("xpos", "xpos_scale_base", 1)),
]


@pytest.mark.parametrize(("name", "option", "least"), LEAST)
def test_the_least_is_taken(name, option, least):
    given = {"bidirectional": name == "floater", option: least}
    assert build_position_encoding(name, EMBED_DIM, 3, MAX_POSITIONS, **given) is not None


@pytest.mark.parametrize(("name", "options", "expected"), OUT_OF_RANGE)
def test_options_out_of_range(name, options, expected):
    with pytest.raises(UsageError, match=expected) as raised:
        build_position_encoding(name, EMBED_DIM, NUM_HEADS, MAX_POSITIONS, **options)
    assert "\n" not in str(raised.value)


def test_rnn_needs_two_halves():
    assert "the model width into two directions, but it is odd: 9" in message_of("rnn", 9)


def test_rope_needs_pairs():
    message = message_of("rope", embed_dim=9)
    assert "rope" in message
    assert "the head width must be even, but is 3" in message


def test_hierarchical_reaches_the_square_exactly():
    encoding = build_position_encoding("hierarchical", 12, 3, 25, hierarchical_rows=5)
    assert encoding.embed(torch.zeros(1, 25, 12)).shape == (1, 25, 12)
    assert "reaches 25" in message_of("hierarchical", hierarchical_rows=5)


def test_floater_needs_no_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchdiffeq", None)
    encoding = build_position_encoding("floater", 12, 3, 32)
    assert encoding.embed(torch.zeros(1, 5, 12)).shape == (1, 5, 12)


def test_complex_order_needs_a_vocabulary():
    assert "complex_order needs token ids" in message_of("complex_order")


@pytest.mark.parametrize("length", [5, 7], ids=["not as long as the vocabulary", "as long"])
def test_complex_order_needs_the_words(length):
    """Without ids there is no frequency to take, and none must be taken from the wrong row."""
    encoding = build_position_encoding("complex_order", 12, 3, 32, vocab_size=7)
    with pytest.raises(UsageError, match="complex_order needs token ids"):
        encoding.embed(torch.zeros(1, length, 12))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_floater_in_half_precision_at_full_length(dtype):
    """Times 0.1·k of neighbours coincide in half precision: the solver must not see them so."""
    encoding = build_position_encoding("floater", 12, 3, 512, floater_width=5)
    expected = encoding.path(512)
    found = encoding.to(dtype).path(512)
    assert_close(found, expected, torch.bfloat16)
