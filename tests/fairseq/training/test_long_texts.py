"""More positions than a checkpoint was trained with, in fairseq-train and the hub."""

import random

import pytest
import torch

from tests import toy_data
from tests.fairseq_commands import finetune, parameters, pretrain
from tupe_fairseq import TupeRobertaModel

LONG = ("--extend-positions", "hierarchical")


@pytest.fixture(scope="module")
def long_reviews(tmp_path_factory):
    """Sentences of 900 words, beyond what the checkpoint was trained with."""
    folder = tmp_path_factory.mktemp("long")
    rng = random.Random(0)
    labels = ["0", "1"] * 4
    for split in ("train", "valid"):
        lines = [toy_data.sentence(rng, int(label), (900, 900)) for label in labels]
        toy_data.write_split(folder / "input0", split, lines, toy_data.word_dictionary())
        toy_data.write_split(folder / "label", split, labels, toy_data.dictionary(["0", "1"]))
    return folder


@pytest.mark.parametrize(("encoding", "positions"), [("learned", 1024), ("tupe_r", 4096)])
def test_trained_at_512_tuned_beyond(
    toy_masked_lm_data, long_reviews, tmp_path, encoding, positions
):
    """The first 512 positions start where training left them, and the later ones learn."""
    name = ("--position-encoding", encoding, "--max-update", 1)
    longest = ("--tokens-per-sample", 512)
    short = pretrain(toy_masked_lm_data, tmp_path / "short", *name, *longest)
    table = "encoder.sentence_encoder.embed_positions.weight"
    before = parameters(short)[table]
    more = (*LONG, "--max-positions", positions, "--num-classes", 2, "--batch-size", 2)
    flags = (*name, "--finetune-from-model", short, *more)
    still = parameters(finetune(long_reviews, tmp_path / "still", *flags, "--lr", 0))[table]
    assert len(still) - len(before) == positions - 512
    # Hierarchical decomposition gives trained positions back up to rounding.
    torch.testing.assert_close(still[: len(before)], before)
    tuned = parameters(finetune(long_reviews, tmp_path / "tuned", *flags))[table]
    assert (tuned != still).any(dim=1)[len(before) : len(before) + 300].all()


TOEPLITZ = {"extend_positions": "toeplitz"}


def load(checkpoint, data, **overrides):
    return TupeRobertaModel.from_pretrained(
        checkpoint.parent, checkpoint.name, data, **overrides
    ).eval()


def test_hub_continues_tupe_by_distance(toy_checkpoint, toy_masked_lm_data):
    """The checkpoint records the trained length; short texts stay bit-identical."""
    short = load(toy_checkpoint, toy_masked_lm_data)
    hub = load(toy_checkpoint, toy_masked_lm_data, max_positions=300, **TOEPLITZ)
    tokens = torch.randint(4, 200, (2, 300))
    assert hub.extract_features(tokens).isfinite().all()
    few = tokens[:, :64]
    assert torch.equal(hub.extract_features(few), short.extract_features(few))


def test_tuning_and_resuming_beyond_the_trained_length(toy_checkpoint, long_reviews, tmp_path):
    """The table keeps its rows, learns at the new length, and the result loads as it is."""
    flags = ("--extend-positions", "toeplitz", "--trained-positions", 64, "--max-positions", 1024)
    start = ("--finetune-from-model", toy_checkpoint, "--num-classes", 2, "--batch-size", 2)
    tuned = finetune(long_reviews, tmp_path, *flags, *start, "--max-update", 1)
    resumed = finetune(long_reviews, tmp_path, *flags, *start, "--max-update", 2)
    table = "encoder.sentence_encoder.embed_positions.weight"
    before = parameters(toy_checkpoint)[table]
    after = parameters(resumed)[table]
    assert before.shape == after.shape
    assert (before != after).any(dim=1)[1:].all()
    hub = load(tuned, long_reviews / "input0")
    assert hub.extract_features(torch.randint(4, 200, (1, 1000))).isfinite().all()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"max_positions": 128, "trained_positions": 256},
            "--trained-positions is 256, but must be .* at most --max-positions",
        ),
        (
            {"max_positions": 128, "trained_positions": None},
            "--trained-positions is 128, but the checkpoint has 64 positions: give that number",
        ),
        (
            {"position_encoding": "rope", "trained_positions": None},
            "tupe_a and tupe_r, but the encoding is 'rope'",
        ),
        (
            {"max_positions": 128, "extend_positions": None},
            "continue beyond them with --extend-positions hierarchical or toeplitz",
        ),
    ],
    ids=["shorter", "not recorded", "another encoding", "not asked for"],
)
def test_a_checkpoint_that_cannot_be_continued(
    toy_checkpoint, toy_masked_lm_data, overrides, message
):
    with pytest.raises(ValueError, match=message):
        load(toy_checkpoint, toy_masked_lm_data, **TOEPLITZ | overrides)
