"""Optimized models in training, and with other modules than before."""

import pytest
import torch
from torch import nn

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from tests.huggingface.encoders import (  # noqa: E402
    NAMES,
    RECOMPUTED,
    batch,
    build,
    first_layer,
    same_at_tokens,
)
from tupe_fairseq.huggingface import (  # noqa: E402
    optimize,
    optimized,
    optimized_bert,
    optimized_deberta,
    optimized_modernbert,
    optimized_mpnet,
)


@pytest.mark.parametrize("name", RECOMPUTED)
def test_layers_are_recomputed_where_transformers_would(name):
    model = build(name, "ForMaskedLM").train()
    fast = optimize(model)
    inputs = batch(model)
    calls = []
    gradients = []
    first = first_layer(fast)
    first.register_forward_hook(lambda *_: calls.append(1))
    for recompute in (False, True):
        if recompute:
            fast.gradient_checkpointing_enable({"use_reentrant": False})
        fast.zero_grad()
        fast(**inputs).logits.square().mean().backward()
        gradients.append(first.weight.grad.clone())
    assert len(calls) == 3
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("name", [*NAMES, "roberta"])
def test_the_trainer_uses_the_attention(name, tmp_path, monkeypatch):
    """In each step of training and of evaluation."""
    pytest.importorskip("accelerate", reason="accelerate is not installed, which Trainer needs")
    fast = optimize(build(name, "ForSequenceClassification", num_hidden_layers=1))
    calls = []
    attend = optimized.attend
    watched = lambda *given: calls.append(1) or attend(*given)  # noqa: E731
    for each in (optimized_bert, optimized_deberta, optimized_modernbert, optimized_mpnet):
        monkeypatch.setattr(each, "attend", watched)
    rows = [{"input_ids": torch.tensor([5, 6, 7]), "labels": torch.tensor(1)}] * 4
    settings = transformers.TrainingArguments(
        str(tmp_path), max_steps=2, save_strategy="no", report_to=[], use_cpu=True
    )
    trainer = transformers.Trainer(fast, settings, train_dataset=rows, eval_dataset=rows)
    trainer.train()
    assert len(calls) == 2
    trainer.evaluate()
    assert len(calls) == 3


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("later", [False, True])
def test_layers_are_those_that_there_are(name, later):
    """Removed or replaced, before or after `optimize`, whatever the configuration says."""
    model = build(name)
    owner, layers = (model, "layers") if name == "modernbert" else (model.encoder, "layer")
    fast = optimize(model) if later else None
    for each in (model, fast)[: 1 + later]:
        owner = each if name == "modernbert" else each.encoder
        kept = nn.ModuleList([getattr(owner, layers)[index] for index in (1, 1)])
        setattr(owner, layers, kept)
    same_at_tokens(fast or optimize(model), model)


class Adapter(nn.Module):
    """A linear layer with a low-rank change, as LoRA's."""

    def __init__(self, layer: nn.Linear):
        super().__init__()
        self.base = layer
        self.change = nn.Parameter(0.1 * torch.randn(layer.in_features, layer.out_features))

    def forward(self, x):
        return self.base(x) + x @ self.change


@pytest.mark.parametrize(
    ("name", "owner", "part"),
    [
        ("bert", "encoder.layer.0.attention.self", "query"),
        ("v3", "encoder.layer.0.attention.self", "query_proj"),
        ("modernbert", "layers.1.attn", "Wqkv"),
    ],
)
def test_modules_that_replace_others_later_are_used(name, owner, part):
    model = build(name)
    fast = optimize(model)
    inputs = batch(model)
    shown = inputs["attention_mask"].bool()
    before = fast(**inputs)[0]
    adapter = Adapter(model.get_submodule(f"{owner}.{part}"))
    for each in (model, fast):
        setattr(each.get_submodule(owner), part, adapter)
    theirs = model(**inputs)[0][shown]
    ours = fast(**inputs)[0]
    torch.testing.assert_close(ours[shown], theirs, atol=1e-5, rtol=0)
    assert not torch.allclose(ours, before, atol=1e-3)
    ours.square().sum().backward()
    assert adapter.change.grad.any()


@pytest.mark.filterwarnings("error:these encoders stay")
@pytest.mark.parametrize("name", NAMES)
def test_hooks_on_linear_layers_are_called(name):
    """As those of torch.nn.utils.prune; transformers' own, which collect outputs, may be there."""
    model = build(name, "ForMaskedLM")
    calls = []
    inputs = batch(model)
    model(**inputs, output_hidden_states=True, output_attentions=True)
    first_layer(model).register_forward_hook(lambda *_: calls.append(1))
    fast = optimize(model)
    fast(**inputs)
    assert calls == [1]


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_dropout_is_that_of_the_modules(name, later):
    """Dropouts may be switched off in them, before or after `optimize`."""
    rates = {"mlp_dropout": 0.4} if name == "modernbert" else {"hidden_dropout_prob": 0.4}
    if name != "modernbert":
        rates["attention_probs_dropout_prob"] = 0.4
    model = build(name, **rates).train()
    fast = optimize(model)
    inputs = batch(model)
    assert not torch.equal(fast(**inputs)[0], fast(**inputs)[0])
    for module in (fast if later else model).modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    fast = fast if later else optimize(model)
    assert torch.equal(fast(**inputs)[0], fast(**inputs)[0])
    torch.testing.assert_close(fast(**inputs)[0], fast.eval()(**inputs)[0], atol=1e-5, rtol=0)
    for owner in [each for each in fast.modules() if hasattr(each, "drop")]:
        owner.drop = nn.Identity()
    fast.train()(**inputs)
