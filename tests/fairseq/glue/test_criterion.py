"""`--criterion glue_prediction`: GLUE's metrics over a whole set, in any batches."""

import json
from argparse import Namespace

import numpy as np
import pytest
import torch
from fairseq.criterions import build_criterion
from fairseq.criterions.sentence_prediction import SentencePredictionCriterion
from fairseq.logging import metrics
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from tests import toy_data
from tests.fairseq_commands import finetune
from tupe_fairseq import UsageError
from tupe_fairseq.fairseq.glue import metrics as glue_metrics

HEAD = "sentence_classification_head"
GLUE_PREDICTION = ("--criterion", "glue_prediction")


class Fixed(torch.nn.Module):
    """A model that answers with the logits it is handed as input."""

    classification_heads = (HEAD,)
    # Which fairseq 0.12.2's criterion looks for its own pruning in.
    args = Namespace()

    def forward(self, src_tokens, **unused):
        return src_tokens, None

    def get_targets(self, sample, net_output):
        return sample["target"]


def criterion_of(labels: list[str] | None, name: str = "glue_prediction", **flags):
    task = Namespace(label_dictionary=toy_data.dictionary(labels or []))
    arguments = {"classification_head_name": HEAD, "regression_target": labels is None}
    return build_criterion(Namespace(criterion=name, **arguments, **flags), task).eval()


def outputs(
    criterion, logits: torch.Tensor, targets: torch.Tensor, sizes: list[int]
) -> list[dict]:
    """Logging outputs of batches of these sizes."""
    parts = zip(logits.split(sizes), targets.split(sizes), strict=True)
    samples = [
        {"net_input": {"src_tokens": x}, "target": y, "ntokens": 7 * len(y)} for x, y in parts
    ]
    return [criterion(Fixed().eval(), sample)[2] for sample in samples]


def logged(criterion, groups: list[list[dict]]) -> dict[str, float]:
    """What fairseq logs of a set; a group is what it reduces at once."""
    with metrics.aggregate(new_root=True) as aggregator:
        for group in groups:
            criterion.reduce_metrics(group)
    return aggregator.get_smoothed_values()


@pytest.mark.parametrize("order", [["0", "1"], ["1", "0"]])
def test_binary_labels_against_sklearn(order):
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(103, 2, generator=generator)
    targets = torch.arange(103) % 3 // 2
    criterion = criterion_of(order)
    batches = outputs(criterion, logits, targets, [32, 32, 32, 7])
    found = logged(criterion, [[batch] for batch in batches])
    words = np.array([int(word) for word in order])
    predicted = words[logits.argmax(1).numpy()]
    true = words[targets.numpy()]
    expected = {
        "accuracy": accuracy_score(true, predicted),
        "f1": f1_score(true, predicted),
        "mcc": matthews_corrcoef(true, predicted),
    }
    assert {name: found[name] for name in expected} == pytest.approx(
        {name: 100 * value for name, value in expected.items()}, abs=1e-4
    )
    bits = torch.nn.functional.cross_entropy(logits, targets) / np.log(2)
    assert found["loss"] == pytest.approx(bits.item(), abs=1e-4)


def test_regression_against_scipy():
    generator = torch.Generator().manual_seed(1)
    targets = torch.randint(0, 26, (103,), generator=generator) / 5
    logits = (targets + torch.randn(103, generator=generator))[:, None]
    criterion = criterion_of(None)
    batches = outputs(criterion, logits, targets, [32, 32, 32, 7])
    found = logged(criterion, [[batch] for batch in batches])
    assert "accuracy" not in found
    predicted = logits[:, 0].double().numpy()
    true = targets.double().numpy()
    assert found["pearson"] == pytest.approx(100 * pearsonr(predicted, true)[0], abs=1e-4)
    assert found["spearman"] == pytest.approx(100 * spearmanr(predicted, true)[0], abs=1e-4)
    assert found["loss"] == pytest.approx(np.mean((predicted - true) ** 2), abs=1e-4)


def test_words_as_labels_have_accuracy_alone():
    criterion = criterion_of(["entailment", "not_entailment"])
    found = logged(criterion, [outputs(criterion, torch.eye(2), torch.tensor([0, 0]), [2])])
    assert found["accuracy"] == 50
    assert not {"mcc", "f1", "pearson"} & found.keys()


def test_training_logs_no_metric_of_a_part():
    criterion = criterion_of(["0", "1"]).train()
    sample = {"net_input": {"src_tokens": torch.eye(2)}, "target": torch.tensor([0, 1])}
    log = criterion(Fixed().train(), sample | {"ntokens": 2})[2]
    assert set(logged(criterion, [[log]])) == {"loss", "accuracy"}


@pytest.mark.parametrize("labels", [["0", "1"], None])
def test_loss_is_that_of_fairseqs_criterion(labels):
    logits = torch.randn(5, 2 if labels else 1, requires_grad=True)
    sample = {"net_input": {"src_tokens": logits}, "target": torch.ones(5).long(), "ntokens": 9}
    flags = dict.fromkeys(["report_mcc", "report_acc_and_f1"], False)
    stock = criterion_of(labels, "sentence_prediction", report_pearson_and_spearman=False, **flags)
    assert type(stock) is SentencePredictionCriterion
    gradients = []
    for criterion in (criterion_of(labels), stock):
        loss, size, _ = criterion(Fixed(), sample)
        gradients.append(torch.autograd.grad(loss / size, logits)[0])
    assert torch.equal(*gradients)


def test_missing_head_is_named():
    criterion = criterion_of(["0", "1"])
    with pytest.raises(UsageError, match=HEAD):
        criterion(torch.nn.Linear(1, 1), {})


numbers = st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=2, max_size=30).map(
    lambda pairs: np.array(pairs, dtype=np.float32).T
)


@given(numbers)
def test_correlations_of_any_numbers(pair):
    x, y = pair
    constant = np.ptp(x) == 0 or np.ptp(y) == 0
    for ours, theirs in ((glue_metrics.pearson, pearsonr), (glue_metrics.spearman, spearmanr)):
        expected = 0 if constant else 100 * theirs(x.astype(np.float64), y.astype(np.float64))[0]
        assert ours(x, y) == pytest.approx(expected, abs=1e-9)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_metrics_of_any_two_classes(pairs):
    predicted, true = np.array(pairs).T
    found = glue_metrics.f1(predicted, true), glue_metrics.pearson(predicted, true)
    expected = f1_score(true, predicted, zero_division=0), matthews_corrcoef(true, predicted)
    assert found == pytest.approx([100 * value for value in expected], abs=1e-9)


def test_a_diverged_model_correlates_with_nothing():
    x = np.array([np.nan, 1.0, 2.0])
    assert glue_metrics.pearson(x, np.arange(3.0)) == 0
    assert glue_metrics.spearman(x, np.arange(3.0)) == 0


@pytest.mark.parametrize(
    ("kind", "flags", "names"),
    [
        ("single", ("--num-classes", 2), {"valid_accuracy", "valid_f1", "valid_mcc"}),
        ("mnli", ("--num-classes", 3), {"valid_accuracy"}),
        (
            "regression",
            ("--num-classes", 1, "--regression-target"),
            {"valid_pearson", "valid_spearman"},
        ),
    ],
)
def test_fairseq_train_logs_the_metrics(kind, flags, names, toy_sentence_data, tmp_path, caplog):
    best = sorted(names)[-1].removeprefix("valid_")
    choose = ("--best-checkpoint-metric", best, "--maximize-best-checkpoint-metric")
    more = ("--log-format", "json", *GLUE_PREDICTION, *choose)
    checkpoint = finetune(toy_sentence_data[kind], tmp_path, *flags, *more)
    lines = [r.getMessage() for r in caplog.records if r.name == "valid"]
    (line,) = (json.loads(line) for line in lines if line.startswith("{"))
    known = {"valid_accuracy", "valid_f1", "valid_mcc", "valid_pearson", "valid_spearman"}
    assert {*line} & known == names
    state = torch.load(checkpoint, weights_only=True)
    assert state["extra_state"]["val_loss"] == pytest.approx(float(line[f"valid_{best}"]))
