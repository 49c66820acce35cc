"""Trained position tables continued by hierarchical decomposition (--extend-positions)."""

import pytest
import torch

from tests.attention.cases import enlarged
from tests.reference import hierarchical
from tests.tolerances import FORWARD, assert_close, error
from tupe_fairseq import UsageError, build_position_encoding
from tupe_fairseq.position.hierarchical import extend

TRAINED = 5
LONGER = 16
PREFIX = "encoder.embed_positions."
#: Registered name, options, row of the first position that has one.
CASES = {
    "learned": ("learned", {}, {"weight": 2}),
    "multiplicative": ("multiplicative", {}, {"weight": 0}),
    "tupe_a": ("tupe_a", {}, {"weight": 2}),
    "tupe_r-tie_cls": ("tupe_r", {"tie_cls": True}, {"weight": 0}),
    "deberta-emd": ("deberta", {"deberta_emd": True, "relative_clip": 3}, {"absolute": 0}),
    "deberta-absolute": (
        "deberta",
        {"deberta_absolute": True, "relative_clip": 3},
        {"absolute_input": 0},
    ),
}


def build(case, max_positions, **options):
    name, more, _ = CASES[case]
    return enlarged(build_position_encoding(name, 12, 3, max_positions, **more, **options), 1)


def saved(encoding):
    return {PREFIX + name: tensor.clone() for name, tensor in encoding.state_dict().items()}


def extended(case, positions=LONGER, dtype=torch.float32):
    """State dicts of the trained encoding, before and after its extension."""
    trained = build(case, TRAINED).to(dtype)
    before = saved(trained)
    state = saved(trained)
    extend(build(case, positions).to(dtype), state, PREFIX)
    return before, state


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_tables_go_on_by_the_decomposition(case, dtype):
    longer = build(case, LONGER).to(dtype)
    tables = CASES[case][2]
    assert longer.position_tables() == tables
    before, state = extended(case, LONGER, dtype)
    for key, old in before.items():
        new = state[key]
        first = tables.get(key.removeprefix(PREFIX))
        assert new.dtype == dtype
        assert torch.equal(new[: len(old)], old), "what was trained stays, to the last bit"
        if first is None:
            assert new.shape == old.shape
            continue
        q = hierarchical.decompose(old[first:].double())
        for row in range(len(old), len(new)):
            assert_close(new[row], q[row - first + 1])
    longer.load_state_dict({k.removeprefix(PREFIX): v for k, v in state.items()})


def test_half_precision_is_rounded_once():
    """At the end: no further from the exact rows than those are when written in bfloat16."""
    before, state = extended("multiplicative", dtype=torch.bfloat16)
    trained = before[PREFIX + "weight"].double()
    exact = torch.stack(list(hierarchical.decompose(trained).values()))[:LONGER]
    unavoidable = error(exact.bfloat16(), exact, scale=1)
    found = error(state[PREFIX + "weight"], exact, scale=1)
    assert found <= unavoidable + FORWARD[torch.float32]


@pytest.mark.parametrize("positions", [TRAINED, TRAINED - 1])
@pytest.mark.parametrize("case", CASES)
def test_nothing_changes_where_nothing_is_missing(case, positions):
    before, state = extended(case, positions)
    assert state.keys() == before.keys()
    assert all(torch.equal(state[key], before[key]) for key in before)


def test_other_keys_are_left_alone():
    state = {"decoder.weight": torch.zeros(3, 2)}
    extend(build("learned", LONGER), state, PREFIX)
    assert [*state] == ["decoder.weight"]


@pytest.mark.parametrize("case", CASES)
def test_no_more_than_the_square(case):
    """The message has --max-positions, whatever rows an encoding has for it."""
    rows = TRAINED - (case == "tupe_a")
    extended(case, rows**2)
    message = f"--max-positions is 100, but hierarchical decomposition of {rows} positions reaches"
    with pytest.raises(UsageError, match=message):
        extended(case, 100)
