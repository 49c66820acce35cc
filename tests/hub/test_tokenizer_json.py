"""`--bpe tokenizer_json`: BERT's, RoBERTa's and DeBERTa's tokenizers, against transformers."""

import itertools
import json
from pathlib import Path

import pytest
import torch

from tests.interop.samples import masked_lm
from tupe_fairseq import TupeRobertaModel, UsageError
from tupe_fairseq.hub.tokenizer_json import TokenizerJson, TokenizerJsonConfig
from tupe_fairseq.interop.dictionaries import dictionary_of
from tupe_fairseq.interop.directory import write

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import tokenizers  # noqa: E402
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors  # noqa: E402

BERT = ("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]")
ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
TEXT = [
    "a cat sat on the mat",
    "walking, the cats ran",
    "unknown √ words[1]",
    "",
    "the [MASK] sat",
]


def bert(vocabulary: list[str]) -> tokenizers.Tokenizer:
    """WordPiece, in lower case, with BERT's special tokens in their usual order."""
    made = tokenizers.Tokenizer(
        models.WordPiece({t: i for i, t in enumerate(vocabulary)}, unk_token="[UNK]")
    )
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, vocabulary.index(name)) for name in ("[CLS]", "[SEP]")],
    )
    # As released: fairseq's pipeline has no padding and does not truncate.
    made.enable_padding(pad_token="[PAD]", length=40)
    made.enable_truncation(40)
    return made


def roberta() -> tokenizers.Tokenizer:
    """Byte-pair encoding of bytes with RoBERTa's special tokens, the mask at the end."""
    letters = pre_tokenizers.ByteLevel.alphabet()
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *sorted(letters), "Ġc", "at", "Ġcat", "<mask>"]
    merges = [("Ġ", "c"), ("a", "t"), ("Ġc", "at")]
    made = tokenizers.Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([*ROBERTA])
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return made


WORDS = [*"acmnorstuwhelikdg,[]1", "cat", "sat", "on", "the", "mat", "walk", "##ing", "##s", "ran"]
WORDS += ["words", "unknown", "[unused0]"]
#: Special tokens not at the beginning, as in released models.
VOCABULARY = ["[PAD]", *WORDS[:5], "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS[5:]]
MADE = {"bert": lambda: bert(VOCABULARY), "roberta": roberta}


def symbols_of(tokenizer, rows: int) -> list[str]:
    """dict.txt: ids of tokenizer.json, but the special tokens; `rows` are the model's."""
    names = BERT if tokenizer.token_to_id("[SEP]") is not None else ROBERTA
    *first, mask = (tokenizer.token_to_id(name) for name in names)
    return ["<mask>" if i == mask else str(i) for i in range(rows) if i not in first]


def directory(folder: Path, tokenizer, types: int = 0, more: int = 3) -> Path:
    """A model whose embeddings have more rows than there are tokens, and its tokenizer."""
    dictionary = dictionary_of(symbols_of(tokenizer, tokenizer.get_vocab_size() + more))
    _, converted = masked_lm("learned", 3, dictionary, type_vocab_size=types)
    write(converted, folder, folder / "none" / "dict.txt")
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


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
