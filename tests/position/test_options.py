"""Every option has an effect, alone or with another; where it has none, it is refused or said."""

import pytest
import torch

from tests.attention.cases import IN_ENCODERS, encoder_of, enlarged, normal
from tupe_fairseq import UsageError
from tupe_fairseq.base.options import declared_options
from tupe_fairseq.position import POSITION_ENCODINGS
from tupe_fairseq.position.model_options import model_options
from tupe_fairseq.transformer.layer_options import LayerOptions

LENGTH = 16
WIDTH = 24
HEADS = 3
#: Values of options that cannot have just any.
VALUES = {
    "alibi_slopes": "official",
    "cape_scale": 1.5,
    "cnn_kernel": 5,
    "cnn_groups": 6,
    "deberta_dropout": 0.5,
    "deberta_terms": "c2p",
    "global_every": 2,
    "gated_ffn": "swiglu",
    "hierarchical_rank": 3,
    "max_distance": 40,
    "norm": "rms",
    "num_buckets": 12,
    "relative_clip": 5,
    "rope_fraction": 0.5,
    "rope_scaling": "linear",
    "rope_skip_every": 2,
    "sandwich_width": 8,
    "toeplitz_far": 2,
}
SCALED = {"rope_scaling": "dynamic", "rope_scaling_factor": 4.0}
CONTINUED = {"extend_positions": "toeplitz", "trained_positions": 8}
#: What gives an option its effect.
PARTNERS = {
    "extend_positions": {"trained_positions": 8},
    "global_every": {"attention_window": 2},
    "rope_original_positions": SCALED,
    "rope_proportional": {"rope_fraction": 0.5},
    "rope_scaling": {"rope_original_positions": 4},
    "rope_scaling_factor": SCALED,
    "rope_theta_local": {"attention_window": 2, "global_every": 2},
    "toeplitz_far": CONTINUED,
    "toeplitz_slope": CONTINUED,
    "trained_positions": {"extend_positions": "toeplitz"},
}
EVERY = [(name, each) for name, cls in POSITION_ENCODINGS.items() for each in cls.options()]
EVERY += [(name, each) for name in IN_ENCODERS for each in model_options()]
every_option = pytest.mark.parametrize(
    ("name", "option"), EVERY, ids=lambda each: each if isinstance(each, str) else each.name
)


def value_of(option):
    """Another value than the default."""
    if option.name == "extend_positions":
        return "toeplitz"
    if option.name in VALUES:
        return VALUES[option.name]
    if option.type is bool:
        return not option.default
    return (option.default or 0) + option.type(3)


def behaviour(name: str, options: dict) -> list[torch.Tensor]:
    """Initial values, and outputs in evaluation and in training, of an encoder or a decoder."""
    causal = POSITION_ENCODINGS[name].causal_only
    torch.manual_seed(0)
    given = {"bidirectional": not causal, **options}
    stack = encoder_of(name, LENGTH, WIDTH, HEADS, given, causal=causal)
    found = [each.detach().clone() for each in stack.parameters()]
    stack = enlarged(stack, 0)
    x = normal(2, LENGTH, WIDTH, seed=1)
    ids = torch.arange(2 * LENGTH).view(2, -1) % 9 + 2
    for mode in (False, True):
        torch.manual_seed(0)
        out = stack.train(mode)(x, tokens=ids)
        found.append(stack.embed_positions.before_lm_head(out).detach())
    return found


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


@every_option
def test_an_option_changes_the_model(name, option):
    partner = PARTNERS.get(option.name, {})
    changed = {**partner, option.name: value_of(option)}
    if option.name == "extend_positions" and not POSITION_ENCODINGS[name].continues_by_distance:
        # `hierarchical` acts on checkpoints that are loaded: test_extend.py.
        with pytest.raises(UsageError, match="toeplitz is only for"):
            behaviour(name, {option.name: "toeplitz"})
        return
    assert not same(behaviour(name, partner), behaviour(name, changed))


@every_option
def test_an_option_without_effect_is_refused_or_said(name, option, caplog):
    """Alone, where another gives it its effect.

    Except --extend-positions, which acts on checkpoints that are loaded.
    """
    if option.name == "extend_positions":
        return
    plain = behaviour(name, {})
    try:
        changed = behaviour(name, {option.name: value_of(option)})
    except UsageError as error:
        said = [str(error)]
    else:
        said = caplog.messages
        if not same(plain, changed):
            return
    assert len(said) == 1
    assert option.flag in said[0]


@pytest.mark.parametrize("option", declared_options(LayerOptions), ids=lambda each: each.name)
def test_an_option_of_layers_changes_them(option):
    changed = LayerOptions(**{option.name: value_of(option)})
    one, other = (
        enlarged(encoder_of("none", 5, normalize_before=True, layer_options=options), 0)
        for options in (LayerOptions(), changed)
    )
    x = normal(1, 5, 12, seed=1)
    assert not torch.equal(one(x), other(x))
