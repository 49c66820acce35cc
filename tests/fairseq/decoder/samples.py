"""Models with a decoder, as small as they can be, and what they read."""

from argparse import Namespace

import pytest
import torch
from fairseq import models
from torch import Tensor, nn

from tests import toy_data
from tests.attention import cases
from tupe_fairseq.position import POSITION_ENCODINGS

DICTIONARY = toy_data.dictionary(f"w{i}" for i in range(30))
BOS = DICTIONARY.bos()
PAD = DICTIONARY.pad()
EOS = DICTIONARY.eos()

#: Clips and buckets small enough that short sentences reach beyond them.
OPTIONS = {
    name: {key: value for key, value in options.items() if key != "bidirectional"}
    for name, options in cases.OPTIONS.items()
}
#: Test id -> name and options: the registry, and what options change in a decoder.
VARIANTS = {name: (name, OPTIONS.get(name, {})) for name in POSITION_ENCODINGS} | {
    # Most words beyond the threshold.
    "fire-long": ("fire", {"fire_threshold": 16}),
    "rnn-recursive": ("rnn", {"rnn_recursive": True}),
    "rope-values": ("rope", {"rope_values": True}),
    "rope-yarn": ("rope", {"rope_scaling": "yarn", "rope_scaling_factor": 4.0}),
    "rope-part": ("rope", {"rope_fraction": 0.5, "rope_skip_every": 2}),
    "sinusoidal-paper": ("sinusoidal", {"fairseq_sinusoids": False}),
    "tupe_a-untied": ("tupe_a", {"tie_cls": False}),
    "tupe_r-untied": ("tupe_r", {"tie_cls": False, **OPTIONS["tupe_r"]}),
    "tupe_r-toeplitz": ("tupe_r", {**OPTIONS["tupe_r"], **cases.TOEPLITZ}),
    "window": ("t5", {"attention_window": 3, "global_every": 2, **OPTIONS["t5"]}),
}
#: Those that a model with an encoder takes.
WITH_ENCODER = [v for v, (name, _) in VARIANTS.items() if not POSITION_ENCODINGS[name].causal_only]
MODELS = [
    *(("tupe_transformer", variant) for variant in WITH_ENCODER),
    *(("tupe_transformer_lm", variant) for variant in VARIANTS),
]
every_model = pytest.mark.parametrize(("arch", "variant"), MODELS)
#: One of each way in which a position enters a decoder.
KINDS = ("learned", "rnn", "rope", "t5", "tupe_r-toeplitz", "deberta", "shaw", "window")
every_kind = pytest.mark.parametrize("variant", KINDS)
every_variant = pytest.mark.parametrize("variant", WITH_ENCODER)


class Task:
    """As much of a task as building a model needs."""

    source_dictionary = target_dictionary = DICTIONARY
    cfg = None


def stock(arch: str, **arguments) -> nn.Module:
    """A model of fairseq's; without dropout unless told otherwise."""
    sizes = {
        **dict.fromkeys(("encoder_layers", "decoder_layers"), 2),
        **dict.fromkeys(("encoder_embed_dim", "decoder_embed_dim"), 16),
        **dict.fromkeys(("decoder_input_dim", "decoder_output_dim"), 16),
        **dict.fromkeys(("encoder_ffn_embed_dim", "decoder_ffn_embed_dim"), 24),
        **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
        **dict.fromkeys(("max_source_positions", "max_target_positions", "max_positions"), 80),
        "dropout": 0.0,
    }
    torch.manual_seed(0)
    return models.build_model(Namespace(arch=arch, **{**sizes, **arguments}), Task())


def build(variant: str, arch: str = "tupe_transformer", **arguments) -> nn.Module:
    """One of ours in eval mode, with positional parameters large enough to bend the softmax."""
    name, options = VARIANTS[variant]
    model = stock(arch, position_encoding=name, **{**options, **arguments}).eval()
    generator = torch.Generator().manual_seed(1)
    for key, parameter in model.named_parameters():
        if "embed_positions" in key or "layer_terms" in key:
            nn.init.normal_(parameter, std=0.3, generator=generator)
    return model


def sentences(count: int, length: int, seed: int = 0) -> Tensor:
    """Source sentences: words and </s>."""
    words = torch.randint(4, len(DICTIONARY), (count, length), generator=_seeded(seed))
    words[:, -1] = EOS
    return words


def targets(count: int, length: int, seed: int = 1) -> Tensor:
    """What a decoder reads: </s> and words."""
    return sentences(count, length, seed).roll(1, dims=1)


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
