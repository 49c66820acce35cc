"""`python -m examples.transplant`: another position encoding for an encoder of transformers."""

import itertools
import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch

from examples.transplant.__main__ import main
from tests.convert.test_sentence_transformers import add_sentence_files
from tests.examples.test_serving import WORDS, write
from tests.processes import Program, run
from tests.tolerances import assert_close
from tests.transplant import write_lines
from tupe_fairseq import TupeRobertaModel, UsageError

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

NAME = "examples.transplant"
SHORT = ("--length", 16, "--batch-size", 8)


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    """1,100 lines of two to 30 words."""
    return write_lines(tmp_path_factory.mktemp("text") / "lines.txt")


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A BERT of 64 positions, with files of sentence-transformers."""
    folder = tmp_path_factory.mktemp("source") / "bert"
    write(folder, "Model")
    return add_sentence_files(folder, 20)


def transplant(source: Path, text: Path, out: Path, *flags: object) -> dict[str, float]:
    """The last measures of a run, in this process."""
    main([*map(str, (source, text, "--out", out, *SHORT, *flags))])
    return json.loads((out / "progress.json").read_text())[-1]


def test_the_result_follows_the_source(source, text, tmp_path):
    """It reads longer texts, in both libraries and through SentenceTransformer."""
    flags = ("--position-encoding", "tupe_r", "--max-positions", 200, "--updates", 150)
    last = transplant(source, text, tmp_path, *flags)
    first = json.loads((tmp_path / "progress.json").read_text())[0]
    assert last["update"] == 150
    assert last["error"] < 0.5 * first["error"]
    assert last["rank"] > 0.3, "0 without the order of words"
    card = (tmp_path / "transformers" / "README.md").read_text()
    assert "| made from | `bert`, whose licence applies." in card
    assert "| longest text | 200 tokens |" in card
    config = json.loads((tmp_path / "transformers" / "config.json").read_text())
    # Rows behind the longest text that was read are those of the toeplitz extension.
    assert config["position_options"]["trained_positions"] == 16
    library = pytest.importorskip("sentence_transformers")
    words = " ".join(WORDS * 12)
    folders = (source, tmp_path / "transformers")
    models = [
        library.SentenceTransformer(str(each), trust_remote_code=True, device="cpu")
        for each in folders
    ]
    short, long = models
    assert not torch.equal(*(torch.tensor(long.encode(t)) for t in (words, words[:60])))
    assert torch.equal(*(torch.tensor(short.encode(t)) for t in (words, words[:200])))
    hub = TupeRobertaModel.from_pretrained(tmp_path / "fairseq").eval()
    ids = torch.tensor(long.tokenizer(words)["input_ids"])
    with torch.no_grad():
        expected = long[0].auto_model(ids[None]).last_hidden_state
        assert_close(hub.extract_features(hub.encode(words)), expected)


def test_a_killed_run_continues(source, text, tmp_path):
    """As if it had not been killed."""
    flags = ("--position-encoding", "rope", "--updates", 120)
    whole = tmp_path / "whole"
    killed = tmp_path / "killed"
    expected = transplant(source, text, whole, *flags)
    program = Program(NAME, source, text, "--out", killed, *SHORT, *flags)
    progress = killed / "progress.json"
    program.until(lambda: progress.exists() and len(json.loads(progress.read_text())) > 1)
    os.killpg(program.pid, signal.SIGKILL)
    found = transplant(source, text, killed, *flags)
    assert found | {"minutes": 0} == expected | {"minutes": 0}
    weights = [f / "transformers" / "model.safetensors" for f in (whole, killed)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    with pytest.raises(UsageError, match="holds a run with other settings"):
        main([str(source), str(text), "--out", str(whole), "--position-encoding", "rope"])
    assert transplant(source, text, whole, *flags) == expected, "nothing is left to do"


def test_it_ends_when_it_no_longer_improves(source, text, tmp_path):
    """With a rate of 0, nothing improves. Each note at the end names its folder."""
    flags = ("--position-encoding", "none", "--updates", 5000, "--lr", 0, "--position-lr", 0)
    result = run(NAME, source, text, "--out", tmp_path, *SHORT, *flags)
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "progress.json").read_text())[-1]["update"] == 266
    assert result.stdout.splitlines()[:-1] == [
        "transformers: left out: the pooler",
        "fairseq: the source has no head for masked tokens: the new one is untrained",
        "fairseq: the pooler is the first layer of the head pooler",
        "fairseq: dict.txt holds the ids of tokenizer.json: binarise these (examples/huggingface)",
        "fairseq: sentence-transformers cuts texts at 20 tokens, but the hub does not",
        "fairseq: flags of fairseq-train: --arch tupe_roberta --position-encoding none "
        "--max-positions 64 --encoder-layers 2 --encoder-embed-dim 24 --encoder-ffn-embed-dim 32 "
        "--encoder-attention-heads 3 --layer-norm-eps 1e-12 --type-vocab-size 2",
    ]


@pytest.mark.parametrize("head", ["ForMaskedLM", "ForSequenceClassification"])
def test_heads_are_kept(head, text, tmp_path):
    write(folder := tmp_path / "source", head)
    flags = ("--position-encoding", "t5", "--updates", 60)
    transplant(folder, text, tmp_path / "out", *flags)
    auto = getattr(transformers, f"AutoModel{head}")
    model = auto.from_pretrained(tmp_path / "out" / "transformers", trust_remote_code=True)
    before = auto.from_pretrained(folder)
    ids = torch.arange(5, 12)[None]
    with torch.no_grad():
        found = model.eval()(ids).logits
        expected = before.eval()(ids).logits
    assert found.shape == expected.shape
    assert torch.corrcoef(torch.stack([found.flatten(), expected.flatten()]))[0, 1] > 0.9


@pytest.mark.parametrize("name", ["roberta", "v3", "modernbert"])
def test_other_sources(name, text, tmp_path):
    from tests.huggingface.encoders import build

    write(folder := tmp_path / "source", "Model")
    build(name).save_pretrained(folder)
    flags = ("--position-encoding", "t5", "--updates", 20)
    last = transplant(folder, text, tmp_path / "out", *flags)
    first = json.loads((tmp_path / "out" / "progress.json").read_text())[0]
    assert last["error"] < first["error"]
    if name == "v3":  # It has no types of tokens: they have no effect.
        made = tmp_path / "out" / "transformers"
        model = transformers.AutoModel.from_pretrained(made, trust_remote_code=True).eval()
        ids = torch.arange(5, 12)[None]
        with torch.no_grad():
            found = [model(ids, token_type_ids=types)[0] for types in (ids.gt(7).long(), None)]
        assert torch.equal(*found)


def test_the_default_start(source, text, tmp_path):
    """It begins closer to the source than random positions do."""
    model = transformers.AutoModel.from_pretrained(source)
    with torch.no_grad():
        model.embeddings.position_embeddings.weight.add_(torch.randn(24))
    moved = shutil.copytree(source, tmp_path / "moved")
    model.save_pretrained(moved)
    errors = []
    for number, start in enumerate(([], ["--start", "random"])):
        out = tmp_path / str(number)
        transplant(moved, text, out, "--position-encoding", "tupe_r", "--updates", 1, *start)
        errors.append(json.loads((out / "progress.json").read_text())[0]["error"])
    assert errors[0] < 0.5 * errors[1]


def test_training_in_bf16(source, text, tmp_path):
    """Parameters stay in fp32, and follow the source as in fp32."""
    flags = ("--position-encoding", "t5", "--updates", 60)
    found = transplant(source, text, tmp_path / "half", *flags, "--bf16")
    expected = transplant(source, text, tmp_path / "whole", *flags)
    first = json.loads((tmp_path / "half/progress.json").read_text())[0]
    assert found["error"] < 0.5 * first["error"]
    assert found["error"] != expected["error"]
    assert abs(found["error"] - expected["error"]) < 0.1 * first["error"]
    folder = tmp_path / "half/transformers"
    assert transformers.AutoModel.from_pretrained(folder).dtype == torch.float32


def test_positions_that_no_text_reaches(source, text, tmp_path, capsys):
    """TUPE continues them by distance; others have a warning, unless they are none."""
    result = {}
    for name in ("tupe_a", "learned", "rope"):
        flags = ("--position-encoding", name, "--updates", 1)
        transplant(source, text, tmp_path / name, *flags)
        told = capsys.readouterr().err
        file = tmp_path / name / "transformers" / "config.json"
        result[name] = json.loads(file.read_text()), "from 16 on are not trained" in told
    assert result["tupe_a"][0]["extend_positions"] == "toeplitz"
    assert result["tupe_a"][0]["position_options"]["trained_positions"] == 16
    assert [warned for _, warned in result.values()] == [False, True, False]


def test_texts_shorter_than_the_length(source, tmp_path, capsys):
    """Only the positions that texts have are trained."""
    words = itertools.permutations(WORDS, 6)
    lines = [" ".join(each) for each in itertools.islice(words, 1000)]
    (short := tmp_path / "short.txt").write_text("\n".join(lines))
    for name in ("tupe_r", "learned"):
        flags = ("--position-encoding", name, "--updates", 1, "--batch-size", 8)
        main([*map(str, (source, short, "--out", tmp_path / name, *flags))])
        told = capsys.readouterr().err
        assert ("from 8 on are not trained" in told) == (name == "learned")
        folder = tmp_path / name / "transformers"
        assert "texts of at most 8 tokens" in (folder / "README.md").read_text()
        options = json.loads((folder / "config.json").read_text())["position_options"]
        assert options.get("trained_positions") == (8 if name == "tupe_r" else None)


def test_texts_that_sentence_transformers_changes(text, tmp_path, capsys):
    """It is said, since TEXT may be changed; and the longest text follows the positions."""
    write(source := tmp_path / "bert", "Model")
    add_sentence_files(source, 9)
    name = "sentence_roberta_config.json"
    settings = {"do_lower_case": True, "max_seq_length": 9}
    (source / "sentence_bert_config.json").unlink()
    (source / name).write_text(json.dumps(settings))
    flags = ("--position-encoding", "rope", "--max-positions", 40, "--updates", 1)
    transplant(source, text, tmp_path / "out", *flags)
    told = capsys.readouterr().err
    assert "transformers lowercases texts, but the distillation does not\n" in told
    written = (tmp_path / "out/transformers" / name).read_text()
    assert json.loads(written)["max_seq_length"] == 40


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--position-encoding xpos", "xpos is for decoders only"),
        ("--position-encoding tupe_x", "'tupe_x'"),
        ("--position-encoding rope --length 2", "--length is 2, but must be at least 5"),
        ("--position-encoding rope --length 65", "--length is 65, but must be at most 64"),
        ("--position-encoding rope --max-positions 8 --length 9", "must be at most 8"),
        ("--position-encoding rope --num-buckets 8", "--num-buckets does not apply"),
        ("--position-encoding rope --disordered 2", "--disordered is 2.0, but must be"),
        ("--position-encoding rope --pairs -1", "--pairs is -1.0, but must be"),
        ("--position-encoding learned --extend-positions hierarchical", "those of a transplant"),
        ("--position-encoding rope --updates 0", "--updates is 0, but must be at least 1"),
    ],
)
def test_mistakes(flags, message, source, text, tmp_path):
    with pytest.raises(UsageError, match=message) as told:
        main([str(source), str(text), "--out", str(tmp_path / "out"), *flags.split()])
    assert "\n" not in str(told.value)
    assert not (tmp_path / "out").exists()


def test_paths_without_what_is_needed(source, text, tmp_path):
    (few := tmp_path / "few.txt").write_text("one\ntwo\nthree\n")
    write(bare := tmp_path / "bare", "Model")
    for file in bare.glob("*tok*"):
        file.unlink()
    (bare / "vocab.txt").unlink()
    flags = ["--out", str(tmp_path / "out"), "--position-encoding", "rope"]
    named = shutil.copytree(source, tmp_path / "named")
    for file in named.glob("*tok*"):
        file.write_text(file.read_text().replace("[CLS]", "<first>"))
    (short := tmp_path / "short.txt").write_text("\n".join(f"one two {n}" for n in range(1000)))
    single = shutil.copytree(source, tmp_path / "single")
    fast = json.loads((single / "tokenizer.json").read_text())
    fast["post_processor"]["pair"] = fast["post_processor"]["pair"][1::2]
    (single / "tokenizer.json").write_text(json.dumps(fast))
    # BERT's own class has a template of its own.
    transformers.PreTrainedTokenizerFast.from_pretrained(single).save_pretrained(single)
    for paths, message in {
        (named, text): "is neither BERT's, DeBERTa's nor RoBERTa's",
        (source, short): "have more than three words",
        (single, text): "does not separate the texts of a pair",
        (source, few): "with 3 different lines, but at least 1,000 are",
        (source, tmp_path / "none"): "cannot be read",
        (tmp_path, text): "must be a directory of transformers",
        (bare, text): "has no tokenizer.json",
    }.items():
        with pytest.raises(UsageError, match=message) as told:
            main([*map(str, paths), *flags])
        assert "\n" not in str(told.value)
