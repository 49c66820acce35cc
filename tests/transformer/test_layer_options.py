"""Gates, norms and biases of layers; ModernBERT of transformers: tests/huggingface, convert."""

import pytest
import torch
import torch.nn.functional as F
from omegaconf import OmegaConf

from tests.attention.cases import EMBED_DIM, NUM_HEADS, encoder_of, enlarged, normal
from tests.toy_data import Task
from tupe_fairseq import UsageError
from tupe_fairseq.attention import Source
from tupe_fairseq.fairseq.arguments.architectures import ROBERTA_ARCHITECTURES
from tupe_fairseq.fairseq.models.tupe_roberta import TupeRobertaModel
from tupe_fairseq.transformer.forward_pass import PLAIN, Pass
from tupe_fairseq.transformer.layer_options import LayerOptions

MODERN = {
    "gated_ffn": "swiglu",
    "norm": "rms",
    "attention_bias": False,
    "ffn_bias": False,
    "first_attention_norm": False,
}


def rms_norm(x, weight):
    """x_i g_i / √(mean x² + ε) (Zhang and Sennrich 2019)."""
    return x * weight / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def attend(x, attention, source=None, heads=NUM_HEADS):
    """Content attention without positions and biases, to x itself or to a source."""
    read = {"q": x} | dict.fromkeys("kv", x if source is None else source)
    q, k, v = (
        (each @ getattr(attention, f"{name}_proj").weight.T).unflatten(-1, (heads, -1))
        for name, each in read.items()
    )
    scores = torch.einsum("bihd,bjhd->bhij", q, k) / q.size(-1) ** 0.5
    out = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v).flatten(2)
    return out @ attention.out_proj.weight.T


@pytest.mark.parametrize("source_dim", [None, 7])
@torch.no_grad()
def test_a_layer_of_llama(source_dim):
    """Equations of RMSNorm, and of SwiGLU: (silu(x W) ⊙ x V) U (Shazeer 2020).

    Also with attention to a source of that width, as in translation.
    """
    options = LayerOptions(**MODERN)
    how = {"normalize_before": True, "layer_options": options, "source_dim": source_dim}
    stack = enlarged(encoder_of("none", 9, **how), 0).double()
    x = expected = normal(2, 9, EMBED_DIM, seed=1).double()
    wanted = PLAIN
    read = None
    if source_dim is not None:
        read = normal(2, 5, source_dim, seed=2).double()
        wanted = Pass(source=Source(read))
    for index, layer in enumerate(stack.layers):
        before = rms_norm(expected, layer.self_attn_layer_norm.weight) if index else expected
        expected = expected + attend(before, layer.self_attn)
        if read is not None:
            before = rms_norm(expected, layer.encoder_attn_layer_norm.weight)
            expected = expected + attend(before, layer.encoder_attn, read)
        normed = rms_norm(expected, layer.final_layer_norm.weight)
        inner, gate = (normed @ layer.fc1.weight.T).chunk(2, -1)
        expected = expected + (F.silu(inner) * gate) @ layer.fc2.weight.T
    expected = rms_norm(expected, stack.layer_norm.weight)
    torch.testing.assert_close(stack.encode(x, wanted=wanted).x, expected)
    assert not any(name.endswith("bias") for name, _ in stack.named_parameters())


@pytest.mark.parametrize("arch", [name for name in ROBERTA_ARCHITECTURES if "modern" in name])
def test_architectures(arch):
    sizes = ROBERTA_ARCHITECTURES[arch]
    layers = {"encoder_layers": 2, "max_positions": 8}
    args = OmegaConf.create({"_name": "tupe_roberta", **sizes, **layers})
    stack = TupeRobertaModel.build_model(args, Task()).encoder.sentence_encoder
    first, second = stack.layers
    assert first.fc1.out_features == 2 * sizes["encoder_ffn_embed_dim"]
    assert not list(first.self_attn_layer_norm.parameters())
    names = [name for name, _ in second.named_parameters() if name.endswith("bias")]
    assert [name for name in names if "layer_terms" not in name] == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"gated_ffn": "glu"}, "--gated-ffn is 'glu', but must be one of: geglu, swiglu"),
        ({"norm": "batch"}, "--norm is 'batch', but must be one of: layer, rms"),
        ({"ffn_bias": "no"}, "--ffn-bias must be true or false, but is 'no'"),
        ({"first_attention_norm": False}, "is for pre-LN models: add --encoder-normalize-before"),
    ],
)
def test_what_has_no_meaning_is_refused(given, message):
    args = OmegaConf.create({"_name": "tupe_roberta", "max_positions": 8, **given})
    with pytest.raises(UsageError, match=message):
        TupeRobertaModel.build_model(args, Task())
