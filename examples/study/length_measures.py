"""Losses of trained models at lengths beyond the trained one, on the same held-out tokens.

A block is as long as the longest length. At each length it is cut into sequences of that length:
the predicted tokens stay the same, and most of them get more context as the length grows.

    python -m examples.study.length_measures KIND ENCODING DATA_BIN FOLDER LENGTH BLOCKS

measures the model in FOLDER, which was trained at LENGTH tokens, and writes measured.json there.
Ways of measuring that the file has already are left out.
"""

import json
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from examples.shared import script
from examples.shared.frequencies import read_tokens
from tupe_fairseq import TupeRobertaModel, TupeTransformerLM, UsageError
from tupe_fairseq.files import replacing

#: Lengths as multiples of the trained one.
FACTORS = (1, 2, 4, 8, 16)
#: Share of the tokens that masked models predict; all of these are replaced by <mask>.
MASKED_SHARE = 0.15
#: Scalings of `rope`. longrope is not among them: it needs divisors that a search finds.
SCALINGS = ("linear", "ntk", "dynamic", "yarn", "llama3")
#: Encodings without absolute positions that are also measured with a window, which hides the keys
#: at distances beyond the trained ones.
WINDOWED = (
    *("none", "rope", "xpos", "alibi", "t5", "fire", "cope", "kerple_log"),
    *("pope", "relative_bank", "urpe"),
)
#: Encodings whose language models are also measured with --log-scaling-floor at the trained
#: length: it changes no score in training.
SCALED = ("none", "rope", "pope", "relative_bank")
#: Encodings that are also continued by distance, and then with a window too.
CONTINUED = ("tupe_a", "tupe_r")
#: Tokens of a forward pass, and seed of masks and of drawn positions.
TOKENS, SEED = 8192, 1


def causal_logits(hub: Any, tokens: Tensor, chosen: Tensor) -> Tensor:
    """Logits of all tokens but the first: B×(T+1) -> B×T×V."""
    return hub.models[0](tokens[:, :-1])[0]


def masked_logits(hub: Any, tokens: Tensor, chosen: Tensor) -> Tensor:
    """As `causal_logits`, of a model that sees <s> in place of the first and masks as chosen."""
    words = tokens[:, 1:].masked_fill(chosen, hub.task.mask_idx)
    inputs = F.pad(words, (1, 0), value=hub.task.source_dictionary.bos())
    return hub.model(inputs)[0][:, 1:]


class Kind(NamedTuple):
    """A kind of language model.

    Attributes:
        title: in the report.
        arch: fairseq's name.
        flags: for fairseq-train.
        model: class with `from_pretrained`.
        positions: the argument that limits the length.
        special: tokens of a sequence beside those of the text.
        share: of the tokens that are predicted.
        logits: of a batch.
    """

    title: str
    arch: str
    flags: tuple[str, ...]
    model: Any
    positions: str
    special: int
    share: float
    logits: Callable[[Any, Tensor, Tensor], Tensor]


KINDS = {
    "causal": Kind(
        title="Causal language models",
        arch="tupe_transformer_lm_tiny",
        flags=(
            *("--task", "language_modeling", "--criterion", "cross_entropy"),
            "--share-decoder-input-output-embed",
        ),
        model=TupeTransformerLM,
        positions="max_target_positions",
        special=0,
        share=1.0,
        logits=causal_logits,
    ),
    "masked": Kind(
        title="Masked language models",
        arch="tupe_roberta_tiny",
        flags=(),
        model=TupeRobertaModel,
        positions="max_positions",
        special=1,
        share=MASKED_SHARE,
        logits=masked_logits,
    ),
}


def read_blocks(data: Path, size: int, most: int) -> Tensor:
    """The first blocks of the held-out text, each with the token before it: N×(size+1).

    Raises:
        UsageError: the text is shorter than a block.
    """
    stream = read_tokens(data / "valid")
    count = min(most, (len(stream) - 1) // size)
    if count < 1:
        raise UsageError(
            f"DATA_BIN is {str(data)!r}, but its held-out text has {len(stream)} tokens; at "
            f"least {size + 1} are needed for sequences of the longest length."
        )
    kept = torch.from_numpy(stream[: count * size + 1].astype(np.int64))
    return kept.unfold(0, size + 1, size)


def chosen_tokens(kind: Kind, blocks: Tensor) -> Tensor:
    """Which tokens after the first of each block are predicted; the same in every call."""
    generator = torch.Generator().manual_seed(SEED)
    drawn = torch.rand(len(blocks), blocks.size(1) - 1, generator=generator)
    return drawn < kind.share


@torch.no_grad()
def bits(kind: Kind, hub: Any, blocks: Tensor, chosen: Tensor, length: int) -> Tensor:
    """Loss in bits of each token after the first of each block; NaN where not predicted.

    Args:
        kind: of the model.
        hub: what `from_pretrained` returns.
        blocks: N×(S+1).
        chosen: N×S.
        length: tokens of the text in a sequence, a divisor of S.

    Returns:
        N×S.
    """
    sequences = blocks.unfold(1, length + 1, length).flatten(0, 1)
    predicted = chosen.unfold(1, length, length).flatten(0, 1)
    found = []
    torch.manual_seed(SEED)
    size = max(1, TOKENS // length)
    for tokens, own in zip(sequences.split(size), predicted.split(size), strict=True):
        scores = kind.logits(hub, tokens, own).float()
        loss = F.cross_entropy(scores.transpose(1, 2), tokens[:, 1:], reduction="none")
        found.append(loss.div(torch.tensor(2.0).log()).masked_fill(~own, torch.nan))
    return torch.cat(found).view(chosen.shape)


def measure(
    kind: Kind, checkpoint: Path, data: Path, trained: int, blocks: Tensor, changed: dict[str, Any]
) -> dict[str, Any]:
    """Losses of a model at all lengths.

    A trained table of positions is extended (`--extend-positions hierarchical`).

    Args:
        kind: of the model.
        checkpoint: of the model.
        data: with its dictionary.
        trained: length, in tokens with special ones.
        blocks: of held-out text, N×(S+1).
        changed: options that differ from those of the training.

    Returns:
        `tokens`, how many are predicted; by factor the `mean` loss, and `last`, that of the last
        tokens of the blocks, as many as a sequence of the trained length has; `bands`, that at the
        longest length in each range of positions (None: never predicted).
    """
    unit, chosen = trained - kind.special, chosen_tokens(kind, blocks)
    results: dict[str, Any] = {"tokens": int(chosen.sum()), "mean": {}, "last": {}}
    for factor in FACTORS:
        longest = {kind.positions: factor * trained, "tokens_per_sample": factor * trained}
        hub = kind.model.from_pretrained(
            *(checkpoint.parent, checkpoint.name, data),
            **{**longest, "extend_positions": "hierarchical", **changed},
        )
        loss = bits(kind, hub, blocks, chosen, factor * unit)
        results["mean"][str(factor)] = loss.nanmean().item()
        results["last"][str(factor)] = loss[:, -unit:].nanmean().item()
    means = loss.view(-1, factor * unit).nanmean(0)
    parts = [means[start:stop].nanmean().item() for start, stop in bands(unit)]
    return {**results, "bands": [None if part != part else part for part in parts]}


def bands(unit: int) -> list[tuple[int, int]]:
    """Ranges of positions: quarters of the trained length at first, then doubling."""
    return list(pairwise([0, unit // 4, unit // 2, *(k * unit for k in FACTORS)]))


def ways(encoding: str, length: int, causal: bool = False) -> dict[str, dict[str, Any]]:
    """Options with which a model is measured, by their name, at a trained length."""
    found: dict[str, dict[str, Any]] = {"": {}}
    if encoding == "rope":
        found |= {scaling: {"rope_scaling": scaling} for scaling in SCALINGS}
    if encoding in WINDOWED:
        found["window"] = {"attention_window": length - 1}
    if causal and encoding in SCALED:
        found["log scaling"] = {"log_scaling_floor": length}
    if encoding in CONTINUED:
        toeplitz = {"extend_positions": "toeplitz", "trained_positions": length}
        found["toeplitz"] = toeplitz
        found["toeplitz, window"] = {**toeplitz, "attention_window": length - 2}
    return found


def main() -> None:
    """See the module's docstring."""
    part, encoding, *paths, length, count = sys.argv[1:]
    kind, (data, folder), trained = KINDS[part], map(Path, paths), int(length)
    blocks = read_blocks(data, FACTORS[-1] * (trained - kind.special), int(count))
    out = folder / "measured.json"
    found = json.loads(out.read_text()) if out.exists() else {}
    for way, changed in ways(encoding, trained, part == "causal").items():
        if way not in found:
            checkpoint = folder / "checkpoint_last.pt"
            found[way] = measure(kind, checkpoint, data, trained, blocks, changed)
            with replacing(out) as aside:
                aside.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    script.run(main)
