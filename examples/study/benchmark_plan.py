"""All settings of benchmark.py; the reasons are in benchmark/plan.md."""

from typing import NamedTuple

from examples.study.training import Recipe


def sizes(layers: int = 2, width: int = 128, heads: int = 4) -> tuple[str, ...]:
    """Flags of a model's size."""
    return (
        *("--encoder-layers", str(layers), "--encoder-embed-dim", str(width)),
        *("--encoder-ffn-embed-dim", str(4 * width), "--encoder-attention-heads", str(heads)),
    )


#: Part 1: one change at a time, for encodings that add positions to words, as flags for
#: fairseq-train; of two equal flags, the last counts. Those of initial weights and positions are
#: not here: see the end of plan.md.
BASELINE = {
    "base": (),
    "lr=2e-3": ("--lr", "2e-3"),
    "lr=4e-3": ("--lr", "4e-3"),
    "lr=5e-4": ("--lr", "5e-4"),
    "tokens=32": ("--tokens-per-sample", "32", "--batch-size", "64"),
    "batch=4": ("--batch-size", "4"),
    "heads=1": sizes(heads=1),
    "layers=4": sizes(layers=4),
    "pre-norm": ("--encoder-normalize-before",),
    "warmup=600": ("--warmup-updates", "600"),
    "dropout=0.1": ("--dropout", "0.1", "--attention-dropout", "0.1"),
}
#: ALiBi's biases of two tokens at the same distance differ on both sides.
SIDES = {"alibi-sides": ("--alibi-sides",)}
#: Further rates of `second-rate`.
RATE = {"lr=1e-3": ("--lr", "1e-3"), "lr=8e-3": ("--lr", "8e-3")}
#: A twentieth of the updates of the search for the rate.
WARMUP = {
    f"warmup=200,lr={rate}": ("--warmup-updates", "200", "--lr", rate) for rate in ("2e-3", "4e-3")
}
SETTINGS = BASELINE | SIDES | RATE | WARMUP
PILOT = Recipe(
    arch="tupe_roberta",
    updates=3000,
    validations=15,
    tokens_per_sample=128,
    batch_size=16,
    lr=1e-3,
    flags=[*sizes(), "--max-valid-steps", "20"],
)


#: `learned` with initial positions that end its plateau early.
STARTED = "learned+from_sinusoids"
#: Encodings of parts 2 and 3, and those of the larger size, part 4.
ENCODINGS = (
    "none",
    "learned",
    STARTED,
    "sinusoidal",
    "t5",
    "alibi",
    "rope",
    "deberta",
    "tupe_a",
    "tupe_r",
)
LARGER = ("learned", STARTED, "rope", "deberta", "tupe_r")
#: Those on layers of ModernBERT, part 6.
ON_MODERN = ("learned", "t5", "rope", "deberta", "tupe_r")
#: The first learning rates of each encoding; more follow while the best is at an end.
RATES = (1e-3, 2e-3, 4e-3, 8e-3)
LARGER_RATES = (5e-4, 1e-3, 2e-3, 4e-3)
SEEDS = (1, 2, 3)


class Size(NamedTuple):
    """Models of one size, parts 2 to 4.

    Attributes:
        name: in the folders and in the report.
        recipe: of the full length; the learning rate is tuned.
        shorter: of the search for the learning rate.
        encodings: that are trained.
        seeds: at full length.
        rates: the first learning rates of the search.
    """

    name: str
    recipe: Recipe
    shorter: Recipe
    encodings: tuple[str, ...]
    seeds: tuple[int, ...]
    rates: tuple[float, ...] = RATES


def recipe(updates: int, flags: tuple[str, ...]) -> Recipe:
    """What part 1 has decided: 32 tokens, and a fifth of the updates for the warm-up."""
    flags = (*flags, "--warmup-updates", str(updates // 5), "--max-valid-steps", "80")
    return PILOT._replace(
        updates=updates, validations=20, tokens_per_sample=32, batch_size=64, flags=flags
    )


def modern(updates: int) -> Recipe:
    """The same with layers of ModernBERT: 2 of width 128, 4 heads."""
    return recipe(updates, ("--encoder-layers", "2"))._replace(arch="tupe_roberta_modern_tiny")


class Trial(NamedTuple):
    """Runs of part 1.

    Attributes:
        recipe: of all runs.
        settings: by encoding, names of SETTINGS.
        seeds: of each setting.
    """

    recipe: Recipe
    settings: dict[str, tuple[str, ...]]
    seeds: tuple[int, ...] = (1,)


#: Part 1 by name. `plateau` was added after `baseline`: four times longer; `sides` and
#: `second-rate` after part 3, `short-warmup` with part 6, `second-rate-modern` in its course.
TRIALS = {
    "baseline": Trial(
        PILOT,
        {
            "none": ("base", "tokens=32"),
            "sinusoidal": ("base", "lr=2e-3"),
            "learned": tuple(BASELINE),
        },
    ),
    "plateau": Trial(PILOT._replace(updates=12000, validations=60), {"learned": ("tokens=32",)}),
    "sides": Trial(recipe(4000, sizes())._replace(lr=4e-3), {"alibi": tuple(SIDES)}),
    "second-rate": Trial(
        recipe(8000, sizes())._replace(lr=4e-3),
        {
            "tupe_r": ("lr=4e-3",),
            "rope": ("lr=8e-3",),
            "deberta": ("lr=8e-3",),
            "learned": ("lr=1e-3",),
        },
        SEEDS,
    ),
    "short-warmup": Trial(modern(4000), {"tupe_r": tuple(WARMUP)}),
    "second-rate-modern": Trial(modern(8000)._replace(lr=2e-3), {"tupe_r": ("lr=2e-3",)}, SEEDS),
}


def gpu_recipe(updates: int, flags: tuple[str, ...]) -> Recipe:
    """One GPU: longer sequences, sixteen times as many tokens per update, fp16."""
    longer = recipe(updates, (*flags, "--fp16"))
    return longer._replace(tokens_per_sample=128, batch_size=256)


BASE = sizes(12, 768, 12)
GPU_RATES = (2.5e-4, 5e-4, 1e-3, 2e-3)
SMALL = sizes(6, 512, 8)
#: By scale. Those of `cpu` were set from the results of part 1, before the first run of part 2;
#: those of `gpu` were not run.
SIZES = {
    "cpu": (
        Size("2x128", recipe(8000, sizes()), recipe(4000, sizes()), ENCODINGS, SEEDS),
        Size(
            "4x256",
            recipe(4000, sizes(4, 256)),
            recipe(2000, sizes(4, 256)),
            LARGER,
            SEEDS[:2],
            LARGER_RATES,
        ),
        Size("2x128-modern", modern(8000), modern(4000), ON_MODERN, SEEDS),
    ),
    "gpu": (
        Size(
            "6x512",
            gpu_recipe(10000, SMALL),
            gpu_recipe(5000, SMALL),
            ENCODINGS,
            SEEDS,
            GPU_RATES,
        ),
        Size(
            "12x768",
            gpu_recipe(5000, BASE),
            gpu_recipe(2500, BASE),
            LARGER,
            SEEDS[:2],
            GPU_RATES,
        ),
    ),
}
