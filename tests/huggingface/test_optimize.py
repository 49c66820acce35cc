"""`optimize` against the classes of transformers that it replaces."""

import warnings

import pytest
import torch
from torch import nn

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from tests.attention.test_replicas import replica  # noqa: E402
from tests.huggingface.encoders import (  # noqa: E402
    LENGTHS,
    NAMES,
    batch,
    build,
    compiles_transformers,
    every_model,
    is_optimized,
    with_transformers_5,
)
from tupe_fairseq.huggingface import optimize  # noqa: E402


@every_model
@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("side", ["right", "left", "none"])
def test_outputs_are_equal(name, side, states):
    model = build(name)
    inputs = batch(model, side)
    fast = optimize(model)
    assert isinstance(fast, type(model))
    assert type(fast).__name__ == type(model).__name__
    assert is_optimized(fast)
    theirs, ours = (m(**inputs, output_hidden_states=states) for m in (model, fast))
    assert list(theirs) == list(ours)
    shown = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"])).bool()
    pairs = (ours.hidden_states, theirs.hidden_states) if states else ((), ())
    for here, there in zip(*pairs, strict=True):
        # Between pre-LN layers, vectors are large.
        scale = there.abs().max().item() if name.startswith("modern") else 1
        torch.testing.assert_close(here[shown], there[shown], atol=1e-5 * scale, rtol=0)
    last = ours.last_hidden_state
    torch.testing.assert_close(last[shown], theirs[0][shown], atol=1e-5, rtol=0)
    if side != "left" and "pooler_output" in ours:
        torch.testing.assert_close(ours.pooler_output, theirs.pooler_output, atol=1e-5, rtol=0)
    assert torch.equal(fast(**inputs, return_dict=False)[0], fast(**inputs)[0])


@pytest.mark.parametrize("name", [*NAMES, "roberta", "v2"])
@pytest.mark.parametrize(
    ("head", "labels"),
    [
        ("ForMaskedLM", "tokens"),
        ("ForTokenClassification", "tokens"),
        ("ForSequenceClassification", "texts"),
        ("ForMultipleChoice", "choices"),
    ],
)
def test_losses_and_gradients_of_heads_are_equal(name, head, labels):
    model = build(name, head).train()
    inputs = batch(model)
    classes = model.config.vocab_size if head == "ForMaskedLM" else 2
    texts, length = inputs["input_ids"].shape
    if labels == "tokens":
        wanted = torch.randint(classes, (texts, length))
        inputs["labels"] = wanted.masked_fill(inputs["attention_mask"] == 0, -100)
    elif labels == "texts":
        inputs["labels"] = torch.randint(classes, (texts,))
    else:
        inputs = {key: value[:4].unflatten(0, (2, 2)) for key, value in inputs.items()}
        inputs["labels"] = torch.tensor([0, 1])
    gradients = []
    for each in (model, optimize(model)):
        each.zero_grad()
        loss = each(**inputs).loss
        loss.backward()
        gradients.append({"loss": loss} | {n: p.grad for n, p in each.named_parameters()})
        gradients[-1] = {n: None if g is None else g.clone() for n, g in gradients[-1].items()}
    assert gradients[0].keys() == gradients[1].keys()
    for each, expected in gradients[0].items():
        torch.testing.assert_close(gradients[1][each], expected, atol=1e-4, rtol=1e-4)


def test_questions_are_answered_equally():
    """The softmax over positions includes padding, which BERT computes like tokens."""
    model = build("bert", "ForQuestionAnswering", num_labels=2)
    spans = {"start_positions": torch.zeros(5).long(), "end_positions": torch.zeros(5).long()}
    inputs = {**batch(model), **spans}
    theirs = model(**inputs)
    ours = optimize(model)(**inputs)
    torch.testing.assert_close(ours.start_logits, theirs.start_logits, atol=1e-5, rtol=0)
    torch.testing.assert_close(ours.loss, theirs.loss, atol=1e-5, rtol=0)


@pytest.mark.parametrize("tokens", [2, 3, 7, 8, 9])
def test_windows_of_any_number_of_tokens(tokens):
    model = build("modernbert", local_attention=tokens)
    inputs = batch(model)
    shown = inputs["attention_mask"].bool()
    theirs, ours = (each(**inputs)[0][shown] for each in (model, optimize(model)))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


def test_texts_longer_than_the_configuration_says():
    """transformers rotates any position."""
    model = build("modernbert", max_position_embeddings=16)
    ids = torch.randint(4, 60, (2, 40))
    fast = optimize(model)
    for length in (40, 17, 8):
        given = ids[:, :length]
        torch.testing.assert_close(fast(given)[0], model(given)[0], atol=1e-5, rtol=0)


@every_model
def test_vectors_and_other_arguments(name):
    """Embeddings, types and positions of the caller; attention weights."""
    model = build(name)
    model.set_attn_implementation("eager")
    inputs = batch(model)
    ids = inputs.pop("input_ids")
    more = {"inputs_embeds": model.get_input_embeddings()(ids), **inputs}
    if getattr(model.config, "type_vocab_size", 0) > 1:
        more["token_type_ids"] = torch.randint(2, ids.shape)
    if name == "bert":
        more["position_ids"] = torch.arange(ids.size(1)).flip(0)[None]
    fast = optimize(model)
    shown = inputs["attention_mask"].bool()
    for extra in ({}, {"output_attentions": True}):
        theirs = model(**more, **extra)
        ours = fast(**more, **extra)
        torch.testing.assert_close(ours[0][shown], theirs[0][shown], atol=1e-5, rtol=0)
    assert len(ours.attentions) == model.config.num_hidden_layers
    queries = shown[:, None, :, None]
    for here, there in zip(ours.attentions, theirs.attentions, strict=True):
        torch.testing.assert_close(here * queries, there * queries, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_files_are_those_of_the_class(name, tmp_path):
    """Training goes on in the shared parameters; the saved folder loads without this package."""
    model = build(name, "ForSequenceClassification")
    fast = optimize(model)
    pairs = zip(model.named_parameters(), fast.named_parameters(), strict=True)
    assert all(a[0] == b[0] and a[1] is b[1] for a, b in pairs)
    model.save_pretrained(tmp_path / "theirs")
    fast.save_pretrained(tmp_path / "ours")
    for file in ("config.json", "model.safetensors"):
        same = (tmp_path / "theirs" / file).read_bytes() == (tmp_path / "ours" / file).read_bytes()
        assert same, file
    base = optimize(getattr(model, model.base_model_prefix))
    base.save_pretrained(tmp_path / "base")
    again = transformers.AutoModel.from_pretrained(tmp_path / "base")
    assert type(again).__module__.startswith("transformers.")
    inputs = batch(model)
    shown = inputs["attention_mask"].bool()
    torch.testing.assert_close(again(**inputs)[0][shown], base(**inputs)[0][shown])


@pytest.mark.parametrize("name", NAMES)
@with_transformers_5
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_masks_of_heads_and_replicas(name, precision):
    """transformers' code computes what it alone knows, in each precision."""
    model = build(name, num_hidden_layers=1)
    fast = optimize(model, precision)
    ids, mask = batch(model).values()
    keys = mask[:, None, None, :]
    queries = mask[:, None, :, None]
    # transformers' DeBERTa takes no masks of queries.
    for each in (keys,) if name == "v3" else (keys, keys * queries):
        with torch.no_grad():
            theirs, ours = (m(ids, attention_mask=each.bool())[0] for m in (model, fast))
        error = (ours - theirs)[mask.bool()].norm() / theirs[mask.bool()].norm()
        assert error < (1e-5 if precision == "fp32" else 0.08)
    if precision == "fp32":
        torch.testing.assert_close(replica(fast)(ids)[0], model(ids)[0])


@compiles_transformers
@pytest.mark.parametrize("name", NAMES)
def test_graphs_for_export(name):
    model = build(name)
    ids = batch(model)["input_ids"][:, :5]
    fast = optimize(model)
    program = torch.export.export(fast, (ids,))
    torch.testing.assert_close(program.module()(ids)[0], fast(ids)[0])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_models_move_to_other_devices(precision):
    """Constants move with the parameters."""
    moved = optimize(build("v3"), precision).to("meta")
    ids = torch.ones(2, 7, dtype=torch.int64, device="meta")
    assert moved(ids, attention_mask=ids)[0].device.type == "meta"


def test_only_where_asked_for_in_place():
    model = nn.Sequential(build("bert"), nn.Linear(3, 3))
    copied = optimize(model)
    assert not is_optimized(model)
    assert copied[1] is not model[1]
    assert copied[1].weight is model[1].weight
    assert optimize(model, inplace=True) is model
    assert is_optimized(model)
    # Once more changes nothing, and does not warn.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimize(model, inplace=True)


@every_model
def test_batches_do_not_change_results(name):
    """Padding is taken out: what is there is 0 afterwards."""
    model = optimize(build(name))
    inputs = batch(model)
    together = model(**inputs)[0]
    for row, length in enumerate(LENGTHS):
        alone = model(inputs["input_ids"][row : row + 1, :length])[0]
        torch.testing.assert_close(together[row, :length], alone[0], atol=1e-5, rtol=0)
        assert not together[row, length:].any()


def test_pipelines(tmp_path):
    """A pipeline is copied with its model replaced."""
    model = build("bert", "ForSequenceClassification")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    tokenizer = transformers.BertTokenizerFast(str(tmp_path / "vocab.txt"))
    pipe = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer)
    fast = optimize(pipe)
    assert pipe.model is model
    assert is_optimized(fast.model)
    assert not is_optimized(model)
    texts = ["a b c", "c"]
    for here, there in zip(fast(texts), pipe(texts), strict=True):
        assert here["label"] == there["label"]
        assert here["score"] == pytest.approx(there["score"], abs=1e-5)


def test_released_bert(released_bert):
    model = transformers.AutoModel.from_pretrained(released_bert)
    fast = optimize(model)
    inputs = batch(model)
    shown = inputs["attention_mask"].bool()
    with torch.no_grad():
        theirs = model(**inputs)[0]
        ours = fast(**inputs)[0]
    torch.testing.assert_close(ours[shown], theirs[shown], atol=1e-5, rtol=0)
