"""Figures of the study: loss against updates, a heat map per head, the four correlations.

    python -m examples.study.figures DATA_BIN OUT FOLDER MODEL TITLE LENGTH

draws what the model in FOLDER has learned about positions, and writes FOLDER/positions.json.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from examples.shared import script
from examples.shared.frequencies import read_tokens
from examples.shared.panels import draw_floor, label_ends, panels
from examples.study.measures import Curve, band
from examples.study.plan import BASELINE, MODELS
from tupe_fairseq import TupeRobertaModel
from tupe_fairseq.analysis import CORRELATION_TERMS, correlation_terms, position_maps
from tupe_fairseq.files import replacing
from tupe_fairseq.plots import draw_positional_correlations, save_png

#: Sequences over which the correlations are averaged, and number in a batch.
SEQUENCES, BATCH = 100, 10


def draw_losses(curves: dict[str, list[Curve]], out: Path, command: str, floor: float) -> None:
    """Mean over seeds, with a band from lowest to highest.

    Args:
        curves: of each model of plan.py, one for each seed.
        out: a name ending in .png.
        command: that made the figure.
        floor: loss of token frequencies alone.
    """
    figure, (axes,) = panels(7, 4.5)
    draw_floor(axes, floor)
    ends, colors = {}, {}
    for i, (name, own) in enumerate(curves.items()):
        if own:
            updates, means, lows, highs = zip(*band(own), strict=True)
            title, color = MODELS[name][0], f"C{i}"
            axes.plot(updates, means, color=color)
            axes.fill_between(updates, lows, highs, color=color, alpha=0.15, linewidth=0)
            ends[title], colors[title] = (updates[-1], means[-1]), color
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel="updates", ylabel="validation loss (bits per masked token)")
    label_ends(axes, ends, colors, "{:.2f}")
    save_png(figure, out, command)


def draw_heads(encoder: Any, title: str, length: int, out: Path, command: str) -> None:
    """The positional part of the scores of a model, a map per head."""
    drawn = position_maps(encoder, length)
    figure = draw_positional_correlations(drawn.maps, f"{title}\n{drawn.meaning}", command)
    save_png(figure, out, command)


def draw_terms(
    encoder: Any, tokens: Tensor, title: str, out: Path, command: str
) -> dict[str, tuple[float, float]]:
    """The paper's figure 2: the four correlations of a model that adds positions to words.

    Args:
        encoder: of the model.
        tokens: ids of sequences without padding, N×T.
        title: of the figure.
        out: a name ending in .png.
        command: that made the figure.

    Returns:
        Standard deviations of each term over pairs of positions without [CLS]: of the mean over
        sequences and heads, as drawn; and within a sequence and head.
    """
    means, within = [], []
    for batch in tokens.split(BATCH):
        # 5×B×H×T×T; the last is the remainder, neither words nor positions.
        terms = correlation_terms(encoder, batch)[:-1]
        means.append(terms.mean(dim=(1, 2)))
        within.append(terms[..., 1:, 1:].flatten(-2).std(-1).mean(dim=(1, 2)))
    maps = torch.stack(means).mean(0)
    figure = draw_positional_correlations(maps, title, command, CORRELATION_TERMS, True)
    save_png(figure, out, command)
    drawn = maps[:, 1:, 1:].flatten(1).std(-1)
    inside = torch.stack(within).mean(0)
    pairs = zip(drawn.tolist(), inside.tolist(), strict=True)
    return dict(zip(CORRELATION_TERMS, pairs, strict=True))


def sequences(tokens: np.ndarray, first: int, length: int) -> Tensor:
    """SEQUENCES×T: blocks of text after `first`, as in pre-training."""
    count = min(SEQUENCES, len(tokens) // (length - 1))
    blocks = tokens[: count * (length - 1)].astype(np.int64).reshape(count, length - 1)
    return F.pad(torch.from_numpy(blocks), (1, 0), value=first)


def main() -> None:
    """See the module's docstring."""
    data, out, model, name, title, length = sys.argv[1:]
    title, command = f"{MODELS[name][0]}, {title}", "python -m examples.study.study"
    found: dict[str, Any] = {}
    roberta = TupeRobertaModel.from_pretrained(model, "checkpoint_last.pt", data)
    encoder = roberta.model.encoder.sentence_encoder
    if name == BASELINE:
        batch = sequences(read_tokens(Path(data, "valid")), 0, int(length))
        title += f", first layer, mean of {len(batch)} held-out sequences and all heads"
        terms = draw_terms(encoder, batch, title, Path(out, "terms.png"), command)
        found = {"sequences": len(batch), "terms": terms}
    else:
        draw_heads(encoder, title, int(length), Path(out, f"heads_{name}.png"), command)
    with replacing(Path(model, "positions.json")) as aside:
        aside.write_text(json.dumps(found))


if __name__ == "__main__":
    script.run(main)
