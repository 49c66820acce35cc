"""The flags of fairseq-train that a conversion tells build the same model."""

import copy
import shlex

import pytest
from fairseq import options, tasks

from tests.convert.samples import WORDS, masked_lm
from tupe_fairseq.convert.flags import training_flags
from tupe_fairseq.convert.settings import from_config

MODERN = {"gated_ffn": "geglu", "norm_bias": False, "attention_bias": False, "ffn_bias": False}
MODELS = {
    "as BERT": ("learned", {"type_vocab_size": 2, "layer_norm_eps": 1e-12}),
    "untied": ("tupe_r", {"untie_weights_roberta": True, "tie_cls": True}),
    "pre-LN": ("tupe_a", {"encoder_normalize_before": True, "layernorm_embedding": False}),
    "pre-LN with a norm": ("t5", {"encoder_normalize_before": True, "num_buckets": 16}),
    "as DeBERTa": ("deberta", {"deberta_released": True, "deberta_buckets": 8}),
    "as ModernBERT": (
        "rope",
        {
            **MODERN,
            **{"encoder_normalize_before": True, "first_attention_norm": False},
            **{"rope_halves": True, "rope_theta": 160000.0, "rope_theta_local": 10000.0},
            **{"attention_window": 8, "global_every": 3},
        },
    ),
    "with noise": ("alibi", {"quant_noise_pq": 0.1, "activation_fn": "relu"}),
}


@pytest.mark.parametrize("name", MODELS)
def test_same_model(name):
    encoding, changes = MODELS[name]
    built, converted = masked_lm(encoding, **changes)
    settings = from_config(converted.settings)
    words = ["", "--task", "masked_lm", "--criterion", "masked_lm", "--optimizer", "adam"]
    words += ["--tokens-per-sample", "24"]
    words += shlex.split(training_flags(settings))
    arguments = options.parse_args_and_arch(options.get_training_parser(), words)
    task = tasks.TASK_REGISTRY["masked_lm"](arguments, copy.deepcopy(WORDS))
    again = task.build_model(arguments)
    shapes = ({n: p.shape for n, p in each.named_parameters()} for each in (built, again))
    assert next(shapes) == next(shapes)
    dropouts = {name for name in settings if "dropout" in name}
    for key in settings.keys() - dropouts:
        assert getattr(arguments, key) == settings[key], key


def test_nearest_architecture():
    """No flag for what `--arch` has."""
    sizes = {"encoder_layers": 4, "encoder_embed_dim": 128, "encoder_ffn_embed_dim": 512}
    _, converted = masked_lm("tupe_r", **sizes)
    flags = training_flags(from_config(converted.settings))
    expected = "--arch tupe_roberta_tiny --position-encoding tupe_r --max-positions 24"
    assert flags == expected
