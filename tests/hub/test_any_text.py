"""The hub's verbs on any text: an answer or one clear line, never a traceback."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.hub.test_hub import pretrained, text  # noqa: F401  (fixtures)
from tupe_fairseq import TupeRobertaModel, UsageError

#: All of Unicode, lone surrogates too, as they come from file names and broken JSON; and what has
#: a meaning to somebody: line ends, NUL, marks of order, special symbols.
SPECIAL = [
    "<mask>",
    "<s>",
    "</s>",
    "<pad>",
    "<unk>",
    "▁",
    "\x00",
    "\u2028",
    "\ufeff",
    "\ud800",
    "️",
]
pieces = st.one_of(st.characters(exclude_categories=[]), st.sampled_from(SPECIAL), st.just(" "))
any_text = st.lists(pieces, max_size=40).map("".join)


@pytest.fixture(scope="module")
def roberta(pretrained):  # noqa: F811
    loaded = TupeRobertaModel.from_pretrained(pretrained)
    loaded.register_classification_head("topic", num_classes=3)
    return loaded


def answer(call):
    """What a call gives, or None where it is refused in one line."""
    try:
        return call()
    except UsageError as error:
        told = str(error)
    assert "\n" not in told
    assert len(told) < 1000
    return None


@settings(deadline=None, max_examples=150)
@given(any_text)
@example("\ud800")
@example("")
@example("\n")
@example("\x00")
def test_encode(roberta, sentence):
    tokens = answer(lambda: roberta.encode(sentence))
    if tokens is None:
        return
    assert tokens[0] == 0
    assert tokens[-1] == 2
    assert 0 <= tokens.min() <= tokens.max() < len(roberta.task.source_dictionary)
    roberta.decode(tokens)


@settings(deadline=None, max_examples=60)
@given(any_text, any_text)
@example("\ud800", "")
@example("", "")
@example("a\nb", "c\r\nd")
def test_fill_mask(roberta, before, after):
    filled = answer(lambda: roberta.fill_mask(f"{before}<mask>{after}", topk=2))
    if filled is not None:
        assert len(filled) == 2
        assert all(0 <= probability <= 1 for _, probability, _ in filled)


@settings(deadline=None, max_examples=40)
@given(st.lists(any_text, min_size=1, max_size=3))
@example([""])
@example(["\ud800", "a"])
def test_predict(roberta, sentences):
    tokens = answer(lambda: roberta.encode(*sentences))
    scores = None if tokens is None else answer(lambda: roberta.predict("topic", tokens))
    if scores is not None:
        assert scores.shape == (1, 3)
        assert scores.exp().sum().item() == pytest.approx(1)


@pytest.mark.parametrize("topk", [-1, 0, 10**6])
def test_numbers_of_words(roberta, topk):
    filled = answer(lambda: roberta.fill_mask("the <mask> sat", topk=topk))
    assert filled is None or len(filled) == topk
