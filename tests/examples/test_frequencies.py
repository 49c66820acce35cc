"""examples/shared/frequencies.py against fairseq's dataset and an enumeration."""

import math
from collections import Counter

import pytest
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDataset

from examples.shared import frequencies


@pytest.fixture(params=[7, 1 << 24])
def tokens(request, toy_masked_lm_data, monkeypatch):
    """Ids of both splits, counted in parts."""
    monkeypatch.setattr(frequencies, "CHUNK", request.param)
    found = {}
    for split in ("train", "valid"):
        dataset = MMapIndexedDataset(str(toy_masked_lm_data / split))
        found[split] = [int(token) for example in dataset for token in example]
    return found


def test_tokens_are_those_of_the_dataset(toy_masked_lm_data, tokens):
    for split, expected in tokens.items():
        assert frequencies.read_tokens(toy_masked_lm_data / split).tolist() == expected


def test_loss_without_context(toy_masked_lm_data, tokens):
    """All pairs of a token and what fairseq shows in its place."""
    dictionary = Dictionary.load(str(toy_masked_lm_data / "dict.txt"))
    symbols = range(len(dictionary))
    drawn = range(dictionary.nspecial, len(dictionary))
    counts = Counter(tokens["train"])
    share = [(counts[t] + 1) / (len(tokens["train"]) + len(symbols)) for t in symbols]

    def shown(token):
        """Probability of each shown token, `None` for the mask."""
        found = {None: 0.8, token: 0.1}
        for other in drawn:
            found[other] = found.get(other, 0) + 0.1 / len(drawn)
        return found

    total = Counter()
    for token in symbols:
        for other, probability in shown(token).items():
            total[other] += share[token] * probability
    losses = {
        token: sum(
            -probability * math.log2(share[token] * probability / total[other])
            for other, probability in shown(token).items()
        )
        for token in set(tokens["valid"])
    }
    expected = sum(losses[token] for token in tokens["valid"]) / len(tokens["valid"])
    # Of 32 tokens, <s> is known.
    found = frequencies.context_free_loss(toy_masked_lm_data, 32)
    assert found == pytest.approx(31 / 32 * expected)
