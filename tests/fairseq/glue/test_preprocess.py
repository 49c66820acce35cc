"""preprocess_glue.sh: the official files become what fairseq's `sentence_prediction` reads."""

import json
from argparse import Namespace
from pathlib import Path

import pytest
from fairseq import options, tasks
from fairseq.data import indexed_dataset
from fairseq.data.encoders.gpt2_bpe_utils import bytes_to_unicode
from fairseq_cli.preprocess import main as fairseq_preprocess
from hypothesis import given
from hypothesis import strategies as st

from examples.glue import preprocess
from examples.glue.tasks import TASKS
from examples.glue.tokenizer import Tokenizer
from tests.fairseq.glue.samples import GLUE, OFFICIAL, write, write_tokenizer
from tupe_fairseq import UsageError
from tupe_fairseq.fairseq.hub.files import record_preprocessing


@pytest.fixture(scope="module")
def download(tmp_path_factory):
    return write(tmp_path_factory.mktemp("glue"), OFFICIAL)


@pytest.fixture(scope="module")
def bpe(tmp_path_factory):
    return write_tokenizer(tmp_path_factory.mktemp("bpe"), "".join(OFFICIAL.values()))


def settings(glue: Path, task: str, bpe: Path, out: Path, **others) -> Namespace:
    given = {"glue": glue, "task": task, "bpe": bpe, "out": out}
    return Namespace(**given | {"max_positions": 64, "lowercase": None, "workers": 1} | others)


def made(*args, **others) -> Path:
    out = args[-1]
    out.mkdir(exist_ok=True)
    preprocess.preprocess(settings(*args, **others))
    return out


def loaded(data: Path, split: str, task_name: str, positions: int = 64):
    """A split as fairseq's task loads it, in the order of the file: (tokens, target)."""
    task = TASKS[task_name]
    cfg = {"data": str(data), "num_classes": len(task.labels) or 1, "max_positions": positions}
    cfg |= {"init_token": 0, "separator_token": 2, "no_shuffle": True, "seed": 1}
    cfg |= {"regression_target": not task.labels, "classification_head_name": "head"}
    cfg |= {"shorten_method": "none", "shorten_data_split_list": "", "d2v2_multi": False}
    cfg |= {"add_prev_output_tokens": False}
    found = tasks.TASK_REGISTRY["sentence_prediction"].setup_task(Namespace(**cfg))
    dataset = found.load_dataset(split)
    rows = [dataset[i] for i in range(len(dataset))]
    return found, [(row["net_input.src_tokens"], row.get("target")) for row in rows]


@pytest.mark.parametrize("name", TASKS)
def test_fairseq_reads_what_is_made(name, download, bpe, tmp_path):
    task = TASKS[name]
    data = made(download, name, bpe, tmp_path)
    pieces = Tokenizer(bpe)
    for split in task.splits:
        found, rows = loaded(data, split.name, name)
        examples = preprocess.read_split(download, task, split).examples
        assert len(rows) == len(examples)
        for (tokens, target), example in zip(rows, examples, strict=True):
            sentences = [pieces.encode(text).tolist() for text in example.sentences]
            expected = [0, *sentences[0], 2]
            for sentence in sentences[1:]:
                expected += [2, *sentence, 2]
            assert tokens.tolist() == expected
            if split.submission:
                assert target is None
            elif task.labels:
                words = found.label_dictionary
                assert words[target.item() + words.nspecial] == example.label
                assert target.item() == task.labels.index(example.label)
            else:
                assert target == [float(example.label)]


def test_files_are_those_of_fairseq_preprocess(download, bpe, tmp_path):
    """Byte by byte, for text of the same pieces and the same dictionary."""
    data = made(download, "CoLA", bpe, tmp_path / "ours")
    pieces = Tokenizer(bpe)
    texts = preprocess.read_split(download, TASKS["CoLA"], TASKS["CoLA"].splits[0]).examples
    lines = [pieces.bpe.encode(example.sentences[0].lower()) for example in texts]
    (tmp_path / "train").write_text("".join(f"{line}\n" for line in lines))
    words = ["--only-source", "--trainpref", str(tmp_path / "train"), "--workers", "1"]
    words += ["--srcdict", str(bpe / "dict.txt"), "--destdir", str(tmp_path / "theirs")]
    fairseq_preprocess(options.get_preprocessing_parser().parse_args(words))
    for name in ("train.bin", "train.idx", "dict.txt"):
        theirs = (tmp_path / "theirs" / name).read_bytes()
        assert (data / "input0" / name).read_bytes() == theirs


def test_several_processes_make_the_same(bpe, tmp_path, monkeypatch):
    text = "sentence|label\n" + "hide new secretions |0\ncontains no wit , |1\n" * 20
    splits = {"SST-2/train.tsv": text, "SST-2/dev.tsv": text}
    monkeypatch.setattr(preprocess, "CHUNK", 3)
    made(write(tmp_path, splits), "SST-2", bpe, tmp_path / "one")
    made(tmp_path, "SST-2", bpe, tmp_path / "two", workers=2)
    for name in ("input0/train.bin", "input0/valid.idx", "label/train.bin", "report.txt"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@given(st.lists(st.integers(0, 40), min_size=1, max_size=2), st.integers(8, 60))
def test_cut_examples_fill_the_positions(lengths, positions):
    kept = preprocess.shares(tuple(lengths), positions)
    special = 2 * len(lengths)
    assert all(0 <= k <= length for k, length in zip(kept, lengths, strict=True))
    assert sum(kept) + special == min(sum(lengths) + special, positions)
    if len(lengths) == 2:
        # What the longer lost, the shorter did not lose before: as if cut one by one.
        one_by_one = list(lengths)
        while sum(one_by_one) + special > positions:
            one_by_one[one_by_one[1] >= one_by_one[0]] -= 1
        assert sorted(map(abs, (a - b for a, b in zip(kept, one_by_one, strict=True)))) <= [1, 1]


def test_long_pair_keeps_its_ends_and_both_sentences(bpe, tmp_path):
    """fairseq's own truncation loses the second sentence and </s>."""
    text = f"index|sentence1|sentence2|label\n0|{'weapons ' * 90}|No.|entailment\n"
    write(tmp_path, {"RTE/train.tsv": text, "RTE/dev.tsv": text})
    data = made(tmp_path, "RTE", bpe, tmp_path / "bin", max_positions=32)
    ((tokens, _),) = loaded(data, "train", "RTE", positions=32)[1]
    second = Tokenizer(bpe).encode("No.").tolist()
    assert len(tokens) == 32
    assert tokens.tolist()[-len(second) - 2 :] == [2, *second, 2]
    assert "1 truncated to 32 tokens" in (data / "report.txt").read_text()


def test_report_tells_every_difference(download, bpe, tmp_path):
    report = (made(download, "QQP", bpe, tmp_path) / "report.txt").read_text()
    assert "train   2 examples, OFFICIALLY 363,846; 1 dropped (too few columns)" in report
    assert "test    2 examples, OFFICIALLY 390,965" in report
    write(tmp_path / "g", {name: OFFICIAL[name] for name in ("RTE/train.tsv", "RTE/dev.tsv")})
    report = (made(tmp_path / "g", "RTE", bpe, tmp_path / "rte") / "report.txt").read_text()
    assert "test    missing: RTE/test.tsv" in report


@pytest.mark.parametrize(
    ("cased", "recorded", "flag", "lower"),
    [
        (True, True, None, False),
        (False, True, None, True),
        (True, True, True, True),
        (True, False, None, False),
        (False, False, True, True),
        (False, False, False, False),
    ],
)
def test_case_is_that_of_the_pretraining_text(cased, recorded, flag, lower, download, tmp_path):
    """Without a record, text stays as it is."""
    bpe = write_tokenizer(tmp_path / "bpe", "".join(OFFICIAL.values()), cased)
    if not recorded:
        (bpe / "preprocessing.json").unlink()
    data = made(download, "WNLI", bpe, tmp_path / "out", lowercase=flag)
    assert json.loads((data / "task.json").read_text())["lowercase"] is lower
    pieces = indexed_dataset.make_dataset(str(data / "input0" / "train"), "mmap")[0]
    text = Tokenizer(bpe, flag).dictionary.string(pieces, bpe_symbol="sentencepiece")
    if not cased and not lower:
        assert text == "<unk> stuck a pin."
    else:
        assert text == ("i stuck a pin." if lower else "I stuck a pin.")


@pytest.mark.parametrize("form", ["sentencepiece", "gpt2"])
def test_case_is_not_guessed(form, download, tmp_path):
    """A script without capital letters, or a text in lower case, has tokens without them."""
    text = "".join(OFFICIAL.values()).lower()
    write_form = {"sentencepiece": write_tokenizer, "gpt2": write_gpt2}[form]
    bpe = write_form(tmp_path / "bpe", text)
    (bpe / "preprocessing.json").unlink()
    with pytest.raises(UsageError, match=r"capital letter, .* give --lowercase or --cased"):
        made(download, "WNLI", bpe, tmp_path / "out")


def write_gpt2(folder: Path, text: str) -> Path:
    """GPT-2's files with all bytes and no merges; dict.txt with the bytes of this text."""
    folder.mkdir()
    encoder = {symbol: number for number, symbol in enumerate(bytes_to_unicode().values())}
    (folder / "encoder.json").write_text(json.dumps(encoder))
    (folder / "vocab.bpe").write_text("#version: 0.2\n")
    table = bytes_to_unicode()
    ids = sorted({encoder[table[byte]] for byte in text.encode()})
    record_preprocessing(folder, lowercase=text == text.lower())
    (folder / "dict.txt").write_text("".join(f"{number} 1\n" for number in ids))
    return folder


@pytest.mark.parametrize("cased", [True, False])
def test_gpt2_bpe(cased, download, tmp_path):
    text = "".join(OFFICIAL.values())
    bpe = write_gpt2(tmp_path / "bpe", text if cased else text.lower())
    data = made(download, "WNLI", bpe, tmp_path / "out")
    assert json.loads((data / "task.json").read_text())["lowercase"] is not cased
    _, rows = loaded(data, "train", "WNLI")
    tokenizer = Tokenizer(bpe)
    tokens, _ = rows[0]
    second = tokens[tokens.tolist().index(2) + 2 : -1]
    assert tokenizer.bpe.decode(tokenizer.dictionary.string(second)) == (
        "It had a hole." if cased else "it had a hole."
    )
    assert {"encoder.json", "vocab.bpe"} <= {path.name for path in data.iterdir()}


def test_mistakes_are_told(download, bpe, tmp_path):
    def refused(message: str, *args, **others):
        with pytest.raises(UsageError, match=message):
            made(*args, **others)

    empty = tmp_path / "empty"
    empty.mkdir()
    refused("TASK is 'rte', but must be one of: CoLA", download, "rte", bpe, tmp_path / "a")
    refused("has no RTE/train.tsv", empty, "RTE", bpe, tmp_path / "a")
    matched = {name: text for name, text in OFFICIAL.items() if "dev_mis" not in name}
    write(tmp_path / "matched", matched)
    refused("has no MNLI/dev_mism", tmp_path / "matched", "MNLI", bpe, tmp_path / "a")
    refused("must be at least 8", download, "RTE", bpe, tmp_path / "a", max_positions=2)
    refused("BPE_DIR is .*it has none of these", download, "RTE", empty, tmp_path / "a")
    (empty / "one.model").write_text("")
    refused(r"no .*/dict\.txt", download, "RTE", empty, tmp_path / "a")
    (empty / "two.model").write_text("")
    refused("several models: one.model, two.model", download, "RTE", empty, tmp_path / "a")
    other = write_gpt2(tmp_path / "other", "z")
    refused("lacks 100 %", download, "RTE", other, tmp_path / "a")


SCRIPT = GLUE / "preprocess_glue.sh"


@pytest.mark.slow
def test_script_resumes_and_does_changed_tasks_again(download, bpe, bash, tmp_path):
    folder = write(tmp_path / "glue", {k: v for k, v in OFFICIAL.items() if k[:3] in ("RTE",)})
    first = bash(SCRIPT, folder, "ALL", bpe, tmp_path / "out")
    assert first.returncode == 0, first.stderr
    assert "== CoLA: not in" in first.stdout
    assert "train   2 examples, OFFICIALLY 2,490" in first.stdout
    again = bash(SCRIPT, folder, "RTE", bpe, tmp_path / "out")
    assert "== RTE: done already" in again.stdout
    assert "OFFICIALLY 2,490" in again.stdout
    with (folder / "RTE/train.tsv").open("a") as file:
        file.write("2\tOne more.\tYes.\tentailment\n")
    changed = bash(SCRIPT, folder, "RTE", bpe, tmp_path / "out")
    assert "train   3 examples" in changed.stdout


@pytest.mark.slow
def test_script_does_a_task_again_with_other_options(download, bpe, bash, tmp_path):
    """Also MNLI, whose diagnostic set is in one of two folders."""
    mnli = {k: v for k, v in OFFICIAL.items() if k[:4] in ("MNLI", "diag")}
    folder = write(tmp_path / "glue", mnli)
    first = bash(SCRIPT, folder, "MNLI", bpe, tmp_path / "out", "--max-positions", 16)
    assert first.returncode == 0, first.stderr
    again = bash(SCRIPT, folder, "MNLI", bpe, tmp_path / "out", "--max-positions", 16)
    assert "== MNLI: done already" in again.stdout
    changed = bash(SCRIPT, folder, "MNLI", bpe, tmp_path / "out", "--max-positions", 20)
    assert "== MNLI: done already" not in changed.stdout
    task = json.loads((tmp_path / "out/MNLI-bin/task.json").read_text())
    assert task["max_positions"] == 20


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "four arguments are needed"),
        (("/nowhere", "ALL", "/", "OUT"), "GLUE_DIR is /nowhere, but there is no such folder."),
        (("/", "cola", "/", "OUT"), "TASK is cola, but must be ALL or one of: CoLA SST-2"),
        (("OUT", "ALL", "/", "OUT"), "has none of: CoLA SST-2"),
    ],
)
def test_script_refuses(words, message, bash, tmp_path):
    done = bash(SCRIPT, *(tmp_path if word == "OUT" else word for word in words))
    assert done.returncode == 1
    assert message in done.stderr
