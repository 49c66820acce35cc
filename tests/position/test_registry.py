"""The registry of encodings, and the options that encodings declare."""

from typing import Annotated

import pytest

from tupe_fairseq import PositionEncoding, UsageError, build_position_encoding
from tupe_fairseq.position import (
    POSITION_ENCODINGS,
    Option,
    Shape,
    known_options,
    register_position_encoding,
)
from tupe_fairseq.position.learned import LearnedPosition
from tupe_fairseq.position.t5 import T5Bias
from tupe_fairseq.registry import Registry

Slope = Annotated[float, "steepness of the bias"]


class Toy(PositionEncoding):
    def __init__(
        self,
        shape: Shape,
        *,
        toy_slope: Slope = 0.5,
        num_buckets: Annotated[int, "buckets of relative positions, over both directions"] = 4,
    ):
        super().__init__(shape)
        self.toy_slope, self.num_buckets = toy_slope, num_buckets


class OtherHelp(PositionEncoding):
    def __init__(self, shape: Shape, *, num_buckets: Annotated[int, "of something else"] = 32):
        super().__init__(shape)


class OtherType(PositionEncoding):
    def __init__(
        self,
        shape: Shape,
        *,
        num_buckets: Annotated[
            float, "buckets of relative positions, over both directions"
        ] = 32.0,
    ):
        super().__init__(shape)


class NotAnnotatedInFull(PositionEncoding):
    def __init__(self, shape: Shape, *, knob: int = 3):
        super().__init__(shape)


class NotAnnotated(PositionEncoding):
    def __init__(self, shape: Shape, *, knob=3):
        super().__init__(shape)


@pytest.fixture(autouse=True)
def undo_registrations(monkeypatch):
    monkeypatch.setattr(POSITION_ENCODINGS, "_entries", dict(POSITION_ENCODINGS.items()))


def test_encodings_of_the_paper_are_registered():
    assert {"none", "learned", "t5", "tupe_a", "tupe_r"} <= set(POSITION_ENCODINGS)


def test_registered_encoding_is_built_with_its_options():
    assert "toy" not in POSITION_ENCODINGS
    assert register_position_encoding("toy")(Toy) is Toy
    assert "toy" in POSITION_ENCODINGS
    built = build_position_encoding("toy", 12, 3, 7, bidirectional=False, toy_slope=0.25)
    assert type(built) is Toy
    assert built.shape == Shape(12, 3, 7, bidirectional=False)
    assert built.shape.head_dim == 4
    assert (built.toy_slope, built.num_buckets) == (0.25, 4)


def test_duplicate_raises_and_leaves_the_first():
    with pytest.raises(ValueError, match=r"--position-encoding 'learned' is registered already"):
        register_position_encoding("learned")(Toy)
    assert POSITION_ENCODINGS["learned"] is LearnedPosition


def test_special_name_cannot_be_registered():
    registry = Registry("--flag", special=("auto",))
    with pytest.raises(ValueError, match="--flag 'auto'"):
        registry.register("auto")(Toy)
    assert "auto" not in registry
    assert registry.names() == ["auto"]


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(UsageError, match="--position-encoding is 'tupe'") as raised:
        build_position_encoding("tupe", 12, 3, 7)
    for name in POSITION_ENCODINGS:
        assert name in str(raised.value)


def test_names_are_sorted():
    registry = Registry("--flag")
    for name in ("b", "a"):
        registry.register(name)(name.upper())
    assert list(registry) == ["a", "b"]
    assert dict(registry.items()) == {"a": "A", "b": "B"}


def test_heads_must_divide_the_width():
    with pytest.raises(UsageError, match="5 heads do not divide 12"):
        build_position_encoding("none", 12, 5, 7)


def test_options_are_the_annotated_keyword_arguments():
    slope, buckets = Toy.options()
    assert slope == Option("toy_slope", float, 0.5, "steepness of the bias")
    assert slope.flag == "--toy-slope"
    assert (buckets.name, buckets.default) == ("num_buckets", 4)
    assert PositionEncoding.options() == ()


@pytest.mark.parametrize("hint", [Annotated[float | None, "a help"], Annotated[float, "a help"]])
def test_an_option_need_not_be_given(hint):
    """Python 3.10 reads the type of an argument whose default is None as Optional[type]."""

    class MayBeNone(PositionEncoding):
        def __init__(self, shape: Shape, *, here: hint = None, in_3_10: hint | None = None):
            super().__init__(shape)

    assert [option.type for option in MayBeNone.options()] == [float, float]


def test_options_of_the_paper_reach_the_command_line():
    options = known_options()
    assert options["tie_cls"].type is bool
    assert options["tie_cls"].default is False
    assert (options["num_buckets"].default, options["max_distance"].default) == (32, 128)
    for option in options.values():
        assert option.help, option.name


def test_shared_option_may_have_its_own_default():
    register_position_encoding("toy")(Toy)
    assert known_options()["toy_slope"].default == 0.5


@pytest.mark.parametrize("cls", [OtherHelp, OtherType])
def test_shared_option_must_have_one_meaning(cls):
    register_position_encoding("toy")(cls)
    with pytest.raises(TypeError, match=r"declares --num-buckets unlike another encoding"):
        known_options()


@pytest.mark.parametrize("cls", [NotAnnotatedInFull, NotAnnotated])
def test_option_without_help_is_told_how_to_get_one(cls):
    with pytest.raises(TypeError, match=f"{cls.__name__}: annotate option 'knob' as Annotated"):
        cls.options()


def test_uses_tells_overridden_hooks():
    assert LearnedPosition.uses("embed")
    assert not LearnedPosition.uses("attention_bias")
    assert T5Bias.uses("attention_bias")
    hooks = ("embed", "rotate", "attention_bias", "build_layer_terms", "before_lm_head")
    assert not any(Toy.uses(hook) for hook in hooks)
