"""More positions than a checkpoint was trained with: fine-tuning at 1,024 and 4,096."""

import random

import pytest
import torch

from tests import toy_data
from tests.fairseq_commands import finetune, parameters, pretrain

LONG = ("--extend-positions", "hierarchical")


@pytest.fixture(scope="module")
def long_reviews(tmp_path_factory):
    """Sentences of 900 words, beyond what the checkpoint was trained with."""
    folder, rng = tmp_path_factory.mktemp("long"), random.Random(0)
    labels = ["0", "1"] * 4
    for split in ("train", "valid"):
        lines = [toy_data.sentence(rng, int(label), (900, 900)) for label in labels]
        toy_data.write_split(folder / "input0", split, lines, toy_data.word_dictionary())
        toy_data.write_split(folder / "label", split, labels, toy_data.dictionary(["0", "1"]))
    return folder


@pytest.mark.parametrize("encoding", ["learned", "tupe_a", "tupe_r"])
def test_trained_at_512_tuned_beyond(toy_masked_lm_data, long_reviews, tmp_path, encoding):
    """The first 512 positions start where training left them, and the later ones learn."""
    name = ("--position-encoding", encoding)
    short = pretrain(
        toy_masked_lm_data, tmp_path / "short", *name, "--tokens-per-sample", 512,
        "--max-update", 1,
    )  # fmt: skip
    table = "encoder.sentence_encoder.embed_positions.weight"
    before = parameters(short)[table]
    for positions in (1024, 4096):
        more = (*LONG, "--max-positions", positions, "--num-classes", 2, "--batch-size", 2)
        flags = (*name, "--finetune-from-model", short, *more, "--max-update", 1)
        still = parameters(finetune(long_reviews, tmp_path / f"{positions}", *flags, "--lr", 0))
        assert len(still[table]) - len(before) == positions - 512
        # Hierarchical decomposition gives trained positions back up to rounding.
        torch.testing.assert_close(still[table][: len(before)], before)
        if positions == 1024:
            tuned = parameters(finetune(long_reviews, tmp_path / "tuned", *flags))
            learned = (tuned[table] != still[table]).any(dim=1)
            assert learned[len(before) : len(before) + 300].all()
