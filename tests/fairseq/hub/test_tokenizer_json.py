"""`--bpe tokenizer_json`: BERT's, RoBERTa's and DeBERTa's tokenizers, against transformers."""

import itertools
import json
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from fairseq.data.encoders.utils import get_whole_word_mask

from tests import toy_data
from tupe_fairseq import TupeRobertaModel, UsageError
from tupe_fairseq.fairseq.hub.tokenizer_json import TokenizerJson, TokenizerJsonConfig

tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed (extra hf)")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
from tests.fairseq.hub.samples import BERT, MADE, ROBERTA, TEXT, directory  # noqa: E402


@pytest.fixture(params=MADE)
def saved(request, tmp_path):
    """A directory for the hub, and the tokenizer as transformers loads it."""
    folder = directory(tmp_path / "model", MADE[request.param](), 2 * (request.param == "bert"))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    return folder, fast


def theirs(hub, fast, tokens: torch.Tensor) -> list[int]:
    """Ids of tokenizer.json from those of fairseq."""
    names = BERT if "[SEP]" in fast.get_vocab() else ROBERTA
    ids = dict(zip(ROBERTA, fast.convert_tokens_to_ids([*names]), strict=True))
    words = [hub.task.source_dictionary[i] for i in tokens.tolist()]
    return [ids[word] if word in ids else int(word) for word in words]


def test_ids_are_those_of_transformers(saved):
    folder, fast = saved
    hub = TupeRobertaModel.from_pretrained(folder)
    for text in TEXT:
        assert theirs(hub, fast, hub.encode(text)) == fast(text)["input_ids"], text
    # transformers takes an empty second text for none.
    for pair in itertools.pairwise(filter(None, TEXT)):
        assert theirs(hub, fast, hub.encode(*pair)) == fast(*pair)["input_ids"], pair


def test_decode(saved):
    folder, _ = saved
    hub = TupeRobertaModel.from_pretrained(folder)
    assert hub.decode(hub.encode("the cat ran")) == "the cat ran"
    assert hub.decode(hub.encode("the cat", "a mat ran")) == ["the cat", "a mat ran"]


def test_fill_mask(saved):
    folder, _ = saved
    hub = TupeRobertaModel.from_pretrained(folder)
    every = len(hub.task.source_dictionary) - 5
    found = hub.fill_mask("a <mask> sat", topk=every)
    assert all(text == f"a{word} sat" for text, _, word in found)
    words = {word for *_, word in found}
    # Words have a space before them, their parts have none.
    assert " cat" in words
    assert {"s", "at"} & words
    assert not any("##" in word for word in words)


def test_beginning_of_words():
    for name, starts, parts in (
        ("bert", ("cat", "[", "[unused0]", "[MASK]"), ("##ing", "##s")),
        ("roberta", ("Ġcat", "<mask>"), ("at", "[")),
    ):
        bpe = TokenizerJson(TokenizerJsonConfig(tokenizer_json=str(PATHS[name])))
        number = bpe.tokenizer.token_to_id
        assert all(bpe.is_beginning_of_word(str(number(token))) for token in starts)
        assert not any(bpe.is_beginning_of_word(str(number(token))) for token in parts)
        assert bpe.is_beginning_of_word("<mask>")


PATHS: dict[str, Path] = {}


@pytest.fixture(autouse=True, scope="module")
def paths(tmp_path_factory):
    for name, make in MADE.items():
        PATHS[name] = tmp_path_factory.mktemp(name) / "tokenizer.json"
        make().save(str(PATHS[name]))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        # Tokens in place of ids, as older conversions wrote them.
        (lambda lines: [f"w{i} 1" for i in range(len(lines))], "'w0'"),
        # The numbers of GPT-2's encoding are ordered by frequency.
        (lambda lines: [*reversed(lines)], "in place of its id"),
        # Those of another tokenizer with fewer tokens.
        (lambda lines: lines[:-9], "'nothing' in place of its id"),
    ],
)
def test_a_tokenizer_that_does_not_belong_is_refused(tmp_path, change, told):
    folder = directory(tmp_path / "model", MADE["bert"]())
    path = folder / "dict.txt"
    lines = change(path.read_text().splitlines())
    path.write_text("".join(f"{line}\n" for line in lines))
    state = torch.load(folder / "model.pt", weights_only=True)
    rows = len(lines) + 4 + ("<mask> 1" not in lines)
    for name in ("sentence_encoder.embed_tokens.weight", "lm_head.weight", "lm_head.bias"):
        value = state["model"][f"encoder.{name}"]
        state["model"][f"encoder.{name}"] = value.new_zeros(rows, *value.shape[1:])
    torch.save(state, folder / "model.pt")
    with pytest.raises(UsageError, match=f"is not the tokenizer of dict.txt, which has .*{told}"):
        TupeRobertaModel.from_pretrained(folder)
    (folder / "tokenizer.json").unlink()
    assert TupeRobertaModel.from_pretrained(folder).bpe is None


def test_a_tokenizer_without_special_tokens_is_refused(tmp_path):
    folder = directory(tmp_path / "model", MADE["bert"]())
    text = json.loads((folder / "tokenizer.json").read_text())
    for name in ("[CLS]", "[UNK]"):
        del text["model"]["vocab"][name]
    text["added_tokens"] = [t for t in text["added_tokens"] if t["content"] not in BERT]
    text["post_processor"] = None
    (folder / "tokenizer.json").write_text(json.dumps(text))
    with pytest.raises(UsageError, match=r"has no \[CLS\], \[UNK\], so it is neither BERT's"):
        TupeRobertaModel.from_pretrained(folder)


#: Tokens in the order of their ids, and whether they begin a word.
TOKENS = {
    "[PAD]": True,
    "[CLS]": True,
    "[SEP]": True,
    "[UNK]": True,
    "[MASK]": True,
    "▁": True,
    "▁the": True,
    "at": False,
    "s": False,
    "▁s": True,
    "7": False,
    "[": False,
    "the▁": False,
    "(": False,
    "-": False,
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
