"""What is run, in order of worth: the rows of each part, on a GPU and at a size for any CPU."""

from pathlib import Path
from typing import Any, NamedTuple

from examples.shared.jobs import PLUGIN
from examples.shared.markdown import ROOT
from tupe_fairseq.position import POSITION_ENCODINGS

PARTS = {
    "tests": "tests for GPUs",
    "benchmarks": "training steps and attention alone",
    "training": "fairseq-train, end to end",
    "memory": "peak memory by length",
    "study": "study.py",
}
OURS = "learned,tupe_a,tupe_r,t5,rope,none"
IN_ENCODERS = [name for name, cls in POSITION_ENCODINGS.items() if not cls.causal_only]
#: The others of the registry.
OTHERS = [name for name in IN_ENCODERS if name not in OURS.split(",")]
#: Models of transformers, with the encodings beside them.
PEERS = {"hf_roberta": "tupe_a,tupe_r", "hf_deberta_v2": "deberta", "hf_modernbert": "rope"}
#: Files of tests, those that take longest last.
TESTS = (
    "tests/cuda/test_attention.py",
    "tests/attention/test_fused_kernels.py",
    "tests/cuda/test_encoders.py",
    "tests/cuda/test_training.py",
)
#: On a CPU, the rows have this size instead.
TINY_MODEL = ("--layers", 1, "--width", 16, "--heads", 2)
TINY = (*TINY_MODEL, "--ffn", 32, "--rounds", 2, "--dtypes", "float32", "--device", "cpu")
TINY_ATTENTION = (*TINY_MODEL, "--words", 64, "--rounds", 2, "--device", "cpu")
TINY_TESTS = ("-k", "(tupe_a or rope) and not compile and not one_sided and not tie_cls")
UPDATES, LOG_INTERVAL = 60, 10


class Row(NamedTuple):
    """One command whose result is kept.

    Attributes:
        part: one of PARTS.
        name: unique in its part.
        command: arguments of Python.
        kind: what it leaves: "tests", "tables", "clock", or "study".
        needs: libraries without which it does not run.
        words: tokens of an update, of the kind "clock".
        limit: seconds after which it is ended and counts as failed.
    """

    part: str
    name: str
    command: tuple[Any, ...]
    kind: str = "tables"
    needs: tuple[str, ...] = ()
    words: int = 0
    limit: float = 300


def rows(size: str, work: Path, text: list[Path], glue: Path | None) -> list[Row]:
    """All rows in order.

    Args:
        size: "gpu" or "tiny".
        work: folder of data and logs.
        text: of the study; without it, the size gpu has no study.
        glue: download of GLUE for the study, or None.
    """
    tiny = size == "tiny"
    found = [Row("tests", "pytest", (*TESTS, *(TINY_TESTS if tiny else ())), "tests", limit=1800)]
    found += [*_benchmarks(tiny), *_trainings(tiny, work), *_memory(tiny)]
    return found + _study(tiny, work, text, glue)


def _step(name: str, tiny: bool, *flags: Any, part: str = "benchmarks", **more: Any) -> Row:
    """A table of benchmark_training.py; of two equal flags, the later one counts."""
    shared = ("scripts/benchmark_training.py", "--workloads", "gpu-32x512", "--peers", "")
    return Row(part, name, (*shared, *flags, *(TINY if tiny else ())), **more)


def _benchmarks(tiny: bool) -> list[Row]:
    def batch(b: int, t: int) -> tuple[Any, ...]:
        return ("--batch", 2, "--length", 32) if tiny else ("--batch", b, "--length", t)

    ours = ("--encodings", OURS)
    found = [
        _step("32x512", tiny, *batch(32, 512), *ours),
        _step("8x4096", tiny, *batch(8, 4096), *ours, "--rounds", 9),
        _step("32x512, half padding", tiny, *batch(32, 512), *ours, "--padding", 0.5),
    ]
    for peer, encodings in PEERS.items():
        flags = (*batch(32, 512), "--peers", peer, "--encodings", f"learned,{encodings}")
        found.append(_step(f"32x512, {peer}", tiny, *flags, needs=("transformers",)))
    for length in (512, 128, 2048, 4096):
        flags = ("--encodings", f"{OURS},alibi", "--backends", "auto,flash,sdpa,eager")
        script = ("scripts/benchmark_attention.py", "--lengths", 32 if tiny else length, *flags)
        more = TINY_ATTENTION if tiny else ()
        found.append(Row("benchmarks", f"attention, {length} tokens", (*script, *more)))
    evaluation = ("--mode", "evaluation")
    found.append(_step("32x512, evaluation", tiny, *batch(32, 512), *ours, *evaluation))
    others = ("--encodings", ",".join(["learned", *OTHERS]), "--rounds", 5)
    found.append(_step("32x512, other encodings", tiny, *batch(32, 512), *others))
    return found


def _trainings(tiny: bool, work: Path) -> list[Row]:
    """Two of each: a row for the spread."""
    batch, tokens, updates, log = (2, 32, 6, 2) if tiny else (32, 512, UPDATES, LOG_INTERVAL)
    flags = (
        *("--task", "masked_lm", "--criterion", "masked_lm", "--sample-break-mode", "none"),
        *("--tokens-per-sample", tokens, "--batch-size", batch, "--max-update", updates),
        *("--required-batch-size-multiple", 1, "--adam-betas", "(0.9, 0.98)", "--adam-eps", 1e-6),
        *("--clip-norm", 1.0, "--lr", 1e-4, "--lr-scheduler", "polynomial_decay"),
        *("--warmup-updates", 2, "--total-num-update", updates, "--no-save"),
        *("--disable-validation", "--num-workers", 0 if tiny else 2, "--log-format", "json"),
        *("--log-interval", log, "--optimizer", "adam", "--user-dir", PLUGIN.relative_to(ROOT)),
        *(("--cpu", "--max-positions", tokens) if tiny else ("--bf16",)),
    )
    small = ("--encoder-layers", 1, "--encoder-embed-dim", 16, "--encoder-ffn-embed-dim", 32)
    flags += (*small, "--encoder-attention-heads", 2) if tiny else ()
    models = {"stock RoBERTa": ("--arch", "roberta_base")}
    for name in ("learned", "tupe_a", "tupe_r", "rope"):
        models[name] = ("--arch", "tupe_roberta_base", "--position-encoding", name)
    models["tupe_r, fused_adam"] = (*models["tupe_r"], "--optimizer", "fused_adam")
    command = ("-m", "examples.study.timed_train", work / "data")
    words, found = batch * tokens, []
    for turn in (1, 2):
        for name, own in models.items():
            full = (*command, *flags, *own)
            found.append(Row("training", f"{name} ({turn})", full, "clock", ("fairseq",), words))
        size = ("--batch", batch, "--tokens", tokens, "--updates", updates, "--log-interval", log)
        full = ("-m", "examples.gpu.huggingface", *size, *(("--tiny",) if tiny else ()))
        needs = ("transformers",)
        found.append(Row("training", f"HF RoBERTa ({turn})", full, "clock", needs, words))
    return found


def _memory(tiny: bool) -> list[Row]:
    flags = ("--encodings", "learned,tupe_a,tupe_r,t5,rope", "--rounds", 3)
    lengths = (32, 64) if tiny else [2**n for n in range(9, 16)]
    return [
        _step(f"1x{n}", tiny, *flags, "--batch", 1, "--length", n, part="memory") for n in lengths
    ]


def _study(tiny: bool, work: Path, text: list[Path], glue: Path | None) -> list[Row]:
    text = text or ([work / "text.txt"] if tiny else [])
    if not text:
        return []
    where = ("--text", *text, "--glue", glue or work / "no-glue", "--out", work / "study")
    few = ("--models", "learned", "tupe_a", "--seeds", 1, "--workers", 1) if tiny else ()
    command = ("-m", "examples.study.study", *where, "--scale", "smoke" if tiny else "small", *few)
    return [Row("study", "smoke" if tiny else "small", command, "study", ("fairseq",), limit=1e9)]
