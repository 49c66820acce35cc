"""What an output may depend on: tokens of the same text, and the modules as they are."""

import contextlib
import copy

import pytest
import torch
from torch import nn

from tests.covering import covering
from tests.huggingface.samples import (
    IN_ENCODERS,
    config,
    every_encoding,
    filled,
    masked_lm,
    tokens,
)
from tests.tolerances import assert_close, assert_gradients_close

pytest.importorskip("transformers", reason="transformers is not installed (extra hf)")

from tupe_fairseq import TUPEConfig, TUPEEncoder, UsageError
from tupe_fairseq import huggingface as hf


def test_configurations_are_not_changed():
    """A configuration whose encoding is changed builds what a new one does."""
    used = config("sinusoidal")
    hf.TupeModel(used)
    used.position_encoding = "rope"
    torch.manual_seed(0)
    found = hf.TupeModel(used)
    torch.manual_seed(0)
    expected = hf.TupeModel(config("rope"))
    ids = torch.tensor([[5, 6, 7]])
    assert torch.equal(found.eval()(ids)[0], expected.eval()(ids)[0])


def with_vectors(model, vectors, **more):
    """The output for these vectors as token embeddings; some encodings need tokens as well."""
    hook = model.tupe.embed_tokens.register_forward_hook(lambda *_: vectors)
    try:
        return model(torch.full(vectors.shape[:2], 5), **more)
    finally:
        hook.remove()


def broken(kind: str, vectors):
    """Inputs and mask of the vectors with a last sequence, the longest, that is broken."""
    mask = torch.ones(vectors.shape[:2], dtype=torch.int64)
    mask[0, 5:] = mask[1, 3:] = mask[2, 7:] = 0
    if kind == "empty":
        mask[-1] = 0
    else:
        vectors = vectors.clone()
        vectors[-1, : {"inf": 1, "nan": 4}[kind]] = float(kind)
    return vectors, mask


@pytest.mark.parametrize(
    ("name", "kind", "attention"),
    covering(IN_ENCODERS, ("nan", "inf", "empty"), ("sdpa", "eager")),
)
@torch.no_grad()
def test_a_broken_sequence_changes_no_other(name, attention, kind):
    model = masked_lm(name)
    model.set_attn_implementation(attention)
    vectors, mask = broken(kind, torch.randn(4, 9, 32))
    found = with_vectors(model, vectors, attention_mask=mask).logits
    expected = with_vectors(model, vectors[:3], attention_mask=mask[:3]).logits
    assert_close(found[:3][mask[:3] == 1], expected[mask[:3] == 1])
    if kind == "empty":
        assert found.isfinite().all()
        vectors[:3] = torch.randn(3, 9, 32)
        again = with_vectors(model, vectors, attention_mask=mask).logits
        assert_close(again[3, :1], found[3, :1])


@every_encoding
@torch.no_grad()
def test_evaluation_draws_no_random_numbers(name):
    model = masked_lm(name, hidden_dropout_prob=0.3)
    before = torch.get_rng_state()
    found = model(tokens()).logits
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(model(tokens()).logits, found)


class Adapted(nn.Module):
    """A linear layer with a second one beside it, as LoRA has; it has no `weight`."""

    def __init__(self, base: nn.Linear, delta: torch.Tensor):
        super().__init__()
        self.base = base
        self.delta = nn.Parameter(delta)

    def forward(self, x):
        return self.base(x) + nn.functional.linear(x, self.delta.to(x.dtype))


def linear_layers(model) -> dict[str, nn.Linear]:
    return {name: each for name, each in model.named_modules() if isinstance(each, nn.Linear)}


def deltas_of(model) -> dict[str, torch.Tensor]:
    """Of all linear layers but the last, which shares its weight with the embeddings."""
    generator = torch.Generator().manual_seed(3)
    return {
        name: 0.1 * torch.randn(layer.weight.shape, generator=generator)
        for name, layer in linear_layers(model).items()
        if layer is not model.get_output_embeddings()
    }


@every_encoding
def test_modules_are_called(name):
    """Layers that are replaced, and hooks, act as in any module of torch, in positions as well."""
    model = masked_lm(name)
    ids = tokens()
    merged = copy.deepcopy(model)
    hooked = copy.deepcopy(model)
    deltas = deltas_of(model)
    for layer_name, delta in deltas.items():
        layer = model.get_submodule(layer_name)
        parent, _, own = layer_name.rpartition(".")
        setattr(model.get_submodule(parent), own, Adapted(layer, delta.clone()))
        merged.get_submodule(layer_name).weight.data.add_(delta)
        hooked.get_submodule(layer_name).register_forward_hook(
            lambda _, inputs, out, d=delta: out + nn.functional.linear(inputs[0], d.to(out.dtype))
        )
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients):
            expected = merged(ids).logits
            assert_close(model(ids).logits, expected)
            assert_close(hooked(ids).logits, expected)
    model(ids).logits.square().sum().backward()
    merged(ids).logits.square().sum().backward()
    found = {n: model.get_submodule(n).delta.grad for n in deltas}
    gradients = {n: merged.get_submodule(n).weight.grad for n in deltas}
    assert_gradients_close(
        {f"{n}.weight": g for n, g in found.items()},
        {f"{n}.weight": g for n, g in gradients.items()},
        torch.float32,
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@every_encoding
@torch.no_grad()
def test_dynamic_quantization(name):
    model = masked_lm(name)
    ids = tokens()
    expected = model(ids).logits[ids.ne(1)]
    quantized = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    found = quantized(ids).logits[ids.ne(1)]
    alike = nn.functional.cosine_similarity(found, expected, dim=-1)
    assert alike.mean() > 0.95, alike.mean()


@every_encoding
@torch.no_grad()
def test_values_that_change_in_place_are_seen(name):
    """By `.data`, as averages of weights (EMA) are copied."""
    model = masked_lm(name)
    ids = tokens()
    other = masked_lm(name)
    for parameter in other.parameters():
        parameter.mul_(1.5)
    expected = other(ids).logits
    model(ids)
    for parameter, value in zip(model.parameters(), other.parameters(), strict=True):
        parameter.data.copy_(value)
    assert_close(model(ids).logits, expected)


def scriptable(arch: str) -> nn.Module:
    from tests.fairseq.decoder.samples import stock

    return stock(arch, position_encoding="t5")


@pytest.mark.parametrize(
    "build",
    [
        masked_lm,
        lambda: masked_lm().tupe,
        lambda: TUPEEncoder(TUPEConfig()),
        lambda: nn.Sequential(TUPEEncoder(TUPEConfig())),
        lambda: scriptable("tupe_transformer"),
        lambda: scriptable("tupe_transformer_lm"),
        lambda: scriptable("tupe_roberta"),
    ],
)
def test_scripting_is_refused_in_one_line(build):
    with pytest.raises(UsageError, match=r"torch\.jit\.script .* use torch\.export") as error:
        torch.jit.script(build())
    assert "\n" not in str(error.value)


def test_tracing_is_refused_in_one_line():
    classifier = filled(hf.TupeForSequenceClassification, config(num_labels=3))
    for model in (masked_lm(), classifier):
        with (
            pytest.raises(UsageError, match=r"torch\.jit\.trace .* --to onnx") as error,
            contextlib.suppress(torch.jit.TracingCheckError),
        ):
            torch.jit.trace(model, (tokens(),), strict=False)
        assert "\n" not in str(error.value)
