"""ModernBERT of transformers there and back, and as our class with its code."""

from pathlib import Path

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import tokenizers  # noqa: E402

from tests.convert.samples import (  # noqa: E402
    SIZES,
    TEXT,
    assert_same_state,
    assert_same_tokens,
    change_config,
    ids,
    masked_lm,
    perturbed,
    refused,
    run,
)
from tests.huggingface.encoders import BIASES, MODERN_SIZES  # noqa: E402
from tests.tolerances import assert_close  # noqa: E402
from tupe_fairseq import TupeRobertaModel  # noqa: E402
from tupe_fairseq import huggingface as huggingface_models  # noqa: E402
from tupe_fairseq.convert.dictionaries import dictionary_of, dictionary_text  # noqa: E402
from tupe_fairseq.convert.directory import load  # noqa: E402
from tupe_fairseq.convert.formats import huggingface  # noqa: E402

HEADS = {
    "ForSequenceClassification": "sentence_classification_head",
    "ForTokenClassification": "token_classification_head",
    "ForQuestionAnswering": "question_answering_head",
}
OTHER = {**BIASES, "hidden_activation": "silu", "global_attn_every_n_layers": 2}
OTHER |= {"decoder_bias": False, "norm_eps": 1e-3, "classifier_activation": "relu"}
OTHER |= {"sparse_prediction": True, "sparse_pred_ignore_index": -7}
SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
CASES = {
    "masked": ("ForMaskedLM", {}),
    "masked-other": ("ForMaskedLM", OTHER),
    "masked-global": ("ForMaskedLM", {"global_attn_every_n_layers": 1}),
    "sentences": ("ForSequenceClassification", {}),
    "mean": ("ForSequenceClassification", {**OTHER, "classifier_pooling": "mean"}),
    "tokens": ("ForTokenClassification", OTHER),
    "answers": ("ForQuestionAnswering", {}),
}


def save(folder: Path, kind: str, **changes) -> Path:
    """A directory of ModernBERT with a tokenizer of its kind."""
    torch.manual_seed(0)
    sizes = {**MODERN_SIZES, "vocab_size": 290, "num_labels": 2 if "Q" in kind else 3}
    model = getattr(transformers, f"ModernBert{kind}")(
        transformers.ModernBertConfig(**sizes | changes)
    )
    perturbed(model).save_pretrained(folder)
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(TEXT * 9, vocab_size=280, special_tokens=SPECIAL)
    tokenizer._tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    names = dict(zip(("pad", "cls", "sep", "unk", "mask"), SPECIAL, strict=True))
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer._tokenizer,
        **{f"{kind}_token": name for kind, name in names.items()},
    ).save_pretrained(folder)
    return folder


def loaded(kind: str, folder: Path, **how) -> torch.nn.Module:
    auto = getattr(transformers, f"AutoModel{kind}")
    return auto.from_pretrained(folder, **how).eval()


def batch(length: int = 30) -> dict[str, torch.Tensor]:
    """A text, and a shorter one with padding on the right."""
    ids = torch.randint(5, 280, (2, length), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, length // 2 :] = 0
    return {"input_ids": ids * mask, "attention_mask": mask}


def assert_same(found, expected, given) -> None:
    """Compare all outputs at tokens."""
    mask = given["attention_mask"].bool()
    for one, other in zip(found.to_tuple(), expected.to_tuple(), strict=True):
        per_token = one.shape[:2] == mask.shape
        assert_close(one[mask] if per_token else one, other[mask] if per_token else other)


@pytest.mark.parametrize("case", CASES)
def test_back_to_its_own_class(case, tmp_path):
    """Bit for bit, by the form between formats; and as our class."""
    kind, options = CASES[case]
    source = save(tmp_path / "theirs", kind, **options)
    run("--from", "huggingface", source, tmp_path / "ours", "--to", "huggingface")
    back = ("--to", "huggingface", "--classes", "modernbert")
    run("--from", "huggingface", tmp_path / "ours", tmp_path / "back", *back)
    theirs = loaded(kind, source)
    again = loaded(kind, tmp_path / "back")
    assert type(again) is type(theirs)
    state = theirs.state_dict()
    assert again.state_dict().keys() == state.keys()
    for name, value in again.state_dict().items():
        assert torch.equal(value, state[name]), name
    ours = loaded(kind, tmp_path / "ours", trust_remote_code=True)
    for length in (1, 30, 600):
        given = batch(length) if length > 1 else {k: v[:1, :1] for k, v in batch().items()}
        expected = theirs(**given)
        assert_same(ours(**given), expected, given)
        assert_same(again(**given), expected, given)


@pytest.mark.parametrize("case", ["masked", "masked-other"])
def test_fairseq_there_and_back(case, tmp_path):
    kind, options = CASES[case]
    source = save(tmp_path / "theirs", kind, **options)
    run("--from", "huggingface", source, tmp_path / "here", "--check")
    back = ("--classes", "modernbert", "--check")
    run("--to", "huggingface", tmp_path / "here", tmp_path / "back", *back)
    models = [loaded(kind, folder) for folder in (source, tmp_path / "back")]
    theirs, again = (model.state_dict() for model in models)
    for name in ("sparse_prediction", "sparse_pred_ignore_index", "classifier_activation"):
        assert getattr(models[1].config, name) == getattr(models[0].config, name)
    assert again.keys() == theirs.keys()
    assert all(torch.equal(value, theirs[name]) for name, value in again.items())
    hub = TupeRobertaModel.from_pretrained(tmp_path / "here")
    assert hub.model.args.gated_ffn == ("swiglu" if options else "geglu")


def test_biases_that_fairseq_has_trained_go_back(tmp_path):
    """Those of the head's norm: there, all norms have a bias then."""
    here = tmp_path / "here"
    run("--from", "huggingface", save(tmp_path / "theirs", "ForMaskedLM"), here)
    checkpoint = torch.load(here / "model.pt", weights_only=True)
    for name in ("dense", "layer_norm"):
        checkpoint["model"][f"encoder.lm_head.{name}.bias"].fill_(0.5)
    torch.save(checkpoint, here / "model.pt")
    run("--to", "huggingface", here, tmp_path / "back", "--classes", "modernbert", "--check")
    again = loaded("ForMaskedLM", tmp_path / "back")
    assert again.head.norm.bias.eq(0.5).all()
    assert not again.model.final_norm.bias.any()


@pytest.mark.parametrize("kind", HEADS)
def test_heads_that_fairseq_lacks_are_left_out(kind, tmp_path):
    """With the names of their classes."""
    source = save(tmp_path / "theirs", kind)
    here = tmp_path / "here"
    lines = run("--from", "huggingface", source, here, "--check")
    assert any(f"left out: the head {HEADS[kind]}, whose norm" in line for line in lines)
    assert not (here / "label").exists()
    assert not load(here).labels


@pytest.mark.parametrize("kind", HEADS)
def test_fine_tuned_as_our_class(kind, tmp_path):
    """From fairseq and its settings: in transformers, and back in ModernBERT's class."""
    here, ours, tuned, back = (tmp_path / name for name in ("here", "ours", "tuned", "back"))
    run("--from", "huggingface", save(tmp_path / "theirs", "ForMaskedLM", num_labels=2), here)
    run("--to", "huggingface", here, ours)
    perturbed(loaded(kind, ours, trust_remote_code=True), 3).save_pretrained(tuned)
    to = ("--to", "huggingface", "--classes", "modernbert", "--check")
    run("--from", "huggingface", tuned, back, *to)
    given = batch()
    expected = loaded(kind, tuned, trust_remote_code=True)(**given)
    assert_same(loaded(kind, back)(**given), expected, given)


def test_a_head_that_fairseq_has_trained(tmp_path):
    """It has neither the norm nor the pooling that the settings of the source name."""
    here = tmp_path / "here"
    out = tmp_path / "out"
    name = HEADS["ForSequenceClassification"]
    source = save(tmp_path / "theirs", "ForMaskedLM", classifier_pooling="mean")
    run("--from", "huggingface", source, here)
    hub = TupeRobertaModel.from_pretrained(here)
    hub.register_classification_head(name, num_classes=3)
    state = torch.load(here / "model.pt", weights_only=True)
    torch.save(state | {"model": hub.model.state_dict()}, here / "model.pt")
    run("--to", "huggingface", here, out, "--head", name, "--check")
    stock = ("--classes", "modernbert", "--check")
    run("--to", "huggingface", here, tmp_path / "stock", *stock)
    with refused("transformers' modernbert has no such model", "head.norm.weight"):
        run("--to", "huggingface", here, tmp_path / "none", "--head", name, *stock)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_fairseq_has_no_pooled_heads(pooling, tmp_path):
    """A head of our class that reads the mean is left out, and said."""
    config = huggingface_models.TupeConfig(
        position_encoding="rope", classifier_pooling=pooling, **SIZES | {"pad_token_id": 1}
    )
    model = huggingface_models.TupeForSequenceClassification(config)
    perturbed(model).save_pretrained(tmp_path / "ours")
    words = dictionary_text(dictionary_of(f"w{i}" for i in range(SIZES["vocab_size"] - 5)))
    (tmp_path / "ours/dict.txt").write_bytes(words)
    lines = run("--from", "huggingface", tmp_path / "ours", tmp_path / "here", "--check")
    left_out = [line for line in lines if "left out: the head sentence_classification" in line]
    assert bool(left_out) == (pooling == "mean")


@pytest.mark.parametrize("classes", [2, 3])
def test_multiple_choice_becomes_a_score_of_each_text(classes, tmp_path):
    # As transformers writes it, which counts two classes unless told, or those of another task
    # that the model was trained on before.
    source = save(tmp_path / "theirs", "ForMultipleChoice", num_labels=classes)
    to = ("--to", "huggingface", "--check")
    lines = run("--from", "huggingface", source, tmp_path / "ours", *to)
    assert "the head for multiple choice becomes one score of each text" in lines
    ours = loaded("ForSequenceClassification", tmp_path / "ours", trust_remote_code=True)
    given = batch()
    choices = {name: value[None] for name, value in given.items()}
    expected = loaded("ForMultipleChoice", source)(**choices).logits
    assert_close(ours(**given).logits.T, expected)


def test_losses_and_gradients_are_equal(tmp_path):
    """Of the class with its code, with padding on the left."""
    source = save(tmp_path / "theirs", "ForMaskedLM")
    run("--from", "huggingface", source, tmp_path / "ours", "--to", "huggingface")
    given = {name: value.flip(1) for name, value in batch().items()}
    given["labels"] = given["input_ids"].masked_fill(given["attention_mask"] == 0, -100)
    found = []
    for folder in ("theirs", "ours"):
        model = loaded("ForMaskedLM", tmp_path / folder, trust_remote_code=True).train()
        loss = model(**given).loss
        loss.backward()
        found.append((loss, model.get_input_embeddings().weight.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_warm_start(tmp_path):
    """Another encoding, with the layers of ModernBERT."""
    source = save(tmp_path / "theirs", "ForMaskedLM")
    out = tmp_path / "out"
    lines = run("--from", "huggingface", source, out, "--position-encoding", "tupe_r")
    assert "left out: none" in lines
    model = TupeRobertaModel.from_pretrained(out).model
    assert model.args.position_encoding == "tupe_r"
    theirs = loaded("ForMaskedLM", source).model.layers[1].mlp.Wi.weight
    assert torch.equal(model.encoder.sentence_encoder.layers[1].fc1.weight, theirs)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"attention_dropout": 0.1}, "unsupported attention_dropout 0.1; it must be 0"),
        ({"hidden_activation": "relu"}, "hidden_activation 'relu'; it must be 'gelu' or 'silu'"),
        ({"layer_types": ["sliding_attention"] * 4}, "unsupported layer_types"),
        ({"classifier_activation": "tanh_"}, "tanh_"),
        ({"num_attention_heads": 5}, "The hidden size (48) is not a multiple"),
    ],
)
def test_unsupported(changes, expected, tmp_path):
    source = save(tmp_path / "theirs", "ForMaskedLM")
    change_config(source, changes)
    with refused(expected):
        run("--from", "huggingface", source, tmp_path / "here")


def test_models_without_a_counterpart(tmp_path):
    source = save(tmp_path / "theirs", "ForMaskedLM")
    ours = tmp_path / "ours"
    run("--from", "huggingface", source, ours, "--position-encoding", "tupe_r")
    with refused("modernbert supports position_encoding 'rope' only", "use --classes tupe"):
        run("--to", "huggingface", ours, tmp_path / "back", "--classes", "modernbert")


#: Those that ModernBERT does not have, and fewer biases.
LAYERS = {"gated_ffn": "swiglu", "norm": "rms", "attention_bias": False, "ffn_bias": False}


@torch.no_grad()
def test_other_layers_there_and_back(tmp_path):
    """Layers of LLaMA: as our class, and from it the parameters of fairseq's model."""
    built, converted = masked_lm("rope", **LAYERS, encoder_normalize_before=True)
    huggingface.write(converted, tmp_path / "ours")
    ours = loaded("ForMaskedLM", tmp_path / "ours", trust_remote_code=True)
    tokens = ids()
    assert_same_tokens([ours(tokens).logits], [built(tokens)[0]], tokens)
    assert_same_state(huggingface.read(tmp_path / "ours"), converted.state)
