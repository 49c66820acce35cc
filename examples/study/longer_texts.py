"""Losses of masked models at lengths beyond the trained one, on the same held-out tokens.

A block is as long as the longest length. At each length it is cut into sequences of that length:
the predicted tokens stay the same, and most of them get more context as the length grows.

    python -m examples.study.longer_texts ENCODING DATA_BIN FOLDER LENGTH BLOCKS

measures the model in FOLDER, which was trained at LENGTH tokens, and writes measured.json there.
Ways of measuring that the file has already are left out.
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
from tupe_fairseq import TupeRobertaModel, UsageError
from tupe_fairseq.base.files import replacing

#: Lengths as multiples of the trained one.
FACTORS = (1, 2, 4, 8, 16)
#: Share of the tokens that are predicted; all of these are replaced by <mask>.
MASKED_SHARE = 0.15
#: Scalings of `rope` that need no further settings.
SCALINGS = ("linear", "ntk", "dynamic", "yarn")
#: Encodings without absolute positions that are also measured with a window, which hides the keys
#: at distances beyond the trained ones.
WINDOWED = ("none", "rope", "alibi", "t5", "fire", "kerple_log", "pope")
#: Encodings that are also continued by distance, and then with a window too.
CONTINUED = ("tupe_a", "tupe_r")
#: Tokens of a forward pass, and seed of masks.
TOKENS = 8192
SEED = 1


def read_blocks(data: Path, trained: int, most: int) -> Tensor:
    """The first blocks of the held-out text, each with the token before it: N×(S+1).

    A block has `FACTORS[-1]` sequences of `trained` tokens, without their <s>.

    Raises:
        UsageError: the text is shorter than a block.
    """
    stream = read_tokens(data / "valid")
    size = FACTORS[-1] * (trained - 1)
    count = min(most, (len(stream) - 1) // size)
    if count < 1:
        raise UsageError(
            f"DATA_BIN is {str(data)!r}, but its held-out text has {len(stream)} tokens; at "
            f"least {size + 1} are needed for sequences of the longest length."
        )
    kept = torch.from_numpy(stream[: count * size + 1].astype(np.int64))
    return kept.unfold(0, size + 1, size)


def chosen_tokens(blocks: Tensor) -> Tensor:
    """Which tokens after the first of each block are predicted; the same in every call."""
    generator = torch.Generator().manual_seed(SEED)
    drawn = torch.rand(len(blocks), blocks.size(1) - 1, generator=generator)
    return drawn < MASKED_SHARE


@torch.no_grad()
def bits(hub: Any, blocks: Tensor, chosen: Tensor, length: int) -> Tensor:
    """Loss in bits of each token after the first of each block; NaN where not predicted.

    The model sees <s> in place of the token before a sequence.

    Args:
        hub: what `from_pretrained` returns.
        blocks: N×(S+1).
        chosen: N×S.
        length: tokens of the text in a sequence, a divisor of S.

    Returns:
        N×S.
    """
    sequences = blocks[:, 1:].reshape(-1, length)
    predicted = chosen.reshape(-1, length)
    words = sequences.masked_fill(predicted, hub.task.mask_idx)
    inputs = F.pad(words, (1, 0), value=hub.task.source_dictionary.bos())
    found = []
    size = max(1, TOKENS // length)
    for tokens, own in zip(inputs.split(size), sequences.split(size), strict=True):
        scores = hub.model(tokens)[0][:, 1:].float()
        found.append(F.cross_entropy(scores.transpose(1, 2), own, reduction="none"))
    loss = torch.cat(found).view(chosen.shape).div(torch.tensor(2.0).log())
    return loss.masked_fill(~chosen, torch.nan)


def measure(
    checkpoint: Path, data: Path, trained: int, blocks: Tensor, changed: dict[str, Any]
) -> dict[str, Any]:
    """Losses of a model at all lengths.

    A trained table of positions is extended (`--extend-positions hierarchical`).

    Args:
        checkpoint: of the model.
        data: with its dictionary.
        trained: length, in tokens with <s>.
        blocks: of held-out text, N×(S+1).
        changed: options that differ from those of the training.

    Returns:
        `tokens`, how many are predicted; by factor the `mean` loss, and `last`, that of the last
        tokens of the blocks, as many as a sequence of the trained length has.
    """
    unit = trained - 1
    chosen = chosen_tokens(blocks)
    results: dict[str, Any] = {"tokens": int(chosen.sum()), "mean": {}, "last": {}}
    for factor in FACTORS:
        longest = {"max_positions": factor * trained, "tokens_per_sample": factor * trained}
        hub = TupeRobertaModel.from_pretrained(
            checkpoint.parent,
            checkpoint.name,
            data,
            **{**longest, "extend_positions": "hierarchical", **changed},
        )
        loss = bits(hub, blocks, chosen, factor * unit)
        results["mean"][str(factor)] = loss.nanmean().item()
        results["last"][str(factor)] = loss[:, -unit:].nanmean().item()
    return results


def ways(encoding: str, length: int) -> dict[str, dict[str, Any]]:
    """Options with which a model is measured, by their name, at a trained length."""
    found: dict[str, dict[str, Any]] = {"": {}}
    if encoding == "rope":
        found |= {scaling: {"rope_scaling": scaling} for scaling in SCALINGS}
    if encoding in WINDOWED:
        found["window"] = {"attention_window": length - 1}
    if encoding in CONTINUED:
        toeplitz = {"extend_positions": "toeplitz", "trained_positions": length}
        found["toeplitz"] = toeplitz
        found["toeplitz, window"] = {**toeplitz, "attention_window": length - 2}
    return found


def main() -> None:
    """See the module's docstring."""
    encoding, *paths, length, count = sys.argv[1:]
    data, folder = map(Path, paths)
    trained = int(length)
    blocks = read_blocks(data, trained, int(count))
    out = folder / "measured.json"
    found = json.loads(out.read_text()) if out.exists() else {}
    for way, changed in ways(encoding, trained).items():
        if way not in found:
            checkpoint = folder / "checkpoint_last.pt"
            found[way] = measure(checkpoint, data, trained, blocks, changed)
            with replacing(out) as aside:
                aside.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    script.run(main)
