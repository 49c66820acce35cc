"""tokenizer.json gives the ids of fairseq's pipeline; damaged and incomplete files."""

import json
import random
import shutil
import sys
from pathlib import Path

import pytest
import sentencepiece
import torch
from fairseq.data import Dictionary
from fairseq.data.encoders.gpt2_bpe_utils import bytes_to_unicode, get_encoder

from tests.convert import pieces as tiny
from tests.convert.samples import masked_lm, refused, run
from tests.tolerances import assert_close
from tupe_fairseq.convert import directory
from tupe_fairseq.convert.dictionaries import dictionary_of

tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed (extra hf)")

from tupe_fairseq.convert.fast_tokenizers import write_tokenizer  # noqa: E402

TEXT = ["The quick brown fox's 12 jumps, over the lazy dog.", "She sells sea shells by the shore!"]
ODD = [
    "",
    " ",
    "   a  b ",
    "\t\n x",
    "x" * 3000,
    "the the\u2028the\u3000the",
    "İstanbul ΣΑΣ ẞ",
    "日本語",
    "a日b本c",
    "😀👩‍👩‍👧 the",
    "🇩🇪❤️",
    "á e\u0301 n\u0303",
    "ﬁﬂ①Ⅷ㎏ﾊﾝｶｸ½",
    "▁▁the ▁ a",
    "\x00\x01\x07the\x1b",
    "the\x85the",
    "\x85",
    "a\x1c\x1db",
    "\xa0the\xa0",
    "אבג αβγ 각",
    "don't we'll I'm",
    "http://a.b/c?d=e&f",
    "{'a': [1, 2]}",
    "a\u200bb\ufeffc\u00add",
    "<S> <unknown> < mask >",
    "aa aaa aaaa aaaaa",
    "THE Quick BROWN",
    "3.14159 1,000,000",
]
#: Words of six scripts, signs and emoji, of which texts are made.
SCRIPTS = (
    "The quick brown fox jumps over naïve café señor Zürich übermäßig e\u0301tude 42 3.14",
    "Быстрая лиса прыгает через ленивую собаку ёлка η γρήγορη αλεπού πηδάει πάνω από το σκυλί",
    "الثعلب السريع يقفز فوق الكلب الكسول مَدْرَسَة שלום עולם 敏捷的棕色狐狸 跳过了 懒狗",
    "日本語のテキスト 빠른 갈색 여우 तेज़ लोमड़ी आलसी कुत्ते के ऊपर कूदती है क्षत्रिय",
    "😀 👩\u200d👩\u200d👧 ❤️ 🇩🇪 👍🏽 ½ ﬁn — … “so” #1 @me a/b C++",
)
WORDS = " ".join(SCRIPTS).split()


def many_texts(count: int) -> list[str]:
    """Texts of one to twelve words, some with other spaces between them."""
    rng = random.Random(0)
    texts = []
    for _ in range(count):
        words = rng.choices(WORDS, k=rng.randint(1, 12))
        spaces = rng.choices([" ", " ", " ", "  ", "", "\u00a0", "\t"], k=len(words))
        texts.append("".join(map("".join, zip(words, spaces, strict=True))))
    return texts


TEXTS = [*TEXT, *ODD, *many_texts(200)]


def expected(symbols: list[str], encode, texts=TEXTS) -> list[list[int]]:
    """The ids of fairseq's hub: `<s> pieces </s>` read by its Dictionary."""
    dictionary = Dictionary()
    for symbol in (*symbols, "<mask>"):
        dictionary.add_symbol(symbol)
    settings = {"append_eos": False, "add_if_not_exist": False}
    lines = (f"<s> {encode(text)} </s>" for text in texts)
    return [dictionary.encode_line(line, **settings).tolist() for line in lines]


def found(
    folder: Path, symbols: list[str], lower_case: bool = False, texts=TEXTS
) -> list[list[int]]:
    assert write_tokenizer(folder, folder, dictionary_of(symbols), 64, lower_case) == ""
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    return [tokenizer.encode(text).ids for text in texts]


def train(folder: Path, **settings) -> tuple[sentencepiece.SentencePieceProcessor, list[str]]:
    """A sentencepiece model in a folder, and its pieces."""
    lines = [*TEXT * 20, "aaa aaaaaa á", *many_texts(100)]
    model = tiny.train(folder, lines, **{"vocab_size": 400} | settings)
    return model, tiny.dictionary_of_pieces(model).symbols[4:]


SETTINGS = {
    "usual": {},
    "identity": {"normalization_rule_name": "identity"},
    "folded": {"normalization_rule_name": "nmt_nfkc_cf"},
    "without prefix": {"add_dummy_prefix": False},
    "spaces kept": {"remove_extra_whitespaces": False},
    "spaces as suffix": {"treat_whitespace_as_suffix": True},
    "pieces of several words": {"split_by_whitespace": False},
    "bytes": {"byte_fallback": True, "character_coverage": 0.98, "vocab_size": 700},
    "few characters": {"character_coverage": 0.98},
}
#: Symbols of the user, in the middle of words, too.
OWN = {"user_defined_symbols": ["<sep>", "C++", "ick", "狐狸"]}


@pytest.mark.parametrize("lower_case", [False, True])
@pytest.mark.parametrize("kind", ["bpe", "unigram", "char"])
@pytest.mark.parametrize("name", SETTINGS)
def test_sentencepiece(tmp_path, name, kind, lower_case):
    model, pieces = train(tmp_path, model_type=kind, **SETTINGS[name])

    def encode(text):
        return " ".join(model.encode(text.lower() if lower_case else text, out_type=str))

    symbols = ["<s>", "<pad>", "</s>", "<unk>", *pieces]
    ids = zip(TEXTS, found(tmp_path, pieces, lower_case), expected(pieces, encode), strict=True)
    differ = [each for each in ids if each[1] != each[2]]
    for text, *both in differ if kind == "unigram" else ():
        # Special symbols, and two ways of one score, between which rounding decides.
        scores = ([model.get_score(model.piece_to_id(symbols[i])) for i in x] for x in both)
        if "<S>" not in text:
            assert_close(*(torch.tensor(each).sum() for each in scores))
    assert len(differ) <= 2 * (kind == "unigram"), differ


def test_symbols_of_the_user(tmp_path):
    model, pieces = train(tmp_path, model_type="unigram", **OWN)
    texts = [*TEXTS, "a<sep>b <sep> <sep><sep>", "C+++C++ quick", "a b<sep>", "快狐狸"]
    found_ids = found(tmp_path, pieces, texts=texts)
    encode = lambda text: " ".join(model.encode(text, out_type=str))  # noqa: E731
    assert found_ids == expected(pieces, encode, texts)


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


@pytest.mark.parametrize("suffix", [False, True])
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_special_symbols_and_pairs(kind, suffix, tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    _, pieces = train(tmp_path, model_type=kind, treat_whitespace_as_suffix=suffix)
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


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_mask_among_the_pieces(kind, tmp_path):
    """As some train sentencepiece; it is special in transformers anyway."""
    model, pieces = train(tmp_path, model_type=kind, user_defined_symbols=["<mask>"])
    encode = lambda text: " ".join(model.encode(text, out_type=str))  # noqa: E731
    assert found(tmp_path, pieces, texts=TEXT) == expected(pieces, encode, TEXT)
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    number = 4 + pieces.index("<mask>")
    assert tokenizer.encode("The <mask> brown").ids.count(number) == 1


def test_symbols_that_are_no_pieces(tmp_path):
    """As fairseq-preprocess makes them of unknown characters, and those that it adds."""
    _, pieces = train(tmp_path, model_type="unigram")
    symbols = [*pieces[:9], "ж", *pieces[9:], "жжж", "madeupword0000"]
    note = write_tokenizer(tmp_path, tmp_path, dictionary_of(symbols), 64)
    assert "dict.txt has 2 symbols that are no pieces of sentencepiece.bpe.model, as 'ж'" in note
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in ("ж", "жжж", "madeupword0000"):
        assert 3 in tokenizer.encode(text).ids
    again = found(tmp_path, [*pieces, "madeupword0000"], texts=TEXT)
    assert again == found(tmp_path, pieces, texts=TEXT)


def test_a_model_of_another_name(tmp_path):
    """spm_train names it as its user wants, and the hub reads it if it is the only one."""
    (tmp_path / "here").mkdir()
    words = tiny.dictionary_of_pieces(tiny.train(tmp_path / "here", TEXT, model_type="unigram"))
    directory.write(masked_lm("learned", 0, words)[1], tmp_path / "model")
    model = tmp_path / "here/sentencepiece.bpe.model"
    model.rename(tmp_path / "model/spm.model")
    lines = run("--to", "huggingface", tmp_path / "model", tmp_path / "there", "--check")
    assert "ids of 7 texts: equal" in lines
    lines = run("--from", "huggingface", tmp_path / "there", tmp_path / "back", "--check")
    assert "ids of 7 texts: equal" in lines
    shutil.copy(tmp_path / "model/spm.model", tmp_path / "model/other.model")
    with refused("holds several models: other.model, spm.model; rename one"):
        run("--to", "huggingface", tmp_path / "model", tmp_path / "none")


def test_a_model_without_tokenizer_json_comes_back(tmp_path):
    """Its sentencepiece.bpe.model is fairseq's, and no XLM-RoBERTa's, where dict.txt is."""
    model = tiny.train(tmp_path, TEXT)
    words = dictionary_of(model.id_to_piece(i) for i in range(3, len(model) - 1))
    directory.write(masked_lm("learned", 0, words)[1], tmp_path / "model")
    shutil.copy(tmp_path / "sentencepiece.bpe.model", tmp_path / "model")
    there = tmp_path / "there"
    run("--to", "huggingface", tmp_path / "model", there, "--check")
    assert not (there / "tokenizer.json").exists()
    run("--from", "huggingface", there, tmp_path / "back", "--check")
    for name in ("dict.txt", "sentencepiece.bpe.model"):
        assert (tmp_path / "back" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()


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


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"model_type": "word"}, "has the type word; train it with --model_type unigram or bpe"),
        ({**OWN, "model_type": "bpe"}, "user-defined symbols, as '<sep>', of another type"),
        ({"user_defined_symbols": ["①"]}, "symbol '①', which its rules of normalisation change"),
    ],
)
def test_models_that_tokenizer_json_cannot_express(settings, part, tmp_path):
    _, pieces = train(tmp_path, **{"model_type": "unigram"} | settings)
    assert part in write_tokenizer(tmp_path, tmp_path, dictionary_of(pieces), 64)
    assert not (tmp_path / "tokenizer.json").exists()
