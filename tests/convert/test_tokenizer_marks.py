"""Marks, control characters and spaces: tokenizer.json normalises texts as sentencepiece."""

import re

import pytest
import sentencepiece
from hypothesis import example, given
from hypothesis import strategies as st

from tests.convert.pieces import train
from tupe_fairseq.fairseq.hub.files import SENTENCEPIECE

tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed (extra hf)")

from tupe_fairseq.convert.fast_tokenizers import by_rules  # noqa: E402
from tupe_fairseq.convert.sentencepiece_models import read_sentencepiece  # noqa: E402

#: Characters that sentencepiece keeps, removes, replaces or takes apart.
ALONE = [*"béﬁ㎏½각👍❤", *"\x00\x01\x1b\x1d\x7f\x85\u2028\t\n\r\u00ad"]
#: Those that are one character to it, also with a mark.
LETTERS = [*"a ａ①ﾊｶ▁日😀אक\xa0\u3000\u200b\ufeff"]
MARKS = ["", *"\u0301\u0323\u093c\u05b7\u200dﾞ🏽\ufe0f"]
texts = st.lists(
    st.one_of(st.sampled_from(ALONE), st.tuples(*map(st.sampled_from, (LETTERS, MARKS))))
).map(lambda parts: "".join(map("".join, parts)))


@pytest.fixture(scope="module")
def normalize(tmp_path_factory):
    """The text as steps of tokenizer.json normalise it, and as sentencepiece does."""
    folder = tmp_path_factory.mktemp("model")
    train(folder, ["a b c d"] * 9, vocab_size=20)
    path = folder / SENTENCEPIECE
    raw = {"add_dummy_prefix": False, "remove_extra_whitespaces": False}
    theirs = sentencepiece.SentencePieceNormalizer(str(path), escape_whitespaces=False, **raw)
    steps = by_rules(read_sentencepiece(path).normalizer_spec.precompiled_charsmap)
    ours = tokenizers.normalizers.Sequence(steps)
    return lambda text: (ours.normalize_str(text), theirs.normalize(text))


@given(texts)
@example("\u0301\u200d\xa0\u0301\ufeff\u200d\u0301x")
@example("ｶﾞﾊﾞ a\u0301\u0301 1①\u0301 \u200d👩\u200d👧")
def test_normalisation(normalize, text):
    """Spaces in a row are one space to both."""
    ours, theirs = (re.sub(" +", " ", each) for each in normalize(text))
    assert ours == theirs
