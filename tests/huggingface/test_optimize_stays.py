"""What `optimize` leaves as it is, and what it refuses."""

import re

import pytest
from torch import nn

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from tests.huggingface.encoders import (  # noqa: E402
    build,
    with_transformers_5,
)
from tupe_fairseq.base.errors import UsageError  # noqa: E402
from tupe_fairseq.huggingface import optimize  # noqa: E402


def fused(encoder: nn.Module) -> nn.Module:
    """As GLiNER holds an encoder whose layers it averages."""
    return nn.ModuleDict({"encoder": encoder, "layers_fuser": nn.Identity()})


def hooked(encoder: nn.Module, owner: str) -> nn.Module:
    """With a hook that changes what a part of it returns."""
    encoder.get_submodule(owner).register_forward_hook(lambda module, inputs, out: out * 0.5)
    return encoder


def hooked_before(encoder: nn.Module, owner: str) -> nn.Module:
    """With a hook that changes what a part of it reads."""
    encoder.get_submodule(owner).register_forward_pre_hook(
        lambda module, inputs: (inputs[0] * 0.5, *inputs[1:])
    )
    return encoder


def with_another(name: str) -> nn.Module:
    """With a subclass of its self-attention in a layer."""
    model = build(name)
    layer = (model.layers if name == "modernbert" else model.encoder.layer)[1]
    module = layer.attn if name == "modernbert" else layer.attention.self
    module.__class__ = type("Another", (type(module),), {})
    return model


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: hooked(build("bert"), "encoder.layer.1"), "encoder.layer.1 has a hook"),
        (lambda: hooked_before(build("bert"), "encoder.layer.1"), "encoder.layer.1 has a hook"),
        pytest.param(
            lambda: hooked_before(build("modernbert"), "layers.1"),
            "layers.1 has a hook",
            marks=with_transformers_5,
        ),
        (lambda: hooked(build("v3"), "encoder"), "encoder has a hook, or another forward"),
        (
            lambda: with_another("bert"),
            "encoder.layer.1.attention.self is a Another, which is not",
        ),
        pytest.param(
            lambda: with_another("modernbert"),
            "layers.1.attn is a Another, which is not tran",
            marks=with_transformers_5,
        ),
        (lambda: build("bert", is_decoder=True), "BertModel (it is a decoder)"),
        (lambda: build("v3", conv_kernel_size=3), "DebertaV2Model (conv_kernel_size is 3)"),
        pytest.param(
            lambda: build("modernbert", local_attention=1),
            "unsupported local_attention 1",
            marks=with_transformers_5,
        ),
        (lambda: build("v3", relative_attention=False), "(relative_attention is False)"),
        (lambda: build("v3", position_buckets=256), "(--deberta-buckets is 256, but must be"),
        (lambda: fused(build("bert")), "encoder (layers_fuser reads vectors at padding)"),
        (lambda: nn.Linear(2, 2), "nothing to optimize in Linear: it has none of BertModel"),
    ],
)
def test_what_stays_is_named(model, reason):
    model = model()
    with pytest.warns(UserWarning, match=re.escape(reason)) as warned:
        assert type(optimize(model)) is type(model)
    assert len(warned) == 1


@pytest.mark.parametrize(
    ("model", "precision", "message"),
    [
        (lambda: build("bert"), "fp8", "precision is 'fp8', but must be one of: fp32, bf16, int8"),
        (lambda: "MiniLM", "fp32", "model is a str, but must be an nn.Module or a pipeline"),
        (lambda: build("bert").to("meta"), "fp32", "parameters on the meta device"),
    ],
)
def test_bad_input(model, precision, message):
    with pytest.raises(UsageError, match=message):
        optimize(model(), precision)
