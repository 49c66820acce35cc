"""Our `deberta` as released against transformers' DeBERTa-v2, with the same parameters."""

import itertools
import random

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")

from tests.huggingface.deberta import NEEDS_LEGACY, RELEASED, batch, new_name, ours_of, theirs_of
from tests.tolerances import assert_close, assert_gradients_close
from tupe_fairseq.base.errors import DataError

#: The values of each option.
OPTIONS = {
    "position_buckets": (-1, 8),
    "max_relative_positions": (-1, 6),
    "share_att_key": (False, True),
    "norm_rel_ebd": ("none", "layer_norm"),
    "pos_att_type": ("none", "c2p", "p2c", "p2c|c2p"),
    "position_biased_input": (False, True),
    "type_vocab_size": (0, 2),
    "legacy": (False, True),
}


def sample(count):
    """Combinations of options that hold every pair of values."""
    everything = [dict(zip(OPTIONS, v, strict=True)) for v in itertools.product(*OPTIONS.values())]
    chosen = random.Random(0).sample(everything, count)

    def pairs(combinations):
        return {pair for each in combinations for pair in itertools.combinations(each.items(), 2)}

    assert pairs(chosen) == pairs(everything)
    return chosen


def theirs_with(task, options):
    terms = [] if options["pos_att_type"] == "none" else options["pos_att_type"]
    legacy = options["legacy"] or NEEDS_LEGACY
    return theirs_of(task, **{**options, "pos_att_type": terms, "legacy": legacy})


def name_of(options):
    return "-".join(str(value) for value in options.values())


@pytest.mark.parametrize("options", sample(32), ids=name_of)
def test_logits_loss_and_gradients_of_all_options(options):
    """With tokens of both types, and padding at the end."""
    theirs = theirs_with("ForMaskedLM", options)
    given = batch(17, 0, 5, 11)
    given["token_type_ids"] = torch.arange(17).expand(3, -1) % max(1, options["type_vocab_size"])
    labels = given["input_ids"].masked_fill(given["attention_mask"] == 0, -100)
    assert_alike(ours_of(theirs), theirs, given, {"labels": labels})


def assert_alike(ours, theirs, given, labels):
    """Outputs at tokens, loss, and its gradients."""
    mask = given["attention_mask"].bool()
    found, expected = (model(**given, **labels) for model in (ours, theirs))
    for name in expected.keys() - {"loss"}:
        shown = mask if expected[name].shape[:2] == mask.shape else ...
        assert_close(found[name][shown], expected[name][shown])
    assert_close(found.loss, expected.loss)
    found.loss.backward()
    expected.loss.backward()
    task = type(theirs).__name__.removeprefix("DebertaV2")
    compared = {new_name(name, task): p for name, p in theirs.named_parameters()}
    of_ours, of_theirs = (
        {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in named}
        for named in (ours.named_parameters(), compared.items())
    )
    assert_gradients_close(of_ours, of_theirs, torch.float32)


@torch.no_grad()
def assert_same_states(theirs, given, **changes):
    """Last hidden states at tokens."""
    mask = given["attention_mask"].bool()
    ours = ours_of(theirs, **changes)
    found, expected = (model(**given).last_hidden_state[mask] for model in (ours, theirs))
    assert_close(found, expected)


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("length", [1, 2, 31, 128, 600])
@pytest.mark.parametrize("backend", ["blocked", "eager", "sdpa"])
def test_lengths_and_padding_on_both_sides(backend, length, left):
    """As released; beyond max_position_embeddings, too."""
    theirs = theirs_of("Model", **RELEASED, max_position_embeddings=512)
    given = batch(length, 0, length // 3, length - 1, left=left)
    assert_same_states(theirs, given, attention_backend=backend)


@pytest.mark.parametrize("buckets", [-1, 16, 40])
def test_texts_beyond_max_position_embeddings(buckets):
    """24 here: more distances than rows of the table, and fewer."""
    options = {"position_buckets": buckets, "max_relative_positions": 48}
    assert_same_states(theirs_of("Model", **RELEASED | options), batch(70, 0, 20))
    absolute = ours_of(theirs_of("Model", **RELEASED | {"position_biased_input": True}))
    with pytest.raises(DataError, match="25 tokens, but max_position_embeddings is 24"):
        absolute(**batch(25, 0))


@pytest.mark.parametrize(("width", "heads", "layers"), [(24, 1, 3), (64, 4, 1), (96, 12, 2)])
def test_sizes(width, heads, layers):
    sizes = {"hidden_size": width, "num_attention_heads": heads, "num_hidden_layers": layers}
    assert_same_states(theirs_of("Model", **RELEASED, **sizes), batch(20, 3, 0))


LABELS = {
    "ForSequenceClassification": {"labels": torch.tensor([2, 0, 1])},
    "ForTokenClassification": {"labels": torch.arange(39).view(3, 13) % 3},
    "ForQuestionAnswering": {
        "start_positions": torch.tensor([0, 3, 1]),
        "end_positions": torch.tensor([4, 3, 2]),
    },
}


@pytest.mark.parametrize("task", LABELS)
def test_heads(task):
    """A loss over positions of a text reads those of padding."""
    labels = 2 if task == "ForQuestionAnswering" else 3
    theirs = theirs_of(task, **RELEASED, num_labels=labels)
    given = batch(13, *((0, 0, 0) if labels == 2 else (0, 2, 9)))
    mask = given["attention_mask"].bool()
    targets = {k: v.where(mask, -100) if v.dim() == 2 else v for k, v in LABELS[task].items()}
    assert_alike(ours_of(theirs), theirs, given, targets)


def test_dropouts_of_the_classifier():
    """Before its first layer, and before its second."""
    theirs = theirs_of("ForSequenceClassification", **RELEASED, pooler_dropout=0.25)
    classifier = ours_of(theirs, classifier_dropout=0.5).classifier
    assert (classifier.pooler_dropout.p, classifier.dropout.p) == (0.25, 0.5)
