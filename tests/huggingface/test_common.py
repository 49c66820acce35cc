"""What transformers' own tests ask of every class of models, beside `test_models.py`."""

import pickle

import pytest
import torch

from tests.huggingface.samples import LAYERS, config, every_encoding, filled, masked_lm, tokens
from tests.tolerances import assert_close, assert_gradients_close

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from transformers.modeling_layers import GradientCheckpointingLayer  # noqa: E402

from tupe_fairseq import huggingface as hf  # noqa: E402

IDS = tokens()
SPAN = {"start_positions": torch.tensor([1, 5, 0]), "end_positions": torch.tensor([4, 6, 2])}
#: Each class, what its configuration adds, and its labels.
CLASSES = {
    hf.TupeForMaskedLM: ({}, {"labels": IDS}),
    hf.TupeForCausalLM: ({"is_decoder": True}, {"labels": IDS}),
    hf.TupeForSequenceClassification: ({"num_labels": 3}, {"labels": torch.tensor([2, 0, 1])}),
    hf.TupeForMultipleChoice: ({}, {"labels": torch.tensor([0, 1, 1])}),
    hf.TupeForTokenClassification: ({"num_labels": 4}, {"labels": IDS % 4}),
    hf.TupeForQuestionAnswering: ({}, SPAN),
}
every_class = pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)


def build(kind, **changes):
    return filled(kind, config("tupe_r", **CLASSES[kind][0], **changes))


def ids_for(kind) -> torch.Tensor:
    return torch.stack((IDS, IDS), 1) if kind is hf.TupeForMultipleChoice else IDS


def run(model, **more):
    return model(ids_for(type(model)), **CLASSES[type(model)][1], **more)


@every_class
@torch.no_grad()
def test_saves_and_loads_in_several_files(kind, tmp_path):
    """With equal outputs and losses; two calls give the same, also as a tuple."""
    model = build(kind)
    model.save_pretrained(tmp_path, max_shard_size="10KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    auto = getattr(transformers, kind.__name__.replace("Tupe", "AutoModel"))
    again = auto.from_pretrained(tmp_path).eval()
    assert type(again) is kind
    first, second, loaded = run(model), run(model), run(again)
    assert torch.equal(first[1], second[1])
    assert_close(loaded[1], first[1])
    assert_close(loaded.loss, first.loss)
    model.config.output_hidden_states = True
    assert len(run(model, return_dict=False)) == len(run(model).to_tuple()) == len(first) + 1


@every_class
@pytest.mark.parametrize("options", [None, {"use_reentrant": False}, {"use_reentrant": True}])
def test_gradient_checkpointing(kind, options):
    """Each layer runs twice; the gradients, of what layers share too, are the same."""
    gradients, counts = [], []
    for checkpointing in (False, True):
        runs: list[None] = []
        model = build(kind).train()
        if checkpointing:
            model.gradient_checkpointing_enable(options)
        assert model.is_gradient_checkpointing == checkpointing
        layers = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
        assert [layer.gradient_checkpointing for layer in layers] == [checkpointing] * LAYERS
        for layer in layers:
            layer.self_attn.register_forward_hook(lambda *_, runs=runs: runs.append(None))
        run(model).loss.backward()
        found = model.named_parameters()
        gradients.append({name: p.grad for name, p in found if p.grad is not None})
        counts.append(len(runs))
    assert_gradients_close(*gradients, torch.float32)
    assert counts == [LAYERS, 2 * LAYERS]


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("side", ["none", "right", "left"])
@every_class
def test_states_and_weights_are_part_of_the_graph(kind, side, checkpointing):
    """So that their gradients can be read."""
    model, ids = build(kind).train(), ids_for(kind)
    if checkpointing:
        model.gradient_checkpointing_enable()
    mask = None if side == "none" else ids.ne(1).long()
    if side == "left":
        ids, mask = ids.flip(-1), mask.flip(-1)
    elif side == "none":
        ids = ids.clamp(min=4)
    out = model(ids, mask, output_hidden_states=True, output_attentions=True)
    kept = (*out.hidden_states, *out.attentions)
    assert len(kept) == 2 * LAYERS + 1
    for each in kept:
        each.retain_grad()
    out[0].square().sum().backward()
    for each in kept:
        assert each.grad.abs().sum() > 0
        assert each.grad.shape == each.shape


@every_class
@torch.no_grad()
def test_the_vocabulary_grows(kind):
    """Outputs for known words stay; those of masked and next words get columns."""
    model, words = build(kind), IDS.max().item() + 1
    before = run(model)[1]
    model.resize_token_embeddings(words + 20)
    assert model.get_input_embeddings().num_embeddings == words + 20
    after = run(model)[1]
    assert_close(after[..., :words], before[..., :words])


@pytest.mark.parametrize("device_map", ["cpu", "auto", {"": "cpu"}])
@torch.no_grad()
def test_device_maps(device_map, tmp_path):
    pytest.importorskip("accelerate", reason="accelerate is not installed (extra hf)")
    model = masked_lm("tupe_r")
    model.save_pretrained(tmp_path)
    auto = transformers.AutoModelForMaskedLM
    loaded = auto.from_pretrained(tmp_path, device_map=device_map).eval()
    seen = IDS.ne(1)
    device = next(loaded.parameters()).device
    assert_close(loaded(IDS.to(device)).logits.cpu()[seen], model(IDS).logits[seen])


@every_encoding
@torch.no_grad()
def test_offloaded_parameters(name):
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    model = masked_lm(name)
    expected = model(IDS).logits
    accelerate.cpu_offload(model, execution_device="cpu")
    for _ in range(2):
        assert_close(model(IDS).logits[IDS.ne(1)], expected[IDS.ne(1)])
        assert all(parameter.is_meta for parameter in model.parameters())


def test_sparse_prediction_is_saved(tmp_path):
    masked_lm(sparse_prediction=True).save_pretrained(tmp_path)
    assert hf.TupeForMaskedLM.from_pretrained(tmp_path).config.sparse_prediction


def test_every_head_can_be_pickled():
    for kind in (hf.TupeForSequenceClassification, hf.TupeForMultipleChoice):
        pickle.dumps(kind(config(classifier_act="linear")))
