"""LoRA by peft, given to a model before and after `optimize`."""

import copy

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")
peft = pytest.importorskip("peft", reason="peft is not installed")

from tests.huggingface.encoders import NAMES, batch, build  # noqa: E402
from tupe_fairseq.huggingface import optimize  # noqa: E402

every_name = pytest.mark.parametrize("name", NAMES)
LAYERS = {
    "bert": ["query", "value", "dense"],
    "v3": ["query_proj", "key_proj", "dense"],
    "modernbert": ["Wqkv", "Wi"],
    "mpnet": ["q", "v", "dense"],
}


def adapted(model, name):
    """The model with an adapter that changes what it returns."""
    torch.manual_seed(1)
    options = {"target_modules": LAYERS[name], "r": 4, "init_lora_weights": False}
    return peft.get_peft_model(model, peft.LoraConfig(**options)).eval()


def error(ours, theirs, inputs):
    """The relative error at tokens."""
    shown = inputs["attention_mask"].bool()
    with torch.no_grad():
        here, there = (m(**inputs)[0][shown] for m in (ours, theirs))
    return (here - there).norm() / there.norm()


@every_name
@pytest.mark.parametrize(("precision", "bound"), [("fp32", 1e-5), ("bf16", 0.08), ("int8", 0.15)])
def test_adapters_before(name, precision, bound):
    """They are computed, switched off, and merged into their layers."""
    plain = build(name, num_hidden_layers=2)
    model = adapted(copy.deepcopy(plain), name)
    inputs = batch(plain)
    fast = optimize(model, precision)
    assert error(fast, model, inputs) < bound
    with fast.disable_adapter():
        assert error(fast, plain, inputs) < bound
    merged = copy.deepcopy(model).merge_and_unload()
    assert error(optimize(merged, precision), model, inputs) < bound
    assert error(plain, model, inputs) > 0.2


@every_name
def test_adapters_after(name):
    """They alone are trained."""
    plain = build(name)
    model, fast = (adapted(m, name).train() for m in (copy.deepcopy(plain), optimize(plain)))
    inputs = batch(plain)
    shown = inputs["attention_mask"].bool()
    gradients = []
    for each in (model, fast):
        each(**inputs)[0][shown].square().sum().backward()
        named = each.named_parameters()
        gradients.append({n: p.grad for n, p in named if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    assert all("lora" in each for each in gradients[0])
    for each, expected in gradients[0].items():
        scale = expected.abs().max().item()
        torch.testing.assert_close(gradients[1][each], expected, atol=1e-4 * scale, rtol=1e-4)


@every_name
def test_adapters_that_ask_for_the_class_of_a_layer(name):
    """GLoRA takes nothing but nn.Linear."""
    if not hasattr(peft, "GloraConfig"):
        pytest.skip("this peft has no GLoRA")
    plain = build(name)
    config = peft.GloraConfig(target_modules=LAYERS[name][:2], r=4)
    model, fast = (peft.get_peft_model(m, config).eval() for m in (plain, optimize(plain)))
    weights = {
        n: torch.randn_like(each) / 9 for n, each in model.named_parameters() if "glora" in n
    }
    for each in (model, fast):
        each.load_state_dict(weights, strict=False)
    assert weights
    assert error(fast, model, batch(plain)) < 1e-5


@every_name
@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_layers_for_inference_get_none(name, precision):
    fast = optimize(build(name, num_hidden_layers=1), precision)
    with pytest.raises(ValueError, match="not supported") as raised:
        adapted(fast, name)
    assert "\n" not in str(raised.value)
    assert "for inference" in str(raised.value)
