"""What `optimize` leaves as it is, and what it refuses."""

import re

import pytest
import torch
from torch import nn

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from tests.huggingface import samples  # noqa: E402
from tests.huggingface.encoders import NAMES, batch, build  # noqa: E402
from tupe_fairseq.base.errors import UsageError  # noqa: E402
from tupe_fairseq.huggingface import TupeModel, optimize  # noqa: E402


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
        (lambda: with_another("bert"), "the self-attention of layer 1 is not that of transfor"),
        (lambda: with_another("modernbert"), "self-attention of layer 1 is not that of transfor"),
        (lambda: build("bert", is_decoder=True), "BertModel (it is a decoder)"),
        (lambda: build("v3", conv_kernel_size=3), "DebertaV2Model (conv_kernel_size is 3)"),
        (lambda: build("modernbert", local_attention=1), "unsupported local_attention 1"),
        (lambda: build("v3", relative_attention=False), "(relative_attention is False)"),
        (lambda: build("v3", position_buckets=256), "(--deberta-buckets is 256, but must be"),
        (lambda: nn.Linear(2, 2), "nothing to optimize in Linear: it has none of BertModel"),
        (lambda: samples.masked_lm(), "nothing to optimize in TupeForMaskedLM: its TupeModel is"),
        (lambda: nn.Sequential(TupeModel(samples.config())), "in Sequential: its TupeModel is of"),
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


@pytest.mark.parametrize("name", NAMES)
def test_linear_layers_and_the_generator(name):
    """Libraries look for layers whose class is nn.Linear, as torch's quantization does."""
    model = build(name)
    before = torch.get_rng_state()
    fast = optimize(model)
    assert torch.equal(torch.get_rng_state(), before)
    expected, found = (
        [type(each) for each in m.modules() if isinstance(each, nn.Linear)] for m in (model, fast)
    )
    assert found == expected
    of_theirs, of_ours = (
        torch.ao.quantization.quantize_dynamic(m, {nn.Linear}, torch.qint8) for m in (model, fast)
    )
    assert not any(isinstance(each, nn.Linear) for each in of_ours.modules())
    inputs = batch(model)
    shown = inputs["attention_mask"].bool()
    with torch.no_grad():
        exact, theirs, ours = (m(**inputs)[0][shown] for m in (model, of_theirs, of_ours))
    assert 0 < (ours - exact).norm() < 1.5 * (theirs - exact).norm()
