"""Figures of the study: loss against updates, a heat map per head, the four correlations."""

from pathlib import Path

import torch
from fairseq.data import indexed_dataset
from torch import Tensor

from examples.study.measures import Curve, band
from examples.study.plan import BASELINE, MODELS
from tupe_fairseq import TupeRobertaModel
from tupe_fairseq.analysis import CORRELATION_TERMS, correlation_terms, position_maps
from tupe_fairseq.plots import draw_positional_correlations, figure_class, save_png

#: Sequences over which the correlations are averaged, and number in a batch.
SEQUENCES, BATCH = 100, 10


def draw_losses(curves: dict[str, list[Curve]], unigram: float, out: Path, command: str) -> None:
    """Mean over seeds, with a band from lowest to highest; the final loss of BERT-A.

    Args:
        curves: of each model, one for each seed.
        unigram: loss of word frequencies alone.
        out: a name ending in .png.
        command: that made the figure.
    """
    figure = figure_class()(figsize=(7, 4.5), dpi=150, layout="constrained")
    axes = figure.subplots()
    for i, name in enumerate(MODELS):
        points = band(curves.get(name, []))
        if not points:
            continue
        updates, means, lows, highs = zip(*points, strict=True)
        label = f"{MODELS[name][0]} ({name})"
        axes.plot(updates, means, color=f"C{i}", label=label)
        axes.fill_between(updates, lows, highs, color=f"C{i}", alpha=0.15, linewidth=0)
        if name == BASELINE:
            axes.axhline(means[-1], color=f"C{i}", linestyle=":", linewidth=1)
    axes.axhline(unigram, color="0.5", linestyle="--", linewidth=1, label="word frequencies alone")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel="updates", ylabel="validation loss (bits per masked token)")
    # Opaque, since the line of word frequencies passes behind it.
    axes.legend(fontsize=8, framealpha=1, edgecolor="none")
    axes.spines[["top", "right"]].set_visible(False)
    save_png(figure, out, command)


def draw_heads(model: Path, title: str, length: int, out: Path, command: str) -> None:
    """The positional part of the scores of a model in a folder, a map per head."""
    encoder = TupeRobertaModel.from_pretrained(model).model.encoder.sentence_encoder
    drawn = position_maps(encoder, length)
    figure = draw_positional_correlations(drawn.maps, f"{title}\n{drawn.meaning}", command)
    save_png(figure, out, command)


def draw_terms(
    model: Path, tokens: Tensor, title: str, out: Path, command: str
) -> dict[str, tuple[float, float]]:
    """The paper's figure 2: the four correlations of a model that adds positions to words.

    Args:
        model: folder of the model.
        tokens: ids of sequences without padding, N×T.
        title: of the figure.
        out: a name ending in .png.
        command: that made the figure.

    Returns:
        Standard deviations of each term over pairs of positions without [CLS]: of the mean over
        sequences and heads, as drawn; and within a sequence and head.
    """
    encoder = TupeRobertaModel.from_pretrained(model).model.encoder.sentence_encoder
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


def read_tokens(prefix: Path) -> Tensor:
    """All tokens of binarised data, concatenated."""
    dataset = indexed_dataset.make_dataset(str(prefix), "mmap")
    return torch.cat([dataset[i] for i in range(len(dataset))])


def sequences(tokens: Tensor, first: int, length: int) -> Tensor:
    """SEQUENCES×T: blocks of text after `first`, as in pre-training."""
    count = min(SEQUENCES, len(tokens) // (length - 1))
    blocks = tokens[: count * (length - 1)].view(count, length - 1).long()
    return torch.cat([torch.full((count, 1), first), blocks], dim=1)


def unigram_loss(train: Tensor, valid: Tensor, symbols: int) -> float:
    """Bits per token of `valid` by the frequencies of `train`, with every count increased by 1."""
    counts = torch.bincount(train.long(), minlength=symbols).double() + 1
    return -(counts / counts.sum()).log2()[valid.long()].mean().item()
