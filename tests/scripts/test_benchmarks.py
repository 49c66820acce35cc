"""The benchmarks, on models that take no time: what they compare, print and write."""

import dataclasses
import statistics
import sys

import pytest
import torch

from tests import ROOT, processes
from tupe_fairseq import UsageError


def names(table):
    return [(row["name"], row["backend"]) for row in table["rows"]]


def test_training(measure, capsys):
    flags = "--encodings tupe_r,learned --backends auto,eager,blocked --peers="
    results, markdown = measure("training", f"--workloads 4x512,half-padding {flags}")
    assert {"command", "device", "threads", "torch", "date", "commit"} < results.keys()
    command = results["command"]
    assert command.startswith("python scripts/benchmark_training.py --device cpu")
    assert command.endswith("--json=results.json --markdown results.markdown")
    assert [table["title"] for table in results["tables"]] == [
        "4x512, changed",
        "half-padding, changed",
    ]
    assert "2×16 tokens, 50% padding" in results["tables"][1]["facts"]
    for table in results["tables"]:
        assert names(table) == [
            ("stock RoBERTa", "fairseq"),
            ("tupe_r", "blocked"),
            ("tupe_r", "eager"),
            ("learned", "blocked"),
            ("learned", "eager"),
            ("matrix products", "torch"),
        ]
        stock, ours = table["rows"][:2]
        assert list(stock["quartiles_of_ratios"]) == ["stock", "learned", "products"]
        assert stock["quartiles_of_ratios"]["stock"] == [1, 1, 1]
        expected = [a / b for a, b in zip(ours["seconds"], stock["seconds"], strict=True)]
        low, median, high = ours["quartiles_of_ratios"]["stock"]
        assert median == pytest.approx(sum(expected) / 2)
        assert min(expected) <= low <= median <= high <= max(expected)
        assert ours["median_seconds"] == statistics.median(ours["seconds"])
    lines = capsys.readouterr().out.splitlines()
    for kind in ("stock RoBERTa", "matrix products"):
        printed = [line.split() for line in lines if line.startswith(kind)]
        written = [line.split(" | ") for line in markdown.splitlines() if f"| {kind}" in line]
        assert len(printed) == len(written) == 2
        for line, cells in zip(printed, written, strict=True):
            assert line == " ".join(cells).strip("| ").split()
    assert f"command: `{command}`" in markdown


def test_evaluation_in_two_dtypes(measure):
    flags = "--workloads 16x128 --mode evaluation --dtypes float32,bfloat16 --peers="
    results, _ = measure("training", f"{flags} --encodings t5,none")
    facts = [table["facts"] for table in results["tables"]]
    assert all(told.startswith("evaluation, ") for told in facts)
    assert ["float32" in facts[0], "bfloat16" in facts[1]] == [True, True]
    # Without `learned`, nothing is compared to it.
    assert list(results["tables"][0]["rows"][0]["quartiles_of_ratios"]) == ["stock", "products"]


def test_long_text_without_stock(script, measure):
    results, _ = measure("training", "--workloads long-1x16384 --encodings tupe_a")
    assert names(results["tables"][0]) == [("tupe_a", "blocked"), ("matrix products", "torch")]
    assert script("benchmark_training").WORKLOADS["long-1x16384"].length == 16384


@pytest.mark.parametrize("mode", ["training", "evaluation"])
def test_attention(script, measure, capsys, mode):
    script("benchmarking.command").tell_once.cache_clear()
    names_of_encodings = ("none", "tupe_r") if mode == "training" else ("tupe_a", "shaw")
    backends = ("blocked", "flash", "sdpa")
    flags = f"--encodings {','.join(names_of_encodings)} --backends {','.join(backends)}"
    results, _ = measure("attention", f"{flags} --dropouts 0,0.1 --mode {mode}")
    tables = results["tables"]
    assert [table["title"] for table in tables] == ["4×7", "4×7", "2×16", "2×16"]
    expected = [("no bias", "torch")]
    expected += [
        (name, backend)
        for name in names_of_encodings
        for backend in backends
        if (name, backend) not in (("tupe_r", "flash"), ("shaw", "flash"), ("shaw", "sdpa"))
    ]
    assert all(names(table) == expected for table in tables)
    told = capsys.readouterr().err
    left_out = names_of_encodings[1]
    assert told.count(f"left out: {left_out} with flash") == 1


def test_interruption_leaves_whole_rounds(script, measure, capsys, monkeypatch):
    compare = script("benchmarking.compare")
    # Three rows; the third round is interrupted.
    seconds = iter(range(1, 9))

    def of_step(step, device):
        if (found := next(seconds)) == 8:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(compare, "seconds_of", of_step)
    flags = "--workloads 4x512,16x128 --encodings t5 --peers= --rounds 9"
    results, markdown = measure("training", flags, status=130)
    (table,) = results["tables"]
    assert table["facts"].endswith("2 of 9 rounds")
    assert sorted(s for row in table["rows"] for s in row["seconds"]) == [1, 2, 3, 4, 5, 6]
    assert "2 of 9 rounds" in markdown
    assert "interrupted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "flags", "part"),
    [
        ("training", "--workloads 4x513", "'4x513'; the known names are: 4x512, "),
        ("training", "--encodings tupe", "'tupe', but the known ones are"),
        ("training", "--backends fast", "'fast', but the known ones are"),
        ("training", "--peers bert", "'bert'; the known names are: hf_roberta, "),
        ("training", "--dtypes half", "'half'; the known names are: float32, "),
        ("training", "--rounds 0", "--rounds is 0"),
        ("training", "--layers -1", "--layers is -1"),
        ("training", "--heads 5", "--heads must divide --width 256, but is 5"),
        ("training", "--padding 0.6", "--padding is 0.6"),
        ("training", "--padding 0.5 --batch 1", "0 for 1 sentence"),
        ("training", "--dropout 1", "--dropout is 1"),
        ("training", "--json nowhere/x.json", "no such folder"),
        ("attention", "--lengths 8,0", "--lengths holds 0"),
        ("attention", "--lengths 8,x", "--lengths holds 'x'"),
        ("attention", "--lengths ,", "--lengths holds ''"),
        ("attention", "--dropouts 0.1,1", "--dropouts is 0.1,1"),
        ("attention", "--heads 3", "--heads must divide --width 256, but is 3"),
    ],
)
def test_mistakes_are_told(script, capsys, kind, flags, part):
    with pytest.raises(UsageError) as told:
        script(f"benchmark_{kind}").main([*flags.split(), "--device", "cpu"])
    assert part in str(told.value)
    assert "\n" not in str(told.value)
    assert not capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there(script):
    with pytest.raises(UsageError, match="--device is 'cuda'"):
        script("benchmark_training").main(["--device", "cuda"])


def test_command_ends_in_one_line():
    done = processes.run(ROOT / "scripts/benchmark_attention.py", "--encodings", "tupe")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: --position-encoding is 'tupe'")
    assert not done.stdout


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="read from /proc")
def test_peak_memory_is_that_of_the_step(script):
    """Neither what was held at another time, nor what is held all along."""
    peak_memory = script("benchmarking.compare").peak_memory
    megabytes = 2**20
    torch.ones(50 * megabytes)
    kept = torch.ones(25 * megabytes)
    found = peak_memory(lambda: torch.ones(16 * megabytes).add_(1), "cpu")
    assert found == pytest.approx(64 * megabytes, rel=0.1)
    assert len(kept)


@pytest.mark.parametrize("where", ["prepare", "step"])
@pytest.mark.parametrize("references", [("big", "small"), ("big",)])
def test_a_row_that_needs_too_much_memory_is_left_out(script, capsys, where, references):
    compare = script("benchmarking.compare")
    rows = {name: compare.Contender(name, "eager") for name in ("big", "small")}

    def allocate(contender, now):
        if (contender.name, now) == ("big", where):
            raise torch.OutOfMemoryError

    def prepare(contender):
        allocate(contender, "prepare")
        return lambda: allocate(contender, "step")

    references = {name: rows[name] for name in references}
    case = compare.Case("T", "facts", prepare, list(rows.values()), references, rounds=2)
    case.measure("cpu")
    assert capsys.readouterr().err == "left out: big with eager: out of memory\n"
    assert [row["name"] for row in case.results()] == ["small"]
    header, (name, _, milliseconds, *ratios) = case.table()
    assert (name, float(milliseconds) >= 0) == ("small", True)
    if "small" in references:
        assert header == ["", "backend", "ms", "/ small", "MiB", "MiB / small"]
        assert ratios[0] == "1.00"
    else:
        assert header == ["", "backend", "ms", "MiB"]


def test_no_row_fits(script, capsys):
    compare = script("benchmarking.compare")

    def prepare(contender):
        raise torch.OutOfMemoryError

    row = compare.Contender("big", "eager")
    case = compare.Case("T", "facts", prepare, [row], {"big": row}, rounds=2)
    case.measure("cpu")
    assert "left out: big" in capsys.readouterr().err
    assert case.seconds == {}


def test_models_without_fairseq_compute_the_same(script):
    """The encoder alone, with the parameters of `tupe_roberta`."""
    models = script("benchmarking.models")
    work = script("benchmark_training").WORKLOADS["4x512"]
    work = dataclasses.replace(work, batch=2, length=9, layers=1, width=16, heads=2, ffn=32)
    work = dataclasses.replace(work, padding=0.3)
    contender = script("benchmarking.compare").Contender("tupe_r", "eager")
    with_fairseq = models.build(work, contender, 1000).eval()
    alone = models.WithoutFairseq(work, contender, 1000).eval()
    state = with_fairseq.encoder.sentence_encoder.state_dict()
    alone.embed_tokens.weight.data = state["embed_tokens.weight"]
    missing, _ = alone.encoder.load_state_dict(state, strict=False)
    assert not missing
    tokens = work.tokens()
    assert torch.equal(alone(tokens)[0], with_fairseq(tokens, features_only=True)[0])
