"""The texts that an encoder is distilled on, and their batches."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tupe_fairseq import UsageError

#: Lines at least: with fewer, the encoder learns the lines, and not the positions.
LINES = 1000
#: Held-out lines, tokens in them, and what part of all lines they are; each at most.
HELD_OUT, HELD_TOKENS, PART = 512, 32768, 10
#: The mean length of words, with the space, that no language with spaces has.
LONG_WORD = 15
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
        hidden = torch.rand(self.ids.shape).lt(share) & self.mask.bool()
        return self._replace(ids=self.ids.masked_fill(hidden, token))


class Tokens:
    """Batches of texts.

    Args:
        tokenizer: of transformers.
        length: texts are cut to this number of tokens.

    Raises:
        UsageError: `length` leaves no two words of a text.
    """

    def __init__(self, tokenizer: Any, length: int):
        self.tokenizer, self.length = tokenizer, length
        special = tokenizer.num_special_tokens_to_add(pair=True)
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
        padded = torch.full(shape, self.tokenizer.pad_token_id)
        mask, kinds = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
        for row, each in enumerate(ids):
            padded[row, : len(each)] = torch.tensor(each)
            mask[row, : len(each)] = 1
        for row, each in enumerate(types):
            kinds[row, : len(each)] = torch.tensor(each)
        return Batch(padded, mask, kinds)


class Texts(Tokens):
    """A file with a text in each line.

    Args:
        file: in UTF-8. Every n-th line is held out.
        tokenizer: of transformers.
        length: texts are cut to this number of tokens.

    Raises:
        UsageError: the file cannot be read, has fewer than `LINES` lines, or none whose order can
            be measured, or `length` leaves no two words of a text.
    """

    def __init__(self, file: Path, tokenizer: Any, length: int):
        super().__init__(tokenizer, length)
        lines = [first_words(line, length) for line in read_lines(file)]
        most = max(1, min(HELD_OUT, HELD_TOKENS // length))
        step = max(PART, len(lines) // most)
        self.held_out = lines[::step][:most]
        if not any(map(has_order, self.held_out)):
            raise UsageError(
                f"TEXT is {str(file)!r}, but none of its {len(self.held_out)} held-out lines has "
                "more than three words, which have an order."
            )
        self.train = [line for number, line in enumerate(lines) if number % step]

    def share_cut(self) -> float:
        """The share of held-out texts that are longer than `length`."""
        ids = self.tokenizer(self.held_out)["input_ids"]
        return sum(len(each) > self.length for each in ids) / len(ids)

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
        drawn = rng.choices(self.train, k=size * SORTED)
        texts = [disorder(t, rng) if rng.random() < disordered else t for t in drawn]
        parts = [halves(t) if rng.random() < pairs else (t,) for t in texts]
        rows = sorted(map(self.row, parts), key=lambda row: len(row[0]))
        groups = [rows[first : first + size] for first in range(0, len(rows), size)]
        rng.shuffle(groups)
        return [self.batch(*zip(*group, strict=True)) for group in groups]


def read_lines(file: Path) -> list[str]:
    """The lines that are not empty.

    Raises:
        UsageError: the file cannot be read, or has fewer than `LINES` lines.
    """
    try:
        with file.open(encoding="utf-8") as opened:
            lines = [text for line in opened if (text := line.strip())]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"TEXT is {str(file)!r}, which cannot be read: {error}.") from error
    if len(lines) < LINES:
        raise UsageError(
            f"TEXT is {str(file)!r} with {len(lines)} lines, but at least {LINES:,} are needed, "
            "with a text each."
        )
    return lines


def first_words(line: str, number: int) -> str:
    """The words that can be among this number of tokens: words that are not read have no order."""
    words = line.split(maxsplit=number)
    return line if len(words) <= number else " ".join(words[:number])


def disorder(text: str, rng: random.Random) -> str:
    """The same words in random order, or with two of them swapped; each in half of the cases."""
    return (shuffled if rng.random() < 0.5 else swapped)(text, rng)


def words_of(text: str) -> tuple[list[str], str]:
    """Words and what joins them: characters, where a script has no spaces between words."""
    words = text.split()
    return (list(text), "") if len(text) > LONG_WORD * len(words) else (words, " ")


def has_order(text: str) -> bool:
    """Whether a text has more than three words."""
    return len(words_of(text)[0]) > 3


def halves(text: str) -> tuple[str, str]:
    """The words of a text in two parts."""
    words, joint = words_of(text)
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
    first, second = (rng.randrange(len(words)) for _ in range(2))
    words[first], words[second] = words[second], words[first]
    return joint.join(words)
