"""tokenizer.json gives the ids of fairseq's pipeline; damaged and incomplete files."""

import json
import sys
from pathlib import Path

import pytest
import sentencepiece
from fairseq.data import Dictionary
from fairseq.data.encoders.gpt2_bpe_utils import bytes_to_unicode, get_encoder

from tests.interop import pieces as tiny
from tupe_fairseq.interop.dictionaries import dictionary_of

tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed (extra hf)")

from tupe_fairseq.interop.fast_tokenizers import write_tokenizer  # noqa: E402

TEXT = ["The quick brown fox's 12 jumps, over the lazy dog.", "She sells sea shells by the shore!"]
ODD = [
    *("", " ", "   a  b ", "\t\n x", "x" * 3000, "the the\u2028the\u3000the", "İstanbul ΣΑΣ ẞ"),
    *("日本語", "a日b本c", "😀👩‍👩‍👧 the", "🇩🇪❤️", "á e\u0301 n\u0303", "ﬁﬂ①Ⅷ㎏ﾊﾝｶｸ½", "▁▁the ▁ a"),
    *("\x00\x01\x07the\x1b", "the\x85the", "\x85", "a\x1c\x1db", "\xa0the\xa0", "אבג αβγ 각"),
    *("don't we'll I'm", "http://a.b/c?d=e&f", "{'a': [1, 2]}", "a\u200bb\ufeffc\u00add"),
    *("<S> <unknown> < mask >", "aa aaa aaaa aaaaa", "THE Quick BROWN", "3.14159 1,000,000"),
]


def expected(symbols: list[str], encode) -> list[list[int]]:
    """The ids of fairseq's hub: `<s> pieces </s>` read by its Dictionary."""
    dictionary = Dictionary()
    for symbol in (*symbols, "<mask>"):
        dictionary.add_symbol(symbol)
    settings = {"append_eos": False, "add_if_not_exist": False}
    lines = (f"<s> {encode(text)} </s>" for text in (*TEXT, *ODD))
    return [dictionary.encode_line(line, **settings).tolist() for line in lines]


def found(folder: Path, symbols: list[str], lower_case: bool = False) -> list[list[int]]:
    assert write_tokenizer(folder, folder, dictionary_of(symbols), 64, lower_case) == ""
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    return [tokenizer.encode(text).ids for text in (*TEXT, *ODD)]


def train(folder: Path, **settings) -> tuple[sentencepiece.SentencePieceProcessor, list[str]]:
    """A sentencepiece model in a folder, and its pieces."""
    model = tiny.train(folder, [*TEXT * 20, "aaa aaaaaa á"], **{"vocab_size": 120} | settings)
    return model, tiny.dictionary_of_pieces(model).symbols[4:]


@pytest.mark.parametrize("lower_case", [False, True])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"normalization_rule_name": "identity"},
        {"add_dummy_prefix": False},
        {"remove_extra_whitespaces": False},
    ],
)
def test_sentencepiece(tmp_path, settings, lower_case):
    model, pieces = train(tmp_path, **settings)

    def encode(text):
        return " ".join(model.encode(text.lower() if lower_case else text, out_type=str))

    assert found(tmp_path, pieces, lower_case) == expected(pieces, encode)


def test_gpt2(tmp_path):
    merges = [("t", "h"), ("Ġ", "th"), ("Ġth", "e"), ("a", "a"), ("aa", "a"), ("Ã", "¡")]
    tokens = [*bytes_to_unicode().values(), *("".join(pair) for pair in merges), "<|endoftext|>"]
    (tmp_path / "encoder.json").write_text(json.dumps({t: i for i, t in enumerate(tokens)}))
    lines = ["#version", *(" ".join(pair) for pair in merges)]
    (tmp_path / "vocab.bpe").write_text("\n".join(lines) + "\n", encoding="utf-8")
    bpe = get_encoder(str(tmp_path / "encoder.json"), str(tmp_path / "vocab.bpe"))
    # In another order than in encoder.json, as dictionaries sorted by frequency have it.
    symbols = [str(number) for number in reversed(range(len(tokens)))]
    ids = expected(symbols, lambda text: " ".join(map(str, bpe.encode(text))))
    assert found(tmp_path, symbols) == ids


def test_special_symbols_and_pairs(tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    _, pieces = train(tmp_path)
    assert write_tokenizer(tmp_path, tmp_path, dictionary_of(pieces), 64) == ""
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    a, b = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXT)
    pair = tokenizer(*TEXT)
    assert pair["input_ids"] == [0, *a, 2, 2, *b, 2]
    assert "token_type_ids" not in pair
    assert tokenizer.mask_token_id == 4 + len(pieces)
    assert tokenizer.model_max_length == 64
    the = tokenizer("the", add_special_tokens=False)["input_ids"]
    ids = tokenizer("the <mask> the")["input_ids"]
    assert ids == [0, *the, tokenizer.mask_token_id, *the, 2]
    assert tokenizer.decode(a) == TEXT[0]
    padded = tokenizer(TEXT, padding=True)
    assert {len(row) for row in padded["input_ids"]} == {2 + max(len(a), len(b))}


def test_without_protobuf(tmp_path, monkeypatch):
    _, pieces = train(tmp_path)
    monkeypatch.setitem(sys.modules, "google.protobuf.message", None)
    note = write_tokenizer(tmp_path, tmp_path, dictionary_of(pieces), 64)
    assert "needs pip install --upgrade protobuf: " in note
    assert not (tmp_path / "tokenizer.json").exists()


def test_what_cannot_be_written(tmp_path):
    _, pieces = train(tmp_path)
    entries = dictionary_of(pieces[:-2])
    note = write_tokenizer(tmp_path, tmp_path, entries, 64)
    assert f"dict.txt lacks 2 of the {len(pieces)} pieces" in note
    path = tmp_path / "sentencepiece.bpe.model"
    whole = path.read_bytes()
    for data in (whole[: len(whole) // 2], b"no model", b"\xff" * 40):
        path.write_bytes(data)
        note = write_tokenizer(tmp_path, tmp_path, entries, 64)
        assert note.startswith("no tokenizer was written, so AutoTokenizer has nothing to load: ")
        assert "\n" not in note
    path.unlink()
    assert "holds no sentencepiece.bpe.model" in write_tokenizer(tmp_path, tmp_path, entries, 64)
    assert not (tmp_path / "tokenizer.json").exists()
    train(tmp_path, model_type="unigram")
    assert "not a sentencepiece model of the type bpe" in write_tokenizer(
        tmp_path, tmp_path, entries, 64
    )
