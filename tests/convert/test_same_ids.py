"""A text has the same ids in transformers and in every format that is written from it."""

import json
import random
from pathlib import Path

import pytest
import torch

from examples.glue.tokenizer import Tokenizer as GlueTokenizer
from examples.huggingface.serve import Program
from tests.convert import pieces
from tests.convert.samples import run, writes_onnx
from tests.huggingface.encoders import build
from tests.tolerances import assert_close
from tupe_fairseq import TupeRobertaModel
from tupe_fairseq.fairseq.hub.tokenizer_json import order_of

tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

#: In six scripts, with capitals, accents, numbers, signs and words without spaces.
WORDS = (
    "The quick Brown naïve café's",
    "O'Neill 3.14159 ZÜRICH fiancée",
    "http://a.b/c?d=e&f #tag",
    "Съешь ещё этих мягких",
    "французских БУЛОК да выпей чаю",
    "Ταχίστη αλώπηξ ΒΑΦΗΣ",
    "ψημένη γη δρασκελίζει",
    "نص حكيم له سر قاطع",
    "وذو شأن عظيم مكتوب",
    "ऋषियों को सताने वाले दुष्ट",
    "राक्षसों के राजा रावण",
    "東京タワーは333メートルです",
    "色は匂へど散りぬるを",
    "我能吞下玻璃而不伤身体",
    "🙂👍🏽",
    "“quoted” — dash…",
    "x=3;y<5|z",
)
ADDED = ("<ent>", "[PARA]", "ZusatzWort")
BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA = ("<s>", "<pad>", "</s>", "<unk>")
#: CamemBERT's ids begin with symbols that it does not use.
CAMEMBERT = ("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>")


def texts() -> list[str]:
    """200 texts, with the added tokens inside, at the ends and attached to words."""
    generator = random.Random(0)
    made = []
    for number in range(200):
        parts = generator.choices(WORDS, k=generator.randint(1, 4))
        if number % 2:
            parts.insert(generator.randint(0, len(parts)), generator.choice(ADDED))
        made.append(generator.choice((" ", "  ", ", ", "")).join(parts))
    return made


def trained(kind: str, special: tuple[str, ...]) -> "tokenizers.Tokenizer":
    """A tokenizer of all words, whose first tokens are special."""
    library = tokenizers
    model = {"WordPiece": library.models.WordPiece, "Unigram": library.models.Unigram}[kind]
    made = library.Tokenizer(model())
    trainer = {
        "WordPiece": library.trainers.WordPieceTrainer,
        "Unigram": library.trainers.UnigramTrainer,
    }[kind]
    words = library.pre_tokenizers
    made.pre_tokenizer = words.BertPreTokenizer() if kind == "WordPiece" else words.Metaspace()
    unknown = {"unk_token": "<unk>"} if kind == "Unigram" else {}
    made.train_from_iterator(
        WORDS * 3,
        trainer(vocab_size=400, special_tokens=list(special), show_progress=False, **unknown),
    )
    return made


def wordpiece(folder: Path) -> None:
    """Files of before tokenizer.json, whose settings are not those of every BERT."""
    vocabulary = trained("WordPiece", BERT).get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.get)
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    settings = {"do_lower_case": False, "tokenize_chinese_chars": False}
    write_config(folder, tokenizer_class="BertTokenizer", **settings)
    added = {token: len(tokens) + number for number, token in enumerate(ADDED)}
    (folder / "added_tokens.json").write_text(json.dumps(added))


def mpnet(folder: Path) -> None:
    """WordPiece with RoBERTa's special tokens."""
    trained("WordPiece", (*ROBERTA, "[UNK]", "<mask>")).save(str(folder / "tokenizer.json"))
    write_config(folder, tokenizer_class="MPNetTokenizer", do_lower_case=False)
    add_tokens(folder)


def wordpiece_json(folder: Path) -> None:
    """A tokenizer.json of the vocabulary alone beside the same files."""
    wordpiece(folder)
    trained("WordPiece", BERT).save(str(folder / "tokenizer.json"))


def bpe(folder: Path) -> None:
    """With BERT's [SEP] among the added tokens."""
    made = tokenizers.ByteLevelBPETokenizer()
    special = [*ROBERTA, "<mask>"]
    made.train_from_iterator(WORDS * 3, vocab_size=400, special_tokens=special)
    made.save(str(folder / "tokenizer.json"))
    write_config(folder, tokenizer_class="RobertaTokenizer")
    loaded = transformers.AutoTokenizer.from_pretrained(folder)
    loaded.add_tokens([*ADDED[:2], "[SEP]", "[CLS]"])
    loaded.add_special_tokens({"additional_special_tokens": [ADDED[2]]}, False)
    loaded.save_pretrained(folder)


def unigram(folder: Path, special: tuple[str, ...], kind: str, **settings) -> None:
    made = trained("Unigram", special)
    made.save(str(folder / "tokenizer.json"))
    write_config(folder, tokenizer_class=kind, **settings)
    add_tokens(folder)


def sentencepiece(folder: Path) -> None:
    """DeBERTa-v3's: a sentencepiece model alone, and the added tokens in its settings."""
    special = {"pad": "[PAD]", "bos": "[CLS]", "eos": "[SEP]", "unk": "[UNK]"}
    settings = {f"{name}_id": i for i, name in enumerate(special)}
    settings |= {f"{name}_piece": piece for name, piece in special.items()}
    pieces.train(folder, WORDS * 3, 400, model_type="unigram", **settings)
    (folder / "sentencepiece.bpe.model").rename(folder / "spm.model")
    write_config(folder, tokenizer_class="DebertaV2Tokenizer", additional_special_tokens=[*ADDED])


def add_tokens(folder: Path) -> None:
    """To the tokenizer of a folder, as transformers saves them."""
    loaded = transformers.AutoTokenizer.from_pretrained(folder)
    loaded.add_tokens([*ADDED])
    loaded.save_pretrained(folder)


def write_config(folder: Path, **settings) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


#: Of each kind: the files of the tokenizer, and the model.
KINDS = {
    "wordpiece": (wordpiece, "bert", {}),
    "tokenizer.json": (wordpiece_json, "bert", {}),
    "bpe": (bpe, "roberta", {}),
    "xlm-roberta": (
        lambda folder: unigram(folder, (*ROBERTA, "<mask>"), "XLMRobertaTokenizer"),
        "xlm_roberta",
        {},
    ),
    "camembert": (
        lambda folder: unigram(folder, (*CAMEMBERT, "<mask>"), "CamembertTokenizer"),
        "camembert",
        {"bos_token_id": 5, "eos_token_id": 6},
    ),
    "deberta-v3": (sentencepiece, "v3", {}),
    "mpnet": (mpnet, "mpnet", {}),
}


@pytest.fixture(scope="module", params=KINDS)
def source(request, tmp_path_factory):
    """A released model: its folder, and what transformers loads as its tokenizer."""
    folder = tmp_path_factory.mktemp(request.param)
    files, family, settings = KINDS[request.param]
    # transformers asks config.json for the kind of tokenizer.
    build(family, **settings).save_pretrained(folder)
    files(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    names = {"bos": "cls", "pad": "pad", "eos": "sep"}
    ids = {f"{k}_token_id": getattr(tokenizer, f"{v}_token_id") for k, v in names.items()}
    build(family, "ForMaskedLM", vocab_size=len(tokenizer) + 3, **ids).save_pretrained(folder)
    return folder, tokenizer


@pytest.fixture(scope="module")
def here(source, tmp_path_factory):
    """The model in fairseq."""
    out = tmp_path_factory.mktemp("here") / "out"
    report = run("--from", "huggingface", source[0], out, "--check")
    assert any(line.startswith("tokenizers: equal in") for line in report)
    return out


def test_the_added_tokens_are_tokens(source):
    tokenizer = source[1]
    for token in ADDED:
        assert token in tokenizer.tokenize(f"x {token} y")


def test_hub_and_glue(source, here):
    _, tokenizer = source
    hub = TupeRobertaModel.from_pretrained(here)
    glue = GlueTokenizer(here)
    order = order_of(hub.bpe.tokenizer, len(tokenizer) + 3)
    for text in texts():
        expected = tokenizer(text).input_ids
        assert [order[i] for i in hub.encode(text).tolist()] == expected
        assert [order[i] for i in glue.encode(text).tolist()] == expected[1:-1]


def test_added_tokens_are_decoded(here):
    hub = TupeRobertaModel.from_pretrained(here)
    for token in ADDED:
        assert token in hub.decode(hub.encode(f"x {token} y"))


@pytest.mark.parametrize("classes", ["default", "tupe"])
def test_back_in_transformers(classes, source, here, tmp_path):
    """With sides, lengths and special tokens of the source, and its class where it is stock."""
    folder, tokenizer = source
    stock = json.loads((folder / "config.json").read_text())["model_type"]
    kind = stock if classes == "default" else "tupe"
    flags = ("--classes", kind) if (classes, stock) != ("default", "camembert") else ()
    run("--to", "huggingface", here, tmp_path / "back", *flags, "--check")
    assert json.loads((tmp_path / "back/config.json").read_text())["model_type"] == kind
    back = transformers.AutoTokenizer.from_pretrained(tmp_path / "back", trust_remote_code=True)
    for text in texts():
        assert back(text).input_ids == tokenizer(text).input_ids
    for name in ("padding_side", "truncation_side", "special_tokens_map"):
        assert getattr(back, name) == getattr(tokenizer, name)
    auto = transformers.AutoModelForMaskedLM
    ids = torch.tensor([tokenizer(WORDS[0]).input_ids[:20]])
    with torch.no_grad():
        expected, found = (
            auto.from_pretrained(each, trust_remote_code=True).eval()(ids).logits
            for each in (folder, tmp_path / "back")
        )
    assert_close(found, expected)


@writes_onnx
@pytest.mark.parametrize("source", ["wordpiece", "bpe", "xlm-roberta"], indirect=True)
def test_programs(source, tmp_path):
    """Served texts are cut at the longest that the model reads; a program for each algorithm."""
    folder, tokenizer = source
    run("--from", "huggingface", folder, tmp_path / "out", "--to", "onnx")
    program = Program(tmp_path / "out")
    most = program.config["max_position_embeddings"]
    for text in texts():
        given = program.inputs([text])["input_ids"][0].tolist()
        assert given == tokenizer(text, truncation=True, max_length=most).input_ids
