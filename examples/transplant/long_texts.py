"""Whether a query finds a text by one sentence in it, and finds this sentence again.

    python -m examples.transplant.long_texts ARTICLES SOURCE NAME WAY OUT.json
        [--model DIRECTORY] [--lengths 512 1024] [--bf16] [--set attention_window=64]

ARTICLES is a JSON file of pairs, a title and the paragraphs of its article. SOURCE is a directory
of sentence-transformers with a BERT, whose tokenizer and pooling by the mean all models have. WAY
is how a text is read: "whole", and for SOURCE itself also "truncated", "parts", "grouped" and
"interpolated", all by its own number of positions. OUT.json gets the answers for each length under
NAME; lengths that it has already are left out, so that a call continues. The measures are defined
in results/long_texts.md.
"""

import argparse
import json
import math
import random
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

import tupe_fairseq.huggingface  # noqa: F401 (registers its models)
from examples.shared import script
from tupe_fairseq import UsageError
from tupe_fairseq.base.files import replacing

LENGTHS = (512, 1024, 2048, 4096, 8192)
#: Where the answer stands in a text, as a share of its tokens, and texts of each length.
PLACES = (0.1, 0.5, 0.9)
TEXTS = 30
#: Tokens of a sentence, of all kinds.
SHORTEST, LONGEST = 8, 64
#: Ends a sentence.
END = re.compile(r"(?<=[.!?]) +(?=[A-Z\"])")
#: Ids B×T -> features B×T×C.
Reader = Callable[[Tensor], Tensor]
WAYS = ("whole", "truncated", "parts", "grouped", "interpolated")


class Text(NamedTuple):
    """A text: the sentences' ids, and the number of the one that answers."""

    sentences: list[list[int]]
    answer: int


class Task(NamedTuple):
    """Ids of the queries, and their sentences that answer; sentences of other articles."""

    queries: list[list[int]]
    answers: list[list[int]]
    others: list[list[int]]


def read_task(file: Path, tokenizer: Any) -> Task:
    """The queries of the first articles whose first sentence fits, and sentences of the others.

    Raises:
        UsageError: there are too few articles.
    """
    articles = json.loads(file.read_text(encoding="utf-8"))
    random.Random(0).shuffle(articles)
    queries: list[list[int]] = []
    answers: list[list[int]] = []
    others: list[list[int]] = []
    for title, paragraphs in articles:
        sentences = [each for text in paragraphs for each in END.split(text)]
        ids = [tokenizer(each, add_special_tokens=False)["input_ids"] for each in sentences[:40]]
        if len(queries) < TEXTS:
            if ids and SHORTEST <= len(ids[0]) <= LONGEST and title in sentences[0]:
                queries.append(tokenizer(f"What is {title}?")["input_ids"])
                answers.append(ids[0])
        else:
            others += [each for each in ids if SHORTEST <= len(each) <= LONGEST]
    needed = max(LENGTHS) // SHORTEST
    if len(queries) < TEXTS or len(others) < needed:
        raise UsageError(
            f"ARTICLES is {str(file)!r} with {len(queries)} queries and {len(others)} other "
            f"sentences, but {TEXTS} and {needed} are needed."
        )
    return Task(queries, answers, others)


def text_of(task: Task, number: int, length: int) -> Text:
    """The text with the answer `number`, of at most `length` tokens with two special ones."""
    draw = random.Random(f"{number} {length}")
    answer = task.answers[number]
    sentences: list[list[int]] = []
    left = length - 2 - len(answer)
    while True:
        other = draw.choice(task.others)
        if len(other) > left:
            break
        sentences.append(other)
        left -= len(other)
    before = PLACES[number % len(PLACES)] * sum(map(len, sentences))
    place = 0
    total = 0
    while place < len(sentences) and total + len(sentences[place]) / 2 < before:
        total += len(sentences[place])
        place += 1
    return Text([*sentences[:place], answer, *sentences[place:]], place)


def source_reader(model: Any, way: str) -> Reader:
    """How a BERT reads a text of any length, by its own positions."""
    longest = model.config.max_position_embeddings
    table = model.embeddings.position_embeddings.weight.detach()

    def parts(ids: Tensor) -> Tensor:
        inner = ids[:, 1:-1].split(longest - 2, 1)
        first, last = ids[:, :1], ids[:, -1:]
        read = [model(torch.cat((first, part, last), 1))[0] for part in inner]
        # [CLS] of the first part, [SEP] of the last one.
        middle = [each[:, 1:-1] for each in read]
        return torch.cat((read[0][:, :1], *middle, read[-1][:, -1:]), 1)

    def grouped(ids: Tensor) -> Tensor:
        size = math.ceil(ids.size(1) / longest)
        return model(ids, position_ids=torch.arange(ids.size(1))[None] // size)[0]

    def interpolated(ids: Tensor) -> Tensor:
        size = max(longest, ids.size(1))
        rows = F.interpolate(table.t()[None], size=size, mode="linear", align_corners=True)
        # Positions enter by addition, before the LayerNorm.
        words = model.embeddings.word_embeddings(ids) + rows[0].t()[: ids.size(1)] - table[0]
        return model(inputs_embeds=words, position_ids=torch.zeros_like(ids))[0]

    readers = {"parts": parts, "grouped": grouped, "interpolated": interpolated}
    return readers.get(way, lambda ids: model(ids[:, :longest])[0])


def load(args: argparse.Namespace) -> Reader:
    """The model and the way that the command line names."""
    if args.model is None:
        model = transformers.AutoModel.from_pretrained(args.source).eval()
        return source_reader(model, args.way)
    config = transformers.AutoConfig.from_pretrained(args.model)
    for name, value in args.set:
        own = config.position_options if name in config.position_options else vars(config)
        own[name] = value
    model = transformers.AutoModel.from_pretrained(args.model, config=config).eval()
    return lambda ids: model(ids)[0]


@torch.no_grad()
def answers(reader: Reader, task: Task, tokenizer: Any, length: int) -> list[dict[str, float]]:
    """For each query, the measures of its text and of its answer."""
    queries = torch.stack([reader(torch.tensor([ids]))[0].mean(0) for ids in task.queries])
    queries = F.normalize(queries.float(), dim=1)
    vectors = []
    found = []
    for number in range(TEXTS):
        text = text_of(task, number, length)
        inner = [token for sentence in text.sentences for token in sentence]
        ids = torch.tensor([[tokenizer.cls_token_id, *inner, tokenizer.sep_token_id]])
        features = reader(ids)[0].float()
        vectors.append(features.mean(0))
        ends = torch.tensor([0, *map(len, text.sentences)]).cumsum(0).tolist()
        spans = [features[1 + a : 1 + b] for a, b in pairwise(ends)]
        # Sentences that are not read have no vector.
        means = torch.stack([each.mean(0) for each in spans if len(each)])
        best = int((F.normalize(means, dim=1) @ queries[number]).argmax())
        found.append({"place": PLACES[number % len(PLACES)], "answer": float(best == text.answer)})
    scores = queries @ F.normalize(torch.stack(vectors), dim=1).t()
    for number, row in enumerate(scores):
        behind = float(row.lt(row[number]).float().sum()) / (TEXTS - 1)
        found[number] |= {"text": float(behind == 1.0), "behind": behind}
    return found


def setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE, where VALUE is JSON or a word."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("articles", "source"):
        parser.add_argument(name, type=Path, metavar=name.upper())
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("way", choices=WAYS, metavar="WAY")
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--model", type=Path, metavar="DIRECTORY", help="a transplant")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, metavar="N")
    parser.add_argument("--bf16", action="store_true", help="products in bf16")
    parser.add_argument("--set", type=setting, nargs="+", default=[], metavar="NAME=VALUE")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    args = arguments(argv)
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.source, model_max_length=10**6)
    task = read_task(args.articles, tokenizer)
    reader = load(args)
    for length in args.lengths:
        found = json.loads(args.out.read_text()) if args.out.exists() else {}
        if str(length) in found.get(args.name, {}):
            continue
        with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
            found.setdefault(args.name, {})[str(length)] = answers(reader, task, tokenizer, length)
        with replacing(args.out) as aside:
            aside.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        shares = {
            k: sum(each[k] for each in found[args.name][str(length)]) / TEXTS
            for k in ("text", "behind", "answer")
        }
        print(args.name, length, shares, flush=True)


if __name__ == "__main__":
    script.run(main)
