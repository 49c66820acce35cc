"""`learned` and `sinusoidal` are stock fairseq: state dicts load, outputs and gradients agree."""

import re
from argparse import Namespace

import pytest
import torch
from fairseq import models

from tests.fairseq.decoder.samples import PAD, Task, sentences, stock, targets
from tests.tolerances import assert_close, assert_gradients_close

LEARNED = {"encoder_learned_pos": True, "decoder_learned_pos": True}
SETTINGS = {
    "post-LN": {},
    "pre-LN": {"encoder_normalize_before": True, "decoder_normalize_before": True},
    "one table of words": {"share_all_embeddings": True},
    "norm of the input": {"layernorm_embedding": True, "no_scale_embedding": True},
    "gelu, wide decoder": {"activation_fn": "gelu", "decoder_embed_dim": 20},
}


def pair(ours, encoding, settings):
    """A stock model and ours with its weights, strictly loaded."""
    flags = LEARNED if encoding == "learned" else {}
    theirs = stock(ours.removeprefix("tupe_"), **flags, **settings)
    made = stock(ours, position_encoding=encoding, **settings)
    made.load_state_dict(theirs.state_dict(), strict=True)
    return made.eval(), theirs.eval()


def gradients(model, output):
    output.square().sum().backward()
    return {name: p.grad for name, p in parameters(model)}


def parameters(model):
    """Without those that the stock layers of fairseq 0.12.2 have twice and do not train."""
    for name, parameter in model.named_parameters():
        if not re.search(r"\.(in_proj|out_proj|fc1|fc2)_(weight|bias)$", name):
            yield name, parameter


@pytest.mark.parametrize("encoding", ["learned", "sinusoidal"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_translation(encoding, settings):
    if "decoder_embed_dim" in settings:
        settings = {**settings, "decoder_input_dim": 20, "decoder_output_dim": 20}
    ours, theirs = pair("tupe_transformer", encoding, settings)
    source = sentences(3, 8)
    words = targets(3, 7)
    source[1, :3] = PAD
    words[2, 5:] = PAD
    found = ours(source, None, words)
    expected = theirs(source, None, words)
    kept = words != PAD
    assert_close(found[0][kept], expected[0][kept])
    assert_close(found[1]["attn"][0][kept], expected[1]["attn"][0][kept])
    of_ours = gradients(ours, found[0][kept])
    of_theirs = gradients(theirs, expected[0][kept])
    assert_gradients_close(of_ours, of_theirs, torch.float32)


@pytest.mark.parametrize("heads", [1, 3, None])
@pytest.mark.parametrize("layer", [0, 1, None])
@torch.no_grad()
def test_alignments(layer, heads):
    """The attention to the source that is asked for, of that layer and its first heads."""
    ours, theirs = pair("tupe_transformer", "learned", {})
    source = sentences(3, 8)
    words = targets(3, 7)
    for parameter in (p for m in (ours, theirs) for n, p in m.named_parameters() if "q_proj" in n):
        parameter.mul_(20)
    found, expected = (
        model.decoder(words, model.encoder(source), alignment_layer=layer, alignment_heads=heads)[
            1
        ]["attn"][0]
        for model in (ours, theirs)
    )
    assert_close(found, expected)


@pytest.mark.parametrize("encoding", ["learned", "sinusoidal"])
def test_language_model(encoding):
    settings = {"share_decoder_input_output_embed": True}
    if encoding == "learned":
        settings["activation_fn"] = "gelu"
    flags = {"decoder_learned_pos": True} if encoding == "learned" else {}
    theirs = stock("transformer_lm", **flags, **settings).eval()
    ours = stock("tupe_transformer_lm", position_encoding=encoding, **settings).eval()
    ours.load_state_dict(theirs.state_dict(), strict=True)
    words = targets(3, 9)
    found = ours(words)[0]
    expected = theirs(words)[0]
    assert_close(found, expected)
    assert_gradients_close(gradients(ours, found), gradients(theirs, expected), torch.float32)


def test_old_state_dicts_load():
    """Joint projections, numbered norms and saved sinusoids, as of fairseq before 0.6."""
    ours, theirs = pair("tupe_transformer", "sinusoidal", {})
    old = theirs.state_dict()
    for side in ("encoder", "decoder"):
        old[f"{side}.embed_positions._float_tensor"] = torch.zeros(1)
        for layer in range(2):
            prefix = f"{side}.layers.{layer}"
            for attention in ("self_attn", "encoder_attn")[: 1 + (side == "decoder")]:
                for kind in ("weight", "bias"):
                    names = [f"{prefix}.{attention}.{p}_proj.{kind}" for p in "qkv"]
                    joint = torch.cat([old.pop(name) for name in names])
                    old[f"{prefix}.{attention}.in_proj_{kind}"] = joint
            norms = ["self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"]
            norms = norms if side == "decoder" else norms[::2]
            for i, norm in enumerate(norms):
                for kind in ("weight", "bias"):
                    value = old.pop(f"{prefix}.{norm}.{kind}") + 0.1
                    old[f"{prefix}.layer_norms.{i}.{kind}"] = value
    fresh = stock("tupe_transformer", position_encoding="sinusoidal").eval()
    fresh.load_state_dict(old, strict=True)
    for name, parameter in fresh.named_parameters():
        moved = 0.1 if "layer_norm" in name and ".layers." in name else 0.0
        assert torch.equal(parameter, ours.state_dict()[name] + moved), name


@pytest.mark.parametrize("arch", ["transformer", "transformer_iwslt_de_en"])
def test_architectures_have_the_sizes_of_stock(arch):
    sizes = []
    for name in (arch, f"tupe_{arch}"):
        arguments = {"encoder_layers": 1, "decoder_layers": 1, "position_encoding": "none"}
        if name == arch:
            del arguments["position_encoding"]
        model = models.build_model(Namespace(arch=name, **arguments), Task())
        sizes.append({key: p.shape for key, p in parameters(model)})
    assert sizes[0] == sizes[1]
