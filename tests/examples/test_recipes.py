"""Recipe, hub and conversion of a page, one after the other, as a reader types them."""

import shutil

import pytest
import torch

from tests import ROOT, processes
from tests.convert import pieces
from tests.convert.samples import run
from tests.fairseq_commands import COMMON, finetune, generate, train
from tests.pages import commands
from tupe_fairseq import TupeRobertaModel, TupeTransformerModel, UsageError
from tupe_fairseq.convert.dictionaries import dictionary_text
from tupe_fairseq.convert.directory import load
from tupe_fairseq.convert.models import HEAD

PAGES = ROOT / "examples"
ENGLISH = ["a dog runs .", "the cat sleeps .", "a man sees the dog .", "the man runs ."] * 10
GERMAN = ["ein hund rennt .", "die katze schläft .", "ein mann sieht ihn .", "er rennt ."] * 10


def flags_of(page: str, program: str) -> list[str]:
    """What the page gives a program after its first argument."""
    ((_, _, *flags),) = commands(PAGES / page / "README.md", program)
    return flags


def preprocess(*words: object) -> None:
    """Run fairseq-preprocess."""
    ended = processes.run("fairseq_cli.preprocess", *words, "--workers", 1)
    assert ended.returncode == 0, ended.stderr


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Translations in pieces of one vocabulary, which are binarised with two dictionaries."""
    folder = tmp_path_factory.mktemp("text")
    model = pieces.train(folder, ENGLISH + GERMAN, 60)
    for split, count in (("train", 40), ("valid", 8), ("test", 4)):
        for language, lines in (("en", ENGLISH), ("de", GERMAN)):
            split_up = (" ".join(model.encode(line, out_type=str)) for line in lines[:count])
            (folder / f"{split}.{language}").write_text("\n".join(split_up) + "\n")
    files = [f"--{split}pref={folder / split}" for split in ("train", "valid", "test")]
    preprocess("-s", "en", "-t", "de", *files, "--destdir", folder / "data-bin")
    return folder


SMALLER = ("--encoder-layers", 1, "--decoder-layers", 1, "--encoder-embed-dim", 24)
SMALLER += ("--decoder-embed-dim", 24, "--max-update", 2)


@pytest.fixture(scope="module")
def translation(text):
    """A model of the page's command, which names no languages."""
    flags = flags_of("translation", "fairseq-train")
    assert not {"-s", "-t", "--source-lang", "--target-lang"} & {*flags}
    save = ("--save-dir", text / "checkpoints")
    return train(text / "data-bin", *flags, *COMMON, *SMALLER, *save)


def published(text, checkpoint, folder):
    """The folder of a model as the page describes it."""
    folder.mkdir()
    shutil.copy(checkpoint, folder / "model.pt")
    for path in (text / "data-bin").glob("dict.*.txt"):
        shutil.copy(path, folder)
    shutil.copy(text / "sentencepiece.bpe.model", folder)
    return folder


def test_translation(text, translation, tmp_path):
    """The hub translates as fairseq-generate of the page does."""
    flags = flags_of("translation", "fairseq-generate")
    more = flags[flags.index("--batch-size") :]
    expected = generate(text / "data-bin", translation, *more, "--remove-bpe", "sentencepiece")
    hub = TupeTransformerModel.from_pretrained(published(text, translation, tmp_path / "model"))
    assert hub.translates
    found = hub.translate(ENGLISH[:4], beam=5)
    assert found == [expected[number].strip() for number in range(4)]


def test_a_translation_model_of_an_older_version(text, translation, tmp_path):
    """Its checkpoint does not record the languages of such a training."""
    folder = published(text, translation, tmp_path / "model")
    state = torch.load(folder / "model.pt", weights_only=False)
    vars(state["cfg"]["model"]).update(source_lang=None, target_lang=None)
    torch.save(state, folder / "model.pt")
    with pytest.raises(UsageError, match=r"its source_lang, .*: pass source_lang=\.\.\. to"):
        TupeTransformerModel.from_pretrained(folder)
    given = {"source_lang": "en", "target_lang": "de"}
    older = TupeTransformerModel.from_pretrained(folder, **given)
    hub = TupeTransformerModel.from_pretrained(translation, None, text / "data-bin")
    line = (text / "test.en").read_text().splitlines()[0]
    assert older.encode(ENGLISH[0]).equal(hub.encode(line))
    assert older.tgt_dict == hub.tgt_dict != hub.src_dict


#: A table of one's own: a text, a tab and its label.
TABLE = ["what a film\tgood", "so dull , so slow\tbad", "it has scenes\tneither"] * 12


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    """Its texts in pieces and its labels, binarised."""
    folder = tmp_path_factory.mktemp("task")
    texts, labels = zip(*(row.split("\t") for row in TABLE), strict=True)
    model = pieces.train(folder, texts, 60)
    (folder / "dict.txt").write_bytes(dictionary_text(pieces.dictionary_of_pieces(model)))
    split_up = (" ".join(model.encode(text, out_type=str)) for text in texts)
    (folder / "table.input0").write_text("\n".join(split_up) + "\n")
    (folder / "table.label").write_text("\n".join(labels) + "\n")
    for name, more in (("input0", ("--srcdict", folder / "dict.txt")), ("label", ())):
        files = (f"--{split}pref" for split in ("train", "valid"))
        words = [word for flag in files for word in (flag, folder / f"table.{name}")]
        preprocess("--only-source", *words, *more, "--destdir", folder / "data-bin" / name)
    return folder


@pytest.mark.parametrize("criterion", ["sentence_prediction", "glue_prediction"])
def test_a_task_of_three_labels(criterion, task, tmp_path):
    """Without --separator-token: each row has one text."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    model, there, back = (tmp_path / name for name in ("model", "there", "back"))
    flags = ("--criterion", criterion, "--num-classes", 3, "--max-epoch", 2)
    trained = finetune(task / "data-bin", tmp_path / "run", *flags, separator=False)
    shutil.copytree(task / "data-bin", model, ignore=shutil.ignore_patterns("*.bin", "*.idx"))
    shutil.copy(task / "sentencepiece.bpe.model", model)
    shutil.copy(trained, model / "model.pt")
    hub = TupeRobertaModel.from_pretrained(model)
    names = hub.task.label_dictionary
    expected = {}
    for text in (row.split("\t")[0] for row in TABLE[:3]):
        scores = hub.predict(HEAD, hub.encode(text)).detach()[0].exp()
        expected[text] = {names[i + names.nspecial]: scores[i].item() for i in range(3)}
    assert {*expected[text]} == {"good", "bad", "neither"}
    run("--to", "huggingface", model, there, "--head", HEAD, "--check")
    classify = transformers.pipeline(
        "text-classification",
        transformers.AutoModelForSequenceClassification.from_pretrained(there),
        tokenizer=transformers.AutoTokenizer.from_pretrained(there),
        device="cpu",
    )
    for text, scores in expected.items():
        found = {each["label"]: each["score"] for each in classify(text, top_k=None)}
        assert found == pytest.approx(scores, rel=1e-4)
    run("--from", "huggingface", there, back, "--check")
    again = TupeRobertaModel.from_pretrained(back)
    for text, scores in expected.items():
        found = again.predict(HEAD, again.encode(text)).detach()[0].exp().tolist()
        found = dict(zip(load(back).labels, found, strict=True))
        assert found == pytest.approx(scores, rel=1e-4)
