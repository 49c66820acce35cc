"""Heads, losses and refusals of the models for transformers."""

import math

import pytest
import torch

from tests.huggingface.samples import config, filled, masked_lm, tokens
from tests.tolerances import assert_close, assert_gradients_close

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from tupe_fairseq import UsageError  # noqa: E402
from tupe_fairseq import huggingface as hf  # noqa: E402

IDS = tokens()
MASKS = {
    "none": [[1, 1, 1, 1, 1]] * 3,
    "right": [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]],
    "left": [[1, 1, 1, 1, 1], [0, 0, 0, 1, 1], [0, 1, 1, 1, 1]],
    "scattered": [[0, 1, 0, 1, 1], [1, 1, 0, 0, 1], [0, 0, 1, 1, 0]],
}


def cross_entropy(logits: torch.Tensor, targets: list[int]) -> float:
    """Mean over rows, by Python's own logarithm."""
    losses = []
    for row, target in zip(logits.double().tolist(), targets, strict=True):
        losses.append(math.log(sum(math.exp(x) for x in row)) - row[target])
    return sum(losses) / len(losses)


@torch.no_grad()
def test_sequence_classification():
    model = filled(hf.TupeForSequenceClassification, config(num_labels=3))
    out = model(IDS, labels=torch.tensor([2, 0, 1]))
    assert model.config.problem_type == "single_label_classification"
    assert out.loss.item() == pytest.approx(cross_entropy(out.logits, [2, 0, 1]), rel=1e-5)
    several = filled(hf.TupeForSequenceClassification, config(num_labels=3))
    labels = torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 1]])
    out = several(IDS, labels=labels)
    assert several.config.problem_type == "multi_label_classification"
    sigmoid = 1 / (1 + (-out.logits.double()).exp())
    loss = -(labels * sigmoid.log() + (1 - labels) * (1 - sigmoid).log()).mean()
    assert_close(out.loss, loss.float())


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
@torch.no_grad()
def test_regression(shape):
    model = filled(hf.TupeForSequenceClassification, config(num_labels=1))
    labels = torch.tensor([0.5, 2.0, -1.0])
    out = model(IDS, labels=labels.view(shape))
    assert model.config.problem_type == "regression"
    assert_close(out.loss, (out.logits[:, 0] - labels).square().mean())


@pytest.mark.parametrize(
    ("kind", "classes", "labels"),
    [
        (None, 1, [1, 5, 2]),
        ("regression", 1, [1, 5, 2]),
        ("multi_label_classification", 2, [[1, 0], [0, 0], [1, 1]]),
    ],
)
@torch.no_grad()
def test_integer_labels(kind, classes, labels):
    """Serve where floating-point numbers are expected; their losses are tested above."""
    model = filled(hf.TupeForSequenceClassification, config(num_labels=classes))
    losses = []
    for dtype in (torch.long, torch.float):
        model.config.problem_type = kind
        losses.append(model(IDS, labels=torch.tensor(labels, dtype=dtype)).loss)
    assert losses[0] == losses[1] > 0


@torch.no_grad()
def test_classification_into_one_class():
    """Only problem_type tells it from regression."""
    model = filled(hf.TupeForSequenceClassification, config(num_labels=1))
    model.config.problem_type = "single_label_classification"
    assert model(IDS, labels=torch.tensor([0, 0, 0])).loss == 0


@torch.no_grad()
def test_token_classification():
    model = filled(hf.TupeForTokenClassification, config(num_labels=4))
    labels = torch.full_like(IDS, -100)
    labels[0, 3] = 1
    labels[1, 2] = 3
    out = model(IDS, labels=labels)
    assert out.logits.shape == (*IDS.shape, 4)
    counted = torch.stack((out.logits[0, 3], out.logits[1, 2]))
    assert out.loss.item() == pytest.approx(cross_entropy(counted, [1, 3]), rel=1e-5)


@torch.no_grad()
def test_question_answering():
    model = filled(hf.TupeForQuestionAnswering, config())
    start = torch.tensor([1, 5, 99])
    end = torch.tensor([[4], [6], [2]])
    out = model(IDS, start_positions=start, end_positions=end)
    # Position 99 is outside of the text, so the last sequence has no first token.
    first = cross_entropy(out.start_logits[:2], [1, 5])
    last = cross_entropy(out.end_logits, [4, 6, 2])
    assert out.loss.item() == pytest.approx((first + last) / 2, rel=1e-5)


@torch.no_grad()
def test_multiple_choice():
    model = filled(hf.TupeForMultipleChoice, config())
    choices = torch.stack((IDS, IDS.flip(0)), 1)
    out = model(choices, attention_mask=choices.ne(1).long(), labels=torch.tensor([0, 1, 1]))
    assert out.logits.shape == (3, 2)
    assert_close(out.logits[0, 0], out.logits[2, 1])
    assert out.loss.item() == pytest.approx(cross_entropy(out.logits, [0, 1, 1]), rel=1e-5)
    with pytest.raises(UsageError, match="exactly one of input_ids and inputs_embeds"):
        model()


@pytest.mark.parametrize(
    ("inputs", "part"),
    [
        ({}, "exactly one of input_ids and inputs_embeds"),
        ({"input_ids": IDS, "inputs_embeds": torch.zeros(3, 24, 32)}, "exactly one of"),
        ({"input_ids": IDS, "attention_mask": torch.ones(3, 1, 24, 24)}, r"\(3, 1, 24, 24\)"),
        ({"input_ids": IDS[0]}, r"input_ids has the shape \(24,\)"),
        ({"input_ids": IDS, "attention_mask": torch.ones(3, 23)}, r"\(3, 23\), but must"),
        ({"input_ids": IDS, "attention_mask": torch.ones(2, 24)}, r"\(2, 24\), but must"),
        ({"input_ids": IDS, "token_type_ids": IDS.T}, r"token_type_ids has the shape \(24, 3\)"),
        ({"inputs_embeds": torch.zeros(3, 24, 16)}, r"\(3, 24, 16\), but must have \(3, 24, 32\)"),
        ({"input_ids": IDS, "labels": IDS.T}, r"labels has the shape \(24, 3\)"),
        ({"input_ids": torch.full((1, 25), 7)}, "25 tokens, but max_position_embeddings is 24"),
    ],
)
def test_inputs_that_are_refused(inputs, part):
    with pytest.raises(UsageError, match=part) as error:
        masked_lm()(**inputs)
    assert "\n" not in str(error.value)


SIZE = "must be a positive integer"
PROBABILITY = "must be a number from 0 to 1"


@pytest.mark.parametrize(
    ("kind", "changes", "part"),
    [
        (hf.TupeModel, {"position_encoding": "tupe"}, "'tupe', but the known ones are"),
        (hf.TupeModel, {"position_options": {"theta": 3.0}}, "'theta', but the options of tupe_r"),
        (
            hf.TupeModel,
            {"position_encoding": "rope", "rope_theta": 5.0},
            "has rope_theta, but options of rope have no effect there: give them in position_opt",
        ),
        (hf.TupeModel, {"position_options": {"num_buckets": 1}}, "num-buckets"),
        (hf.TupeModel, {"position_options": {"num_buckets": "8"}}, "must be a whole number, but"),
        (hf.TupeModel, {"attention_window": "8"}, "-window must be a whole number, but is '8'"),
        (
            hf.TupeModel,
            {"position_encoding": "rope", "extend_positions": "toeplitz"},
            "tupe_a and tupe_r, but the encoding is 'rope'",
        ),
        (
            hf.TupeModel,
            {"extend_positions": "toeplitz"},
            "extend_positions is 'toeplitz', but position_options has no trained_positions: give",
        ),
        (
            hf.TupeModel,
            {"extend_positions": "toeplitz", "position_options": {"trained_positions": 4096}},
            "--trained-positions is 4096, but must be .* at most --max-positions",
        ),
        (hf.TupeModel, {"hidden_act": "swish9"}, "hidden_act is 'swish9'"),
        (hf.TupeModel, {"num_attention_heads": 5}, "5 heads do not divide 32"),
        (hf.TupeModel, {"attention_backend": "fast"}, "'fast'"),
        (hf.TupeModel, {"hidden_size": []}, rf"hidden_size is \[\], but {SIZE}"),
        (hf.TupeModel, {"hidden_size": 0.5}, SIZE),
        (hf.TupeModel, {"num_attention_heads": None}, SIZE),
        (hf.TupeModel, {"vocab_size": -1}, SIZE),
        (hf.TupeModel, {"activation_dropout": 1.5}, f"_dropout is 1.5, but {PROBABILITY}"),
        (hf.TupeModel, {"hidden_dropout_prob": None}, PROBABILITY),
        (hf.TupeForSequenceClassification, {"classifier_dropout": {}}, PROBABILITY),
        (hf.TupeForSequenceClassification, {"classifier_act": "elu"}, "classifier_act is 'elu'"),
        (hf.TupeModel, {"is_decoder": True}, r"is_decoder is True, but .* tupe_fairseq 0\.3\.0"),
    ],
)
def test_configurations_that_are_refused(kind, changes, part):
    with pytest.raises(UsageError, match=part) as error:
        kind(config(**changes))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", [hf.TupeForMaskedLM, hf.TupeForTokenClassification])
def test_accumulated_batches(kind, tmp_path):
    """An update from batches of one is that from all, whatever their numbers of labels."""
    pytest.importorskip("accelerate", reason="accelerate is not installed, which Trainer needs")
    labels = torch.where(IDS == 1, -100, IDS % 4)
    rows = [{"input_ids": x, "labels": y} for x, y in zip(IDS, labels, strict=True)]
    found = []
    for size in (1, 3):
        model = filled(kind, config("tupe_r", num_labels=4))
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path),
            report_to=[],
            use_cpu=True,
            max_steps=1,
            save_strategy="no",
            per_device_train_batch_size=size,
            gradient_accumulation_steps=3 // size,
            optim="sgd",
            learning_rate=1.0,
            max_grad_norm=0,
        )
        transformers.Trainer(model, arguments, train_dataset=rows, eval_dataset=rows[:1]).train()
        found.append(dict(model.named_parameters()))
    for name, value in found[0].items():
        torch.testing.assert_close(value, found[1][name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_heads_of_sentences_read_the_first_unmasked_token(mask, states):
    """The vectors of other tokens are computed only where hidden states are wanted."""
    model = filled(hf.TupeForSequenceClassification, config(num_labels=3))
    mask = torch.tensor(mask)
    ids = torch.arange(5, 20).view(3, 5)
    whole = model.tupe(ids, mask).last_hidden_state
    first = [row.index(1) for row in mask.tolist()]
    out = model(ids, mask, output_hidden_states=states)
    assert_close(out.logits, model.classifier(whole[[0, 1, 2], first]))
    assert (out.hidden_states is not None) is states
    if states:
        assert_close(out.hidden_states[-1][mask == 1], whole[mask == 1])


@pytest.mark.parametrize("kind", [hf.TupeForSequenceClassification, hf.TupeForMultipleChoice])
def test_work_of_the_last_feed_forward_block(kind):
    model = filled(kind, config())
    counts = []
    model.tupe.encoder.layers[-1].activation_dropout_module.register_forward_hook(
        lambda _, given, __: counts.append(given[0].flatten(0, -2).size(0))
    )
    model(IDS if kind is hf.TupeForSequenceClassification else IDS[:, None])
    assert counts == [len(IDS)]


@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize(("name", "options"), [("tupe_r", {}), ("deberta", {"deberta_emd": True})])
def test_sparse_prediction(name, options, mask, states):
    """Logits, loss and gradients of the tokens with a label, in the order of the batch."""
    dense = masked_lm(name, position_options=options).train()
    sparse = masked_lm(name, position_options=options, sparse_prediction=True).train()
    mask = torch.tensor(mask)
    ids = torch.arange(5, 20).view(3, 5)
    labels = ids.masked_fill((mask == 0) | (ids % 2 == 0), -100)
    given = {"labels": labels, "num_items_in_batch": 4, "output_hidden_states": states}
    found = sparse(ids, mask, **given)
    expected = dense(ids, mask, **given)
    assert_close(found.logits, expected.logits[labels != -100])
    assert_close(found.loss, expected.loss)
    found.loss.backward()
    expected.loss.backward()
    gradients = [dict(model.named_parameters()) for model in (sparse, dense)]
    found, expected = ({name: p.grad for name, p in each.items()} for each in gradients)
    assert_gradients_close(found, expected, torch.float32)
    assert_close(sparse(ids, mask).logits[mask == 1], dense(ids, mask).logits[mask == 1])
    # In an evaluation, Trainer's metrics need a row for each label.
    evaluated, expected = (model.eval()(ids, mask, labels=labels) for model in (sparse, dense))
    assert_close(evaluated.logits[mask == 1], expected.logits[mask == 1])
    assert_close(evaluated.loss, expected.loss)
