"""`--bpe tokenizer_json` in fairseq's pipeline."""

from argparse import Namespace

import pytest
from fairseq.data.encoders.utils import get_whole_word_mask

from tests import toy_data

tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed (extra hf)")
#: Tokens in the order of their ids, and whether they begin a word.
TOKENS = {
    **{"[PAD]": True, "[CLS]": True, "[SEP]": True, "[UNK]": True, "[MASK]": True},
    **{"▁": True, "▁the": True, "at": False, "s": False, "▁s": True, "7": False},
    **{"[unused0]": True, "the▁": False, "(": False, "-": False},
}


def test_words_that_are_masked_as_a_whole(tmp_path):
    """--mask-whole-words: a piece continues a word, unless ▁ begins it, or it is a symbol."""
    ids = {token: number for number, token in enumerate(TOKENS)}
    model = tokenizers.models.WordLevel(ids, unk_token="[UNK]")
    tokenizers.Tokenizer(model).save(str(tmp_path / "tokenizer.json"))
    dictionary = toy_data.dictionary(map(str, ids.values()))
    args = Namespace(bpe="tokenizer_json", tokenizer_json=str(tmp_path / "tokenizer.json"))
    begins = get_whole_word_mask(args, dictionary).bool().tolist()
    assert begins[:4] == [True] * 4, "symbols of fairseq's"
    found = {token: begins[dictionary.index(str(number))] for token, number in ids.items()}
    assert found == TOKENS
