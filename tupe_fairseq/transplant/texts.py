"""The texts that an encoder is distilled on, and their batches."""

import random
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..base import texts as files
from ..base.errors import UsageError

#: Different lines at least: with fewer, the encoder learns the lines, and not the positions.
LINES = 1000
#: Held-out lines at least whose order can be measured.
ORDERED_LINES = 10
#: Held-out lines, tokens in them, and what part of all lines they are; each at most.
HELD_OUT = 512
HELD_TOKENS = 32768
PART = 10
#: Characters of a token that no long text has on average.
LONG_TOKEN = 15
#: Characters of scripts without spaces between words: Thai to Burmese, Khmer, Japanese, Chinese.
SIGNS = "\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
SIGN = re.compile(f"[{SIGNS}]")
WORD = re.compile(rf"[{SIGNS}]|[^\s{SIGNS}]+")
#: Batches that are sorted by length together.
SORTED = 8


class Batch(NamedTuple):
    """Ids, mask and types, B×T each; the mask is 1 at tokens."""

    ids: Tensor
    mask: Tensor
    types: Tensor

    def inputs(self, types: bool) -> dict[str, Tensor]:
        """As models of transformers take them, with types of tokens or without."""
        given = {"input_ids": self.ids, "attention_mask": self.mask}
        return given | {"token_type_ids": self.types} if types else given

    def hiding(self, token: int, share: float) -> "Batch":
        """With this token in the place of a share of all tokens, chosen by torch's generator."""
        hidden = torch.rand(self.ids.shape).lt(share).to(self.ids.device) & self.mask.bool()
        return self._replace(ids=self.ids.masked_fill(hidden, token))


class Tokens:
    """Batches of texts.

    Args:
        tokenizer: of transformers.
        length: texts are cut to this number of tokens.
        device: of the batches.

    Raises:
        UsageError: `length` leaves no two words of a text.
    """

    def __init__(self, tokenizer: Any, length: int, device: str | torch.device = "cpu"):
        self.tokenizer = tokenizer
        self.length = length
        self.device = device
        special = max(map(tokenizer.num_special_tokens_to_add, (False, True)))
        if length <= special + 1:
            raise UsageError(
                f"--length is {length}, but must be at least {special + 2}: {special} tokens of "
                "a pair of texts are special, and order needs two words."
            )

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text."""
        ids: list[list[int]] = self.tokenizer(
            list(texts), truncation=True, max_length=self.length
        )["input_ids"]
        return ids

    def row(self, texts: Sequence[str]) -> tuple[list[int], list[int]]:
        """The tokens of a text or of a pair of texts, and their types."""
        found = self.tokenizer(*texts, truncation=True, max_length=self.length)
        ids = found["input_ids"]
        return ids, found.get("token_type_ids", [0] * len(ids))

    def batch(self, ids: Sequence[list[int]], types: Sequence[list[int]] = ()) -> Batch:
        """With padding on the right; without types, they are 0."""
        shape = (len(ids), max(map(len, ids)))
        padded = torch.full(shape, self.tokenizer.pad_token_id or 0)
        mask = torch.zeros(shape, dtype=torch.long)
        kinds = torch.zeros(shape, dtype=torch.long)
        for row, each in enumerate(ids):
            padded[row, : len(each)] = torch.tensor(each)
            mask[row, : len(each)] = 1
        for row, each in enumerate(types):
            kinds[row, : len(each)] = torch.tensor(each)
        return Batch(*(each.to(self.device) for each in (padded, mask, kinds)))


class Texts(Tokens):
    """Texts without labels.

    Args:
        texts: a file in UTF-8 with a text in each line, or the texts. Every n-th of the different
            ones is held out.
        tokenizer: of transformers.
        length: texts are cut to this number of tokens.
        device: of the batches.

    Attributes:
        held_out: what is read of the held-out lines.
        train: the other lines.
        longest: tokens of the longest held-out text that are read.
        share_cut: the share of held-out texts that are longer than `length`.

    Raises:
        UsageError: the file cannot be read, has fewer than `LINES` different lines, or fewer than
            `ORDERED_LINES` whose order can be measured, or `length` leaves no two words of a text.
    """

    def __init__(
        self,
        texts: str | Path | Sequence[str],
        tokenizer: Any,
        length: int,
        device: str | torch.device = "cpu",
    ):
        super().__init__(tokenizer, length, device)
        name = named(texts)
        lines = read_lines(texts, LONG_TOKEN * length)
        most = max(1, min(HELD_OUT, HELD_TOKENS // length))
        step = max(PART, len(lines) // most)
        held_out = lines[::step][:most]
        self.train = [line for number, line in enumerate(lines) if number % step]
        sizes = [len(ids) for ids in tokenizer(held_out)["input_ids"]]
        self.longest = min(length, max(sizes))
        self.share_cut = sum(size > length for size in sizes) / len(sizes)
        self.held_out = list(map(self.read, held_out))
        number = sum(map(has_order, self.held_out))
        needed = min(ORDERED_LINES, most)
        if number < needed:
            raise UsageError(
                f"{name}, but only {number} of {len(held_out)} held-out lines "
                f"have more than three words, and so an order: {needed} are needed."
            )

    def read(self, text: str) -> str:
        """The part of a text that is read: words before or behind it have no order."""
        found = self.tokenizer(
            text, truncation=True, max_length=self.length, return_offsets_mapping=True
        )
        # Those of special tokens are empty.
        spans = [(first, end) for first, end in found["offset_mapping"] if first < end]
        return text[spans[0][0] : spans[-1][1]] if spans else ""

    def batches(
        self, seed: int, number: int, size: int, disordered: float, pairs: float
    ) -> list[Batch]:
        """The `number`-th group of `SORTED` batches of `size` texts.

        Args:
            seed: with `number`, decides all that is random.
            number: counted from 0.
            size: texts of a batch.
            disordered: the share of texts whose words are in another order.
            pairs: the share of texts that are read as the pair of their halves.
        """
        rng = random.Random(f"{seed} {number}")
        drawn = map(self.read, rng.choices(self.train, k=size * SORTED))
        texts = [disorder(t, rng) if rng.random() < disordered else t for t in drawn]
        parts = [halves(t) if rng.random() < pairs else (t,) for t in texts]
        rows = sorted(map(self.row, parts), key=lambda row: len(row[0]))
        groups = [rows[first : first + size] for first in range(0, len(rows), size)]
        rng.shuffle(groups)
        return [self.batch(*zip(*group, strict=True)) for group in groups]


def check_pairs(tokenizer: Any, share: float) -> None:
    """Check that the tokenizer separates two texts, if this share of texts are pairs.

    Raises:
        UsageError: it does not.
    """
    one, two = map(tokenizer.num_special_tokens_to_add, (False, True))
    if share and two <= one:
        raise UsageError(
            f"--pairs is {share}, but the tokenizer of SOURCE does not separate the texts of a "
            "pair: give --pairs 0."
        )


def named(texts: str | Path | Sequence[str]) -> str:
    """What messages call the texts."""
    if isinstance(texts, (str, Path)):
        return f"TEXT is {str(texts)!r}"
    return f"texts are a list of {len(texts)}"


def read_lines(texts: str | Path | Sequence[str], most: int) -> list[str]:
    """The different lines that are not empty, of each at most so many characters.

    Raises:
        UsageError: a file cannot be read, or there are fewer than `LINES` different lines.
    """
    every: Iterable[str] = texts if not isinstance(texts, (str, Path)) else _of_file(texts)
    found = (line.strip()[:most] for line in every)
    lines = list(dict.fromkeys(filter(None, found)))
    if len(lines) < LINES:
        raise UsageError(
            f"{named(texts)} with {len(lines)} different lines, but at least {LINES:,} are "
            "needed, with a text each."
        )
    return lines


def _of_file(path: str | Path) -> Iterable[str]:
    return files.read_lines(path, named(path))


def disorder(text: str, rng: random.Random) -> str:
    """The same words in random order, or with two of them swapped; each in half of the cases."""
    return (shuffled if rng.random() < 0.5 else swapped)(text, rng)


def words_of(text: str) -> tuple[list[str], str]:
    """Words and what joins them; in a script without spaces, each character is a word."""
    words = WORD.findall(text)
    return words, "" if 2 * len(SIGN.findall(text)) > len(words) else " "


def has_order(text: str) -> bool:
    """Whether a text has more than three words."""
    return len(words_of(text)[0]) > 3


def halves(text: str) -> tuple[str, ...]:
    """The words of a text in two parts; a word alone in one."""
    words, joint = words_of(text)
    if len(words) < 2:
        return (text,)
    half = len(words) // 2
    return joint.join(words[:half]), joint.join(words[half:])


def shuffled(text: str, rng: random.Random) -> str:
    """The same words in random order."""
    words, joint = words_of(text)
    rng.shuffle(words)
    return joint.join(words)


def swapped(text: str, rng: random.Random) -> str:
    """The same words, with two of them in each other's place."""
    words, joint = words_of(text)
    if not words:
        return text
    first, second = (rng.randrange(len(words)) for _ in range(2))
    words[first], words[second] = words[second], words[first]
    return joint.join(words)
