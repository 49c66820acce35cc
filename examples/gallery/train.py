"""Train a tiny model with one encoding, and draw what the encoding adds before and after.

    python -m examples.gallery.train ENCODING --out DIRECTORY

The task needs positions: for each token, predict the token three positions to the left. Tokens are
drawn uniformly, so a model without positions can only count them. Position 0 holds [CLS].
Encodings for decoders only are trained in a decoder, all others in an encoder.

DIRECTORY gets maps.png, a head by query and key, and result.json.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from examples.shared import script
from scripts.drawing.maps import PositionMaps, position_maps
from scripts.drawing.plots import draw_positional_correlations, save_png
from tupe_fairseq import ConfigurationError, build_position_encoding
from tupe_fairseq.base.files import replacing
from tupe_fairseq.position import POSITION_ENCODINGS
from tupe_fairseq.transformer.config import StackConfig
from tupe_fairseq.transformer.stack import TransformerStack

WIDTH = 64
HEADS = 4
LAYERS = 2
LENGTH = 32
#: Kinds of tokens, of which 0 is [CLS]; how far to the left the answer is.
TOKENS = 16
SHIFT = 3
BATCH = 32
LR = 3e-3
WARMUP = 20
#: Sequences that measure the share of right answers.
TESTED = 256
#: Width and height of a figure in inches.
SIZE = 4.8, 2.2


class Model(nn.Module):
    """Token embeddings, an encoder or a decoder, and an output layer."""

    def __init__(self, name: str):
        super().__init__()
        causal = POSITION_ENCODINGS[name].causal_only
        sizes = {"vocab_size": TOKENS, "num_layers": LAYERS}
        positions = build_position_encoding(name, WIDTH, HEADS, LENGTH, not causal, **sizes)
        self.scale = positions.token_scale(positions.shape.embed_dim)
        self.embed_tokens = nn.Embedding(TOKENS, WIDTH)
        # Of BERT, to which encodings fit the size of what they add.
        nn.init.normal_(self.embed_tokens.weight, std=0.02)
        self.encoder = TransformerStack(
            positions,
            StackConfig(
                LAYERS,
                2 * WIDTH,
                dropout=0.0,
                attention_dropout=0.0,
                layernorm_embedding=True,
                causal=causal,
            ),
        )
        self.output = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits B×T×V of ids B×T."""
        x = self.scale * self.embed_tokens(tokens)
        return self.output(self.encoder(x, tokens=tokens))


def sequences(count: int, random: torch.Generator) -> Tensor:
    """Random tokens behind a [CLS], ids B×T."""
    tokens = torch.randint(1, TOKENS, (count, LENGTH), generator=random)
    tokens[:, 0] = 0
    return tokens


def answers(model: Model, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and right answers where the answer is a token, N×V and N."""
    first = SHIFT + 1
    return model(tokens)[:, first:].flatten(0, 1), tokens[:, 1:-SHIFT].flatten()


def train(model: Model, updates: int, random: torch.Generator) -> None:
    """Adam with a linear warm-up and decay."""
    optimizer = torch.optim.Adam(model.parameters(), LR)
    shape = lambda n: min((n + 1) / WARMUP, (updates - n) / updates)  # noqa: E731
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, shape)
    model.train()
    for _ in range(updates):
        loss = F.cross_entropy(*answers(model, sequences(BATCH, random)))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


@torch.no_grad()
def share_right(model: Model, random: torch.Generator) -> float:
    """The share of right answers for new sequences."""
    model.eval()
    logits, right = answers(model, sequences(TESTED, random))
    return (logits.argmax(-1) == right).float().mean().item()


def maps_of(model: Model) -> PositionMaps | None:
    """What the encoding adds in the first layer; None for an encoding without positions."""
    model.eval()
    try:
        return position_maps(model.encoder, LENGTH)
    except ConfigurationError:
        return None


def compare(before: PositionMaps, after: PositionMaps, out: Path) -> dict[str, Any]:
    """Draw the map that training has changed most; its name and meaning."""
    change = (after.maps - before.maps).flatten(1).norm(dim=1)
    chosen = int(change.argmax())
    both = torch.stack((before.maps[chosen], after.maps[chosen]))
    figure = draw_positional_correlations(both, "", names=["before", "after training"])
    figure.set_size_inches(*SIZE)
    save_png(figure, out / "maps.png")
    return {"map": after.names[chosen], "meaning": after.meaning, "changed": bool(change[chosen])}


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("encoding")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--updates", type=int, default=200)
    args = parser.parse_args(argv)
    torch.manual_seed(1)
    random = torch.Generator().manual_seed(1)
    model = Model(args.encoding)
    before = maps_of(model)
    train(model, args.updates, random)
    after = maps_of(model)
    result: dict[str, Any] = {"right": round(share_right(model, random), 3)}
    args.out.mkdir(parents=True, exist_ok=True)
    if before is not None and after is not None:
        result |= compare(before, after, args.out)
    with replacing(args.out / "result.json") as aside:
        aside.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    script.run(main)
