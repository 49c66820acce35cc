"""What users change in an encoder, before or after `optimize`: it computes as transformers."""

import copy
import warnings

import pytest
import torch
from torch import nn

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from tests.huggingface.encoders import (  # noqa: E402
    IS_OLD,
    NAMES,
    batch,
    build,
    same_at_tokens,
)
from tupe_fairseq.huggingface import optimize  # noqa: E402

every_name = pytest.mark.parametrize("name", NAMES)


def layers_of(model):
    return model.layers if hasattr(model, "layers") else model.encoder.layer


def attention_of(layer):
    if hasattr(layer, "attn"):
        return layer.attn
    return layer.attention.attn if hasattr(layer.attention, "attn") else layer.attention.self


def half(module, given, out):
    """A hook that halves what a module returns."""
    return (out[0] * 0.5, *out[1:]) if isinstance(out, tuple) else out * 0.5


def half_before(module, given):
    return given[0] * 0.5, *given[1:]


def subclassed(module):
    """Make a module one of a subclass, which halves what it returns."""
    kind = type(module)

    def forward(self, *given, **named):
        return half(self, given, kind.forward(self, *given, **named))

    module.__class__ = type("Another", (kind,), {"forward": forward})


class Mean(nn.Module):
    """A layer that reads all tokens of a text."""

    def __init__(self, base):
        super().__init__()
        self.base = base

    def forward(self, x):
        return self.base(x) + self.base(x[:, :1])


class LowRank(nn.Module):
    """As LoRA: a frozen layer and a product of two small matrices."""

    def __init__(self, base):
        super().__init__()
        self.base_layer = base.requires_grad_(False)
        self.down = nn.Parameter(base.weight.new_full((base.in_features, 2), 0.1))
        self.up = nn.Parameter(base.weight.new_full((2, base.out_features), 0.1))

    def forward(self, x):
        return self.base_layer(x) + x @ self.down @ self.up


def replace_linear(model, kind):
    attention = attention_of(layers_of(model)[0])
    for part in ("query", "query_proj", "Wqkv", "q"):
        if hasattr(attention, part):
            setattr(attention, part, kind(getattr(attention, part)))


def same_subclassed(module):
    """The module itself, of a subclass."""
    subclassed(module)
    return module


def replace_activation(model):
    layer = layers_of(model)[1]
    if hasattr(layer, "mlp"):
        layer.mlp.act = nn.Tanh()
    else:
        layer.intermediate.intermediate_act_fn = nn.Tanh()


def end_of(layer):
    """The last module of a layer."""
    return layer.mlp if hasattr(layer, "mlp") else layer.output


def replace_end(model):
    layer = layers_of(model)[1]
    other = copy.deepcopy(end_of(layer))
    for parameter in other.parameters():
        parameter.data.mul_(0.5)
    setattr(layer, "mlp" if hasattr(layer, "mlp") else "output", other)


def normed(layer):
    """The layer, whose weight is computed of two parameters."""
    layer = nn.utils.parametrizations.weight_norm(layer)
    layer.parametrizations.weight.original0.data.mul_(2)
    return layer


CHANGES = {
    "adapter": lambda model: replace_linear(model, LowRank),
    "reads the text": lambda model: replace_linear(model, Mean),
    "subclass of a linear layer": lambda model: replace_linear(model, same_subclassed),
    "weight norm": lambda model: replace_linear(model, normed),
    "activation": replace_activation,
    "last module": replace_end,
    "subclass of a layer": lambda model: subclassed(layers_of(model)[1]),
    "subclass of self-attention": lambda model: subclassed(attention_of(layers_of(model)[1])),
    "subclass of the last module": lambda model: subclassed(end_of(layers_of(model)[1])),
    "hook": lambda model: layers_of(model)[1].register_forward_hook(half),
    "hook before": lambda model: layers_of(model)[1].register_forward_pre_hook(half_before),
    "hook inside": lambda model: end_of(layers_of(model)[0]).register_forward_hook(half),
    "hook of self-attention": (
        lambda model: attention_of(layers_of(model)[0]).register_forward_hook(half)
    ),
    "fewer layers": lambda model: layers_of(model).__delitem__(-1),
}


IN_LAYERS = (
    "adapter",
    "subclass of a linear layer",
    "weight norm",
    "activation",
    "hook inside",
    "last module",
)


@every_name
@pytest.mark.parametrize("later", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_computed(name, change, later):
    # Exact, so that the vectors of pre-LN layers are not too large.
    model = build(name).double()
    unchanged = optimize(copy.deepcopy(model))
    fast = optimize(copy.deepcopy(model)) if later else None
    for each in (model, fast)[: 1 + later]:
        CHANGES[change](each)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "these encoders stay as they are")
        fast = fast if later else optimize(model)
    same_at_tokens(fast, model)
    inputs = batch(model)
    assert (unchanged(**inputs)[0] - fast(**inputs)[0]).abs().max() > 1e-3


@pytest.mark.parametrize("precision", ["bf16", "int8"])
@every_name
@pytest.mark.parametrize("change", IN_LAYERS)
def test_changes_are_computed_in_lower_precisions(name, change, precision):
    model = build(name, num_hidden_layers=2)
    CHANGES[change](model)
    with torch.no_grad():
        inputs = batch(model)
        ours, theirs = (m(**inputs)[0] for m in (optimize(model, precision), model))
    shown = inputs["attention_mask"].bool()
    assert (ours - theirs)[shown].norm() / theirs[shown].norm() < 0.15


DROPOUTS = {
    # transformers 4 has a copy of the rate of attention.
    "bert": ["attention.self.dropout"] * (not IS_OLD) + ["attention.output.dropout"],
    "v3": ["attention.self.dropout", "attention.self.pos_dropout", "output.dropout"],
    "modernbert": ["mlp.drop"],
    "mpnet": ["attention.attn.dropout", "attention.dropout", "output.dropout"],
}


@pytest.mark.parametrize("later", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("name", "path"), [(n, path) for n in NAMES for path in DROPOUTS[n]])
@pytest.mark.parametrize("mode", ["training", "alone in training", "alone in evaluation"])
def test_each_dropout_has_its_rate_and_its_mode(name, path, mode, later):
    """A rate of 1 drops all, so nothing is random; a pass leaves modes as they are."""
    model = build(name).train(mode != "alone in training")
    fast = optimize(model) if later else None
    for each in (model, fast)[: 1 + later]:
        module = layers_of(each)[0].get_submodule(path)
        module.p = 1.0
        if mode != "training":
            module.train(not module.training)
    fast = fast or optimize(model)
    same_at_tokens(fast, model)
    modes = [module.training for module in model.modules()]
    assert [module.training for module in fast.modules()] == modes


class Zeros(nn.Dropout):
    """A dropout that is always on, as those for uncertainty."""

    def forward(self, x):
        return nn.functional.dropout(x, 1.0)


@pytest.mark.parametrize("later", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", ["v3", "mpnet"])
def test_dropouts_of_attention_weights_are_called(name, later):
    """In transformers' other encoders, only their rates are read."""
    model = build(name)
    fast = optimize(model) if later else None
    weights = []
    for each in (model, fast)[: 1 + later]:
        first, second = map(attention_of, layers_of(each)[:2])
        first.dropout.register_forward_hook(lambda *given: weights.append(given[2]))
        second.dropout = Zeros()
    same_at_tokens(fast or optimize(model), model)
    torch.testing.assert_close(*weights)


@every_name
def test_backward_hooks_and_frozen_parts(name):
    model = build(name).train()
    calls = []
    layers_of(model)[0].requires_grad_(False)
    fast = optimize(model)
    for each in (model, fast):
        layers_of(each)[1].register_full_backward_hook(lambda *given: calls.append(given[2][0]))
        same_at_tokens(each, model)
        shown = (inputs := batch(model))["attention_mask"].bool()
        each.zero_grad()
        each(**inputs)[0][shown].square().sum().backward()
    assert len(calls) == 2
    assert calls[0].shape == calls[1].shape
    assert all(p.grad is None for p in layers_of(fast)[0].parameters())


@every_name
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_one_encoder_under_two_names(name, precision):
    shared = build(name, num_hidden_layers=1)
    model = nn.ModuleDict({"one": shared, "two": nn.ModuleList([shared])})
    fast = optimize(model, precision)
    assert fast["one"] is fast["two"][0]
    inputs = batch(shared)
    shown = inputs["attention_mask"].bool()
    with torch.no_grad():
        ours, theirs = (m(**inputs)[0][shown] for m in (fast["one"], shared))
    assert (ours - theirs).norm() / theirs.norm() < (1e-5 if precision == "fp32" else 0.08)


def test_answers_are_known_by_the_class():
    """A subclass of another name, beside another head of the same encoder."""
    kind = type("Reader", (transformers.BertForQuestionAnswering,), {})
    reader = kind(build("bert", num_labels=2).config).eval()
    model = nn.ModuleDict({"reader": reader, "other": nn.ModuleDict({"encoder": reader.bert})})
    fast = optimize(model)
    inputs = batch(reader.bert)
    expected = reader(**inputs).start_logits
    torch.testing.assert_close(fast["reader"](**inputs).start_logits, expected)


@every_name
@pytest.mark.parametrize("path", ["owner", "layer", "self-attention"])
def test_hooks_get_what_transformers_gives_them(name, path):
    """A vector for each token of the batch."""
    model = build(name)
    shapes = []
    for each in (model, optimize(model)):
        owner = each if name == "modernbert" else each.encoder
        layer = layers_of(each)[1]
        module = {"owner": owner, "layer": layer, "self-attention": attention_of(layer)}[path]
        watch = lambda _, given, out: shapes.append([out if torch.is_tensor(out) else out[0]])  # noqa: E731
        module.register_forward_hook(watch)
        each(**batch(model))
    assert shapes[0][0].shape == shapes[1][0].shape


@every_name
def test_averages_of_layers_read_padding(name):
    """As GLiNER averages hidden states."""
    model = nn.ModuleDict({"encoder": build(name), "layers_fuser": nn.Identity()})
    more = {**batch(model["encoder"]), "output_hidden_states": True}
    theirs, ours = (each["encoder"](**more).hidden_states for each in (model, optimize(model)))
    for here, there in zip(ours, theirs, strict=True):
        torch.testing.assert_close(here, there)
