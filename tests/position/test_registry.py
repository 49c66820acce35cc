"""The registry of encodings, and the options that encodings declare."""

from argparse import ArgumentParser
from typing import Annotated

import pytest

from tupe_fairseq import (
    PositionEncoding,
    TupeRobertaModel,
    UsageError,
    build_position_encoding,
)
from tupe_fairseq.base.registry import Registry
from tupe_fairseq.position import (
    POSITION_ENCODINGS,
    Option,
    Shape,
    known_options,
    register_position_encoding,
)
from tupe_fairseq.position.learned import LearnedPosition

BUCKETS = "buckets of relative positions, over both directions"


class Toy(PositionEncoding):
    def __init__(
        self,
        shape: Shape,
        *,
        toy_slope: Annotated[float, "steepness of the bias"] = 0.5,
        num_buckets: Annotated[int, BUCKETS] = 4,
    ):
        super().__init__(shape)
        self.toy_slope = toy_slope
        self.num_buckets = num_buckets


def with_option(hint, default=None):
    """An encoding that declares `num_buckets` with this annotation."""

    class Declares(PositionEncoding):
        def __init__(self, shape: Shape, *, num_buckets: hint = default):
            super().__init__(shape)

    return Declares


@pytest.fixture(autouse=True)
def undo_registrations(monkeypatch):
    monkeypatch.setattr(POSITION_ENCODINGS, "_entries", dict(POSITION_ENCODINGS.items()))


def test_registered_encoding_is_built_with_its_options():
    """An option that others declare, too, may have its own default."""
    assert "toy" not in POSITION_ENCODINGS
    assert register_position_encoding("toy")(Toy) is Toy
    built = build_position_encoding("toy", 12, 3, 7, bidirectional=False, toy_slope=0.25)
    assert type(built) is Toy
    assert built.shape == Shape(12, 3, 7, bidirectional=False)
    assert built.shape.head_dim == 4
    assert (built.toy_slope, built.num_buckets) == (0.25, 4)
    assert known_options()["toy_slope"].default == 0.5


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
    assert dict(registry.items()) == {"a": "A", "b": "B"}
    assert list(registry) == ["a", "b"]


def test_options_are_the_annotated_keyword_arguments():
    slope, buckets = Toy.options()
    assert slope == Option("toy_slope", float, 0.5, "steepness of the bias")
    assert slope.flag == "--toy-slope"
    assert (buckets.name, buckets.default) == ("num_buckets", 4)
    assert PositionEncoding.options() == ()


@pytest.mark.parametrize("hint", [Annotated[int | None, "help"], Annotated[int, "help"] | None])
def test_an_option_need_not_be_given(hint):
    """Python 3.10 reads the type of an argument whose default is None as Optional[type]."""
    assert with_option(hint).options()[0].type is int


@pytest.mark.parametrize("hint", [Annotated[int, "of something else"], Annotated[float, BUCKETS]])
def test_shared_option_must_have_one_meaning(hint):
    register_position_encoding("toy")(with_option(hint, 32))
    with pytest.raises(TypeError, match=r"declares --num-buckets unlike another encoding"):
        known_options()


def test_an_option_is_not_called_as_a_flag_of_models():
    class Declares(PositionEncoding):
        def __init__(self, shape: Shape, *, dropout: Annotated[float, "of the bias"] = 0.0):
            super().__init__(shape)

    register_position_encoding("toy")(Declares)
    with pytest.raises(UsageError, match="--dropout is a flag already: give this option"):
        TupeRobertaModel.add_args(ArgumentParser())


def test_option_without_help_is_told_how_to_get_one():
    with pytest.raises(TypeError, match="Declares: annotate option 'num_buckets' as Annotated"):
        with_option(int).options()
