"""Train an encoder on strings of up to 40 symbols, and test it on longer ones (Ruoss et al. 2023).

    python -m examples.study.algorithmic TASK ENCODING FILE

TASK is `reverse_string`, a binary string backwards, or `missing_duplicate`, the symbol that was
left out of a binary string given twice. The input ends with one placeholder for each symbol of the
answer, where the encoder predicts it. Model, batch and learning rate are those of the paper: 5
layers of width 64, 8 heads, 128 strings, 1e-3, 10,000 updates. The score is the mean accuracy at
lengths beyond the trained ones.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from examples.shared import script
from examples.study.encodings import options_of
from tupe_fairseq import UsageError
from tupe_fairseq.files import replacing
from tupe_fairseq.modules.encoder import Encoder
from tupe_fairseq.position import build_position_encoding

#: Ids beyond the binary symbols 0 and 1.
LEFT_OUT, FILLER, PLACEHOLDER = 2, 3, 4
TRAINED, LAYERS, WIDTH, HEADS = 40, 5, 64, 8
#: Learning rate, and distance between tested lengths.
LR, EVERY = 1e-3, 10


def reverse_string(batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Binary strings and the same backwards: B×length each."""
    strings = torch.randint(2, (batch, length))
    return strings, strings.flip(1)


def missing_duplicate(batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Strings that occur twice, with one symbol left out, and that symbol: B×length, B×1.

    An odd length ends with a filler. A string of length 1 has no half: its answer is its symbol.
    """
    if length == 1:
        return torch.ones(batch, 1, dtype=torch.long), torch.ones(batch, 1, dtype=torch.long)
    half = torch.randint(2, (batch, length // 2))
    strings = torch.cat((half, half), 1)
    place = torch.randint(strings.size(1), (batch, 1))
    answers = strings.gather(1, place)
    strings = strings.scatter(1, place, LEFT_OUT)
    return F.pad(strings, (0, length % 2), value=FILLER), answers


Task = Callable[[int, int], tuple[Tensor, Tensor]]
TASKS: dict[str, Task] = {f.__name__: f for f in (reverse_string, missing_duplicate)}


class Solver(nn.Module):
    """An encoder that predicts a binary symbol at each placeholder.

    Args:
        encoding: name of the encoding, followed by options as in `rope+rope_theta=500`.
        longest: strings have at most so many symbols.
    """

    def __init__(self, encoding: str, longest: int):
        super().__init__()
        name, options = options_of(encoding)
        sizes = {"max_positions": 2 * longest, "vocab_size": PLACEHOLDER + 1}
        options |= {**sizes, "num_layers": LAYERS}
        positions = build_position_encoding(name, WIDTH, HEADS, **options)
        self.scale = positions.token_scale
        self.symbols = nn.Embedding(PLACEHOLDER + 1, WIDTH)
        nn.init.normal_(self.symbols.weight, std=WIDTH**-0.5)
        self.encoder = Encoder(positions, LAYERS, 4 * WIDTH, layernorm_embedding=True)
        self.output = nn.Linear(WIDTH, 2)

    def forward(self, strings: Tensor, answers: int) -> Tensor:
        """Logits of the answers' symbols: B×N -> B×answers×2."""
        ids = F.pad(strings, (0, answers), value=PLACEHOLDER)
        states = self.encoder(self.scale * self.symbols(ids), tokens=ids)
        return self.output(states[:, -answers:])


def train(solver: Solver, task: Task, updates: int, batch: int) -> None:
    """Train with strings of one random length, up to the trained ones, in each update."""
    optimizer = torch.optim.Adam(solver.train().parameters(), LR)
    for _ in range(updates):
        strings, answers = task(batch, int(torch.randint(1, TRAINED + 1, ())))
        logits = solver(strings, answers.size(1))
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), answers.flatten()).backward()
        nn.utils.clip_grad_norm_(solver.parameters(), 1.0)
        optimizer.step()


@torch.no_grad()
def accuracy(solver: Solver, task: Task, length: int, batch: int) -> float:
    """Share of the symbols that are right, at one length."""
    strings, answers = task(batch, length)
    found = solver.eval()(strings, answers.size(1)).argmax(-1)
    return (found == answers).double().mean().item()


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Train and test one model; the result, with the processor time."""
    started, task = time.process_time(), TASKS[args.task]
    torch.manual_seed(args.seed)
    solver = Solver(args.encoding, args.longest)
    train(solver, task, args.updates, args.batch_size)
    # Test strings that do not depend on the training.
    torch.manual_seed(args.seed)
    lengths = range(EVERY, args.longest + 1, EVERY)
    found = {n: accuracy(solver, task, n, args.batch_size) for n in lengths}
    beyond = [value for n, value in found.items() if n > TRAINED]
    minutes = (time.process_time() - started) / 60
    return {"by_length": found, "score": sum(beyond) / len(beyond), "minutes": round(minutes, 3)}


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line.

    Raises:
        UsageError: unknown encoding or option, or a number that is wrong.
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("task", choices=TASKS)
    add("encoding", help="name, or name and options: rope+randomize_positions=2048")
    add("out", type=Path, metavar="FILE", help="file for the result, as JSON")
    add("--seed", type=int, default=1)
    add("--updates", type=int, default=10000)
    add("--batch-size", type=int, default=128, help="strings in a batch")
    add("--longest", type=int, default=200, help="length of the longest tested strings")
    args = parser.parse_args(argv)
    options_of(args.encoding)
    if min(args.updates, args.batch_size) < 1 or args.longest < TRAINED + EVERY:
        raise UsageError(
            f"--updates and --batch-size must be at least 1, --longest {TRAINED + EVERY}."
        )
    return args


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    args = parse(argv)
    found = run(args)
    with replacing(args.out) as aside:
        aside.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    script.run(main)
