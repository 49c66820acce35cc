"""The benchmark of serving, on a random BERT that takes no time."""

import json
import statistics
import time

import pytest
import torch

from tests import ROOT, processes
from tupe_fairseq import UsageError
from tupe_fairseq.base.tracing import OLDEST_EXPORTER

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

SCRIPT = ROOT / "scripts/benchmark_serving.py"
WORDS = ["a", "man", "plays", "guitar", "dog", "runs"]
WAYS = "torch-int8,onnxruntime-optimized-fp32,onnxruntime-nbits-int8,ours-fp32,ours-int8"
REFERENCE = "transformers-fp32"
#: A call of a second.
SHORT = ["--batch=1", "--threads=1", "--rounds=1", f"--ways={REFERENCE}"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A directory of transformers."""
    folder = tmp_path_factory.mktemp("served") / "tiny"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]))
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.BertConfig(**sizes, vocab_size=40, intermediate_size=64)
    transformers.BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def sts_b(tmp_path_factory):
    """Pairs of sentences as in GLUE."""
    folder = tmp_path_factory.mktemp("STS-B")
    pairs = [("a man plays", "a man"), ('a "dog" runs', "a dog"), ("guitar", "a man plays a dog")]
    rows = [f"{a}\t{b}\t{score}" for score, (a, b) in enumerate(pairs)]
    (folder / "dev.tsv").write_text("\n".join(["sentence1\tsentence2\tscore", *rows]))
    return folder


def flags(model, sts_b, out):
    """A table and the score."""
    words = f"--batch 2 --threads 1 --rounds 2 --batches 1 --ways {WAYS}"
    return [f"--model={model}", f"--sts-b={sts_b}", f"--out={out}", *words.split()]


@pytest.fixture(scope="module")
def finished(model, sts_b, tmp_path_factory):
    """The folder of a complete call, and what it printed."""
    if torch.__version__ < OLDEST_EXPORTER:
        pytest.skip(f"--to onnx needs torch {OLDEST_EXPORTER}")
    out = tmp_path_factory.mktemp("out")
    programs = f"--programs={tmp_path_factory.mktemp('programs')}"
    done = processes.run(SCRIPT, *flags(model, sts_b, out), programs)
    assert done.returncode == 0, done.stderr
    return out, done.stdout, programs


def read(out):
    return json.loads((out / "results.json").read_text())["models"]["tiny"]


def test_results_are_complete(finished):
    out, printed, _ = finished
    assert sorted(path.name for path in out.iterdir()) == ["results.json", "results.md"]
    tables = read(out)
    title = "texts, batches of 2, threads: 1"
    assert list(tables) == [title, "STS-B"]
    assert {"command", "device", "torch", "date", "commit"} < tables[title].keys()
    assert tables[title]["missing"] == {}
    assert tables[title]["fused"]["Attention"] == 2
    names = [row["name"] for row in tables[title]["rows"]]
    assert names == [REFERENCE, *WAYS.split(",")]
    assert f"tiny: {title}" in printed
    assert tables["STS-B"]["scores"].keys() == set(names)
    assert tables["STS-B"]["scores"]["ours-fp32"] == tables["STS-B"]["scores"][REFERENCE]


def test_ratios_and_best_rivals(finished):
    (table, _) = read(finished[0]).values()
    rows = {row["name"]: row for row in table["rows"]}
    for name, row in rows.items():
        assert len(row["seconds"]) == 2
        assert 0 < row["median_seconds"] <= row["percentile_95_seconds"]
        middle = statistics.median(row["seconds"])
        assert row["texts_per_second"] == pytest.approx(2 / middle)
        assert row["is_ours"] == name.startswith("ours")
        assert row["precision"] == name[-4:]
        rivals = [r for n, r in rows.items() if n[-4:] == name[-4:] and "ours" not in n]
        best = min(rivals, key=lambda rival: sum(rival["seconds"]))
        assert row["best_rival"] == best["name"]
        pairs = zip(row["seconds"], best["seconds"], strict=True)
        expected = statistics.mean(a / b for a, b in pairs)
        assert row["quartiles_of_ratios"]["best"][1] == pytest.approx(expected)
        assert row["difference"] < (1e-5 if row["precision"] == "fp32" else 1)
        least = 1 - (1e-6 if row["precision"] == "fp32" else 0.02)
        assert all(least < each < 1 + 1e-6 for each in row["cosines"]["source"])
        alone = row["cosines"]["alone"][1]
        assert alone == pytest.approx(1, abs=0.02 if name == "torch-int8" else 1e-6)


def test_the_page_begins_with_what_to_call(finished, sts_b):
    (table, _) = read(finished[0]).values()
    lines = (finished[0] / "results.md").read_text().splitlines()
    rows = {row["name"]: row for row in table["rows"]}
    cells = []
    for precision in ("fp32", "int8"):
        row = rows[f"ours-{precision}"]
        ratio = row["quartiles_of_ratios"]["transformers"][1]
        cells.append(f"`optimize`: {ratio:.2f} ({row['cosines']['source'][0]:.4f})")
    assert lines[4] == f"| tiny | {sts_b.name} | 1 | 2 | {cells[0]} |  | {cells[1]} |"
    assert sum("onnxruntime-nbits-int8" in line for line in lines) >= 2


def test_waiting_is_no_processor_time(script):
    """What other programs take on a machine is not measured."""
    rounds = script("benchmarking.rounds")
    seconds = 0.05

    def run(batch):
        time.sleep(seconds)
        return batch["input_ids"][..., None].float()

    ids = torch.ones(1, 2, dtype=torch.long)
    batches = [{"input_ids": ids, "attention_mask": ids}]
    for clock, is_less in (("wall", False), ("processor", True)):
        (row,) = rounds.measure({REFERENCE: run}, batches, 2, clock)["rows"]
        assert (row["median_seconds"] < seconds) == is_less


def test_the_clock_is_in_the_settings(script, model, tmp_path):
    words = [*SHORT, "--lengths=3", "--clock=processor", f"--model={model}", f"--out={tmp_path}"]
    assert script("benchmark_serving").main(words) == 0
    (table,) = read(tmp_path).values()
    assert table["settings"]["clock"] == "processor"
    assert table["rows"][0]["median_seconds"] > 0


def test_cosines_of_a_way(script):
    """Its vectors depend on padding."""
    fidelity = script("benchmarking.fidelity")
    ids = torch.tensor([[3, 4, 5], [6, 0, 0]])
    batch = {"input_ids": ids, "attention_mask": ids.ne(0).long()}
    source = torch.tensor([[4.0, 0], [6, 0]])

    def run(batch):
        length = batch["input_ids"].size(1) - 1
        return torch.stack((batch["input_ids"], length + 0 * batch["input_ids"]), -1).float()

    found = fidelity.measure(run, [batch], source)
    first, second = (value / (value**2 + 4) ** 0.5 for value in (4, 6))
    assert found["source"] == pytest.approx([(first + second) / 2, first])
    assert found["alone"] == pytest.approx([(1 + second) / 2, second])


def test_programs_are_kept(script, finished, model, tmp_path, monkeypatch):
    ways = "--ways=onnxruntime-optimized-fp32,onnxruntime-nbits-int8"
    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: pytest.fail("exported again"))
    words = [*SHORT[:-1], ways, "--lengths=3", f"--model={model}", f"--out={tmp_path}"]
    assert script("benchmark_serving").main([*words, finished[2]]) == 0
    (table,) = read(tmp_path).values()
    assert table["missing"] == {}


def test_a_complete_call_is_not_repeated(script, finished, model, sts_b, monkeypatch, capsys):
    out, *_ = finished
    before = (out / "results.json").read_bytes()
    benchmark = script("benchmark_serving")
    monkeypatch.setattr(benchmark, "build", lambda *_: pytest.fail("a way was built"))
    assert benchmark.main(flags(model, sts_b, out)) == 0
    assert (out / "results.json").read_bytes() == before
    told = capsys.readouterr().out
    tables = [line for line in told.splitlines() if "threads: 1" in line]
    assert tables
    assert all(line.endswith(": measured already") for line in tables)


def test_an_interruption_loses_one_table(script, model, tmp_path, monkeypatch):
    benchmark = script("benchmark_serving")
    measure = benchmark.measure
    calls = []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return measure(*arguments)

    monkeypatch.setattr(benchmark, "measure", interrupted)
    words = [*SHORT, "--lengths", "3", "4", "5", f"--model={model}", f"--out={tmp_path}"]
    assert benchmark.main(words) == 130
    assert list(read(tmp_path)) == ["3 tokens, batches of 1, threads: 1"]
    assert benchmark.main(words) == 0
    assert len(calls) == 4
    assert [table["length"] for table in read(tmp_path).values()] == [3, 4, 5]
    # Other settings are measured again.
    assert benchmark.main([*words, "--rounds", "2"]) == 0
    assert len(calls) == 7
    assert [len(table["rows"][0]["seconds"]) for table in read(tmp_path).values()] == [2, 2, 2]


def test_missing_libraries_are_named(script, model, tmp_path, monkeypatch):
    monkeypatch.setitem(script("sys").modules, "openvino", None)
    words = [
        *SHORT,
        "--lengths=3",
        "--ways=openvino-fp32",
        f"--model={model}",
        f"--out={tmp_path}",
    ]
    assert script("benchmark_serving").main(words) == 0
    (table,) = read(tmp_path).values()
    assert table["missing"]["openvino-fp32"].startswith("this needs openvino, which ")
    assert [row["name"] for row in table["rows"]] == [REFERENCE]


def test_forms_take_texts(script):
    """They have no tokenizer: words are tokens."""
    encoders = script("benchmarking.encoders")
    encoder = encoders.Encoder.__new__(encoders.Encoder)
    encoder.tokenizer = None
    config = transformers.BertConfig(vocab_size=50, max_position_embeddings=6)
    # A real class: transformers keeps facts of a bare PreTrainedModel for all classes.
    with torch.device("meta"):
        encoder.model = transformers.BertModel(config)
    tokens = encoder.tokens(["a man, a plan", "word " * 9, ""])
    assert [len(row) for row in tokens] == [6, 6, 2]
    assert tokens[0][1] == tokens[0][4]
    assert all(2 <= token < 50 for row in tokens for token in row)
    batches = encoder.batches(tokens, 2)
    assert [batch["attention_mask"].sum(1).tolist() for batch in batches] == [[2, 6], [6]]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("--form bert --lengths 8", "--form is 'bert', but can be: bert-base, deberta-v3-small, "),
        ("--model nowhere --lengths 8", "--model is 'nowhere', but must be a directory of"),
        ("--text nowhere.txt", "--text is 'nowhere.txt': cannot be read"),
        ("--sts-b nowhere", "--sts-b is 'nowhere', but must be GLUE's folder STS-B"),
        ("--lengths 513 --model {model}", "--lengths holds 513, but tiny takes texts of 2 to 512"),
        ("--lengths 8 --ways fast", "--ways names 'fast'; the known names are: transformers-fp32"),
        ("--form bert-base --layers 0 --lengths 8", "--layers is 0, but must be at least 1"),
        ("--lengths 8 --threads 0", "--threads is 0, but must be at least 1"),
        ("--lengths 8 --clock processor", "--clock is 'processor', but --threads is 2"),
        ("--batch 1", "nothing to run: give --sts-b, --text or --lengths"),
    ],
)
def test_mistakes_are_told(script, model, tmp_path, words, part):
    words = [*words.format(model=model).split(), f"--out={tmp_path / 'out'}"]
    with pytest.raises(UsageError) as told:
        script("benchmark_serving").main(words)
    assert part in str(told.value)
    assert "\n" not in str(told.value)


def test_command_ends_in_one_line(tmp_path):
    done = processes.run(SCRIPT, "--form", "bert", "--lengths", "8", "--out", tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: --form is 'bert'")
    assert "Traceback" not in done.stderr


def test_figure(script, finished, tmp_path):
    plot = script("plot_serving")
    (axes,) = plot.draw(plot.read(finished[0] / "results.json")).axes
    assert axes.get_title() == "tiny"
    (table, _) = read(finished[0]).values()
    ours = [row for row in table["rows"] if row["is_ours"]]
    points = [
        line.get_xdata()[0]
        for line in axes.lines
        if line.get_marker() == "o" and len(line.get_xdata())
    ]
    assert sorted(points) == sorted(row["quartiles_of_ratios"]["best"][1] for row in ours)
    plot.main([str(finished[0] / "results.json"), f"--out={tmp_path / 'serving.png'}"])
    written = (tmp_path / "serving.png").read_bytes()
    assert b"python scripts/plot_serving.py results.json --out=serving.png" in written


def test_another_file_is_told(script, tmp_path):
    (tmp_path / "other.json").write_text('{"models": []}')
    with pytest.raises(UsageError, match="is no result of benchmark_serving"):
        script("plot_serving").read(tmp_path / "other.json")
