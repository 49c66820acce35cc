"""What transformers' own tests ask of every class of models, beside `test_models.py`."""

import pickle

import pytest
import torch

from tests.huggingface.samples import (
    IDS,
    LAYERS,
    SEEN,
    build,
    config,
    every_class,
    every_encoding,
    ids_for,
    masked_lm,
)
from tests.tolerances import assert_close

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from tupe_fairseq import huggingface as hf  # noqa: E402


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("side", ["none", "right", "left"])
@every_class
def test_states_and_weights_are_part_of_the_graph(kind, side, checkpointing):
    """So that their gradients can be read."""
    model = build(kind).train()
    ids = ids_for(kind)
    if checkpointing:
        model.gradient_checkpointing_enable()
    mask = None if side == "none" else ids.ne(1).long()
    if side == "left":
        ids = ids.flip(-1)
        mask = mask.flip(-1)
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@torch.no_grad()
def test_weights_have_the_dtype_of_theirs(dtype):
    """But no more error than rounding to it: the softmax is in fp32."""
    theirs = transformers.BertConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48
    )
    theirs = transformers.BertModel(theirs, add_pooling_layer=False).to(dtype)
    theirs.set_attn_implementation("eager")
    ours = masked_lm("learned").to(dtype)
    found, expected = (m(IDS, output_attentions=True).attentions[0] for m in (ours, theirs))
    assert found.dtype == expected.dtype == dtype
    assert_close(found.sum(-1), torch.ones_like(found[..., 0]))


@pytest.mark.parametrize("device_map", ["cpu", "auto", {"": "cpu"}])
@torch.no_grad()
def test_device_maps(device_map, tmp_path):
    pytest.importorskip("accelerate", reason="accelerate is not installed (extra hf)")
    model = masked_lm("tupe_r")
    model.save_pretrained(tmp_path)
    auto = transformers.AutoModelForMaskedLM
    loaded = auto.from_pretrained(tmp_path, device_map=device_map).eval()
    device = next(loaded.parameters()).device
    assert_close(loaded(IDS.to(device)).logits.cpu()[SEEN], model(IDS).logits[SEEN])


@every_encoding
@torch.no_grad()
def test_offloaded_parameters(name):
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    model = masked_lm(name)
    expected = model(IDS).logits
    accelerate.cpu_offload(model, execution_device="cpu")
    for _ in range(2):
        assert_close(model(IDS).logits[SEEN], expected[SEEN])
        assert all(parameter.is_meta for parameter in model.parameters())


def test_sparse_prediction_is_saved(tmp_path):
    masked_lm(sparse_prediction=True).save_pretrained(tmp_path)
    assert hf.TupeForMaskedLM.from_pretrained(tmp_path).config.sparse_prediction


def test_every_head_can_be_pickled():
    for kind in (hf.TupeForSequenceClassification, hf.TupeForMultipleChoice):
        pickle.dumps(kind(config(classifier_act="linear")))
