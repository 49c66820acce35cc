"""Find the second half of an article by its first half, and compare vectors with the source's.

    python -m examples.transplant.long_texts SOURCE MODEL ARTICLES OUT --way WAY

SOURCE is the released encoder, MODEL itself or the directory of transformers of a transplant, and
ARTICLES a folder with output of WikiExtractor. At each length L, an article's first half are its
first L tokens, and its second half the next L; articles with fewer than 2 L tokens are left out.
OUT gets, by length:

    found      the share of first halves whose nearest second half is their own, of `articles`
    rank       the mean of 1 / rank of the own second half
    cosine     of the vectors of first halves and those of SOURCE, where it can read them

A vector is the mean of the features of all tokens. The ways to read L tokens:

    plain          MODEL reads them
    truncated      MODEL reads the first tokens, as many as SOURCE can
    chunks         MODEL reads parts that SOURCE can read; the vector is the mean over all parts
    interpolated   positions of SOURCE, interpolated linearly to L
    grouped        positions of SOURCE, each for several tokens
    hierarchical   positions of SOURCE, continued by hierarchical decomposition (Su 2020)
    OPTION=VALUE   plain, with another value of an option, as in attention_window=64
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

from examples.pretraining.clean import documents, input_files, read_lines
from examples.shared import script
from tupe_fairseq import UsageError
from tupe_fairseq.files import replacing
from tupe_fairseq.interop.formats import huggingface
from tupe_fairseq.interop.models import POSITIONS, Converted
from tupe_fairseq.position import POSITION_ENCODINGS, model_options
from tupe_fairseq.position.hierarchical import decompose

from .encoders import Encoder, mean_features, read_source
from .texts import Tokens

LENGTHS = (256, 512, 1024, 2048)
#: Tokens of a pass.
PASS = 8192


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    for name in ("source", "model", "articles", "out"):
        add(name, type=Path, metavar=name.upper())
    add("--way", required=True, help="see above")
    add("--lengths", type=int, nargs="+", default=LENGTHS, metavar="L", help="256 512 1024 2048")
    add("--most", type=int, default=200, metavar="N", help="articles (default: %(default)s)")
    return parser.parse_args(argv)


def article_texts(folder: Path) -> Iterator[str]:
    """The articles in output of WikiExtractor, in the order of its files."""
    for path in input_files([folder]):
        for lines in documents(read_lines(path), [0]):
            if lines:
                yield " ".join(lines)


def articles(folder: Path, tokenizer: Any, length: int, most: int) -> list[list[int]]:
    """The first tokens of articles that have as many, `length` of each, without special ones."""
    found: list[list[int]] = []
    for text in article_texts(folder):
        # A token has at least one character.
        if len(text) < length:
            continue
        ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        found += [ids[:length]] if len(ids) >= length else []
        if len(found) == most:
            return found
    if len(found) < 2:
        raise UsageError(f"ARTICLES is {str(folder)!r}, with no two texts of {length} tokens.")
    return found


def changed(model: Converted, way: str, length: int) -> Converted:
    """The model that reads `length` tokens in this way."""
    settings, state = dict(model.settings), dict(model.state)
    if way in TABLES:
        table = state[POSITIONS][2:]
        state[POSITIONS] = torch.cat([state[POSITIONS][:2], TABLES[way](table, length)])
        settings["max_position_embeddings"] = length
    elif way not in READ:
        own = settings["position_options"] = dict(settings["position_options"])
        options = POSITION_ENCODINGS[settings["position_encoding"]].options()
        kinds = {each.name: each.type for each in (*model_options(decoder=False), *options)}
        for word in way.split("+"):
            name, _, value = word.partition("=")
            try:
                (own if name in own else settings)[name] = kinds[name](value)
            except (KeyError, ValueError):
                raise UsageError(
                    f"--way has {word!r}, but must be one of {', '.join((*READ, *TABLES))}, or "
                    f"OPTION=VALUE of: {', '.join(kinds)}."
                ) from None
    return replace(model, settings=settings, state=state)


def interpolated(table: Tensor, length: int) -> Tensor:
    """The rows of n positions, stretched to this length: n×C -> length×C."""
    stretched = F.interpolate(table.T[None], length, mode="linear", align_corners=True)
    return stretched[0].T


def grouped(table: Tensor, length: int) -> Tensor:
    """Each row for as many positions as are needed: n×C -> length×C."""
    return table[torch.arange(length) // -(-length // len(table))]


#: Ways without changes of MODEL, and tables of positions of the others.
READ = ("plain", "truncated", "chunks")
TABLES = {
    "interpolated": interpolated,
    "grouped": grouped,
    "hierarchical": lambda table, length: decompose(table, torch.arange(length)),
}


@torch.no_grad()
def vectors(encoder: Encoder, tokens: Tokens, texts: Sequence[list[int]], part: int) -> Tensor:
    """The mean features of texts, of all parts of `part` tokens together: B×C."""
    found = []
    first_token, *last_tokens = tokens.tokenizer("")["input_ids"]
    for text in texts:
        pieces = [text[first : first + part] for first in range(0, len(text), part)]
        total, count = 0.0, 0
        for group in _groups(pieces):
            batch = tokens.batch([[first_token, *piece, *last_tokens] for piece in group])
            (features,) = encoder(batch)
            rows = batch.mask.sum(1, keepdim=True)
            total = total + (mean_features(features, batch) * rows).sum(0)
            count += int(rows.sum())
        found.append(total / count)
    return torch.stack(found)


def _groups(pieces: list[list[int]]) -> Iterator[list[list[int]]]:
    """Pieces of one text that are computed together."""
    size = max(1, PASS // len(pieces[0]))
    yield from (pieces[first : first + size] for first in range(0, len(pieces), size))


def measures(args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """What OUT contains."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.source)
    special = tokenizer.num_special_tokens_to_add()
    read = read_source(args.source)
    most = read.settings["max_position_embeddings"]
    source, model = Encoder(read).eval(), huggingface.read(args.model)
    found = {}
    for length in args.lengths:
        room = length - special
        texts = articles(args.articles, tokenizer, 2 * room, args.most)
        encoder = Encoder(changed(model, args.way, length)).eval()
        own = min(room, most - special)
        part = own if args.way == "chunks" else room
        cut = own if args.way == "truncated" else room
        halves = [text[:room][:cut] for text in texts], [text[room:][:cut] for text in texts]
        tokens = Tokens(tokenizer, length)
        firsts, seconds = (vectors(encoder, tokens, half, part) for half in halves)
        similar = F.normalize(firsts) @ F.normalize(seconds).T
        ranks = (similar >= similar.diagonal()[:, None]).sum(1).double()
        found[str(length)] = {
            "articles": len(texts),
            "found": float((ranks == 1).double().mean()),
            "rank": float((1 / ranks).mean()),
        }
        if length <= most:
            expected = vectors(source, tokens, halves[0], room)
            cosine = F.cosine_similarity(firsts, expected).mean()
            found[str(length)]["cosine"] = float(cosine)
        print(length, found[str(length)], flush=True)
    return found


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    args = arguments(argv)
    found = measures(args)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(args.out) as aside:
        aside.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    script.run(main)
