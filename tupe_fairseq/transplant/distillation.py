"""From a source to the same model with another position encoding."""

import sys
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ..base.kept_settings import keep
from ..convert.models import Converted
from ..convert.sentence_modules import read_sentence_model, text_notes
from ..position import POSITION_ENCODINGS
from .encoders import Encoder, transplanted
from .recipe import Recipe
from .start import keep_mean_position
from .texts import Texts, check_pairs
from .training import Distillation


@dataclass(frozen=True)
class Distilled:
    """The result of `distil`.

    Attributes:
        converted: the model with its new positions and trained parameters.
        measures: the last ones on held-out texts (fidelity.py), with `update`.
        longest: tokens of the longest text of the training.
    """

    converted: Converted
    measures: dict[str, float]
    longest: int


def distil(
    source: Converted,
    tokenizer: Any,
    given: str | Path | Sequence[str],
    recipe: Recipe,
    out: Path | None = None,
    device: str | torch.device = "cpu",
) -> Distilled:
    """Give a model another position encoding, and train it to have the features of the source.

    Args:
        source: stays as it is.
        tokenizer: of transformers.
        given: a file with a text in each line, or texts.
        recipe: how it is done.
        out: a directory for checkpoints and measures; the same call continues after an
            interruption, and one with more updates goes on. None: nothing is written.
        device: of the training.

    Raises:
        UsageError: something does not fit, in one line.
    """
    positions = recipe.max_positions or source.settings["max_position_embeddings"]
    length = recipe.length_for(source.settings["max_position_embeddings"])
    check_pairs(tokenizer, recipe.pairs)
    texts = Texts(given, tokenizer, length, device)
    options = dict(recipe.options)
    continues = POSITION_ENCODINGS[recipe.position_encoding].continues_by_distance
    if continues and texts.longest < positions:
        # Those that no text reaches in training.
        options.setdefault("extend_positions", "toeplitz")
        options.setdefault("trained_positions", texts.longest)
    made = transplanted(
        source, recipe.position_encoding, options, recipe.max_positions, recipe.seed
    )
    if out is not None:
        keep(out, _settings(source, texts, recipe, length))
    print(*made.notes, sep="\n", file=sys.stderr)
    torch.manual_seed(recipe.seed)
    teacher = Encoder(source).eval().to(device)
    student = Encoder(made).to(device)
    _warn(made, texts, student)
    training = Distillation(student, teacher, texts, recipe, out)
    if not training.resume() and recipe.start == "mean":
        keep_mean_position(teacher, student, texts.longest)
    training.run()
    made.state = {name: value.cpu() for name, value in student.state(made).items()}
    return Distilled(made, training.history[-1], texts.longest)


def _settings(source: Converted, texts: Texts, recipe: Recipe, length: int) -> dict[str, Any]:
    """What must not change between calls that go on; the number of updates may."""
    checksum = 0
    for name, value in sorted(source.state.items()):
        checksum = zlib.crc32(name.encode(), checksum)
        checksum = zlib.crc32(value.contiguous().numpy().tobytes(), checksum)
    lines = "\n".join((*texts.held_out, *texts.train)).encode()
    settings = asdict(recipe) | {"length": length, "source": checksum, "texts": zlib.crc32(lines)}
    return {name: value for name, value in settings.items() if name != "updates"}


def _warn(made: Converted, texts: Texts, student: Encoder) -> None:
    """Say what the length leaves out, parts of texts and positions, and what texts should have."""
    sentences = read_sentence_model(made.files)
    for note in text_notes(sentences, "the distillation", texts.longest) if sentences else ():
        print(note, file=sys.stderr)
    if texts.share_cut > 0.5:
        print(f"--length {texts.length} cuts {texts.share_cut:.0%} of the texts.", file=sys.stderr)
    encoding = student.base.encoder.embed_positions
    longest = texts.longest
    positions = encoding.shape.max_positions
    extended = encoding.shape.extend_positions
    if encoding.position_tables() and longest < positions and not extended:
        print(
            f"Position embeddings from {longest} on are not trained, since texts have at most "
            f"{longest} tokens: give --length {positions} and longer texts, or --max-positions "
            f"{longest}.",
            file=sys.stderr,
        )
