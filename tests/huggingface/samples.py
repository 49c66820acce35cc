"""Tiny models for transformers, and batches for them."""

import pytest
import torch

from tupe_fairseq.position import POSITION_ENCODINGS

pytest.importorskip("transformers", reason="transformers is not installed (extra hf)")

from tupe_fairseq.huggingface import TupeConfig, TupeForCausalLM, TupeForMaskedLM

every_decoder = pytest.mark.parametrize("name", list(POSITION_ENCODINGS))
WORDS, LENGTH, LAYERS, HEADS = 50, 24, 2, 4
every_encoding = pytest.mark.parametrize(
    "name", [name for name, cls in POSITION_ENCODINGS.items() if not cls.causal_only]
)


def config(name: str = "tupe_r", **changes) -> TupeConfig:
    """A tiny configuration."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "max_position_embeddings": LENGTH}
    layers = {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    words = {"vocab_size": WORDS, "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
    return TupeConfig(**{"position_encoding": name, **sizes, **layers, **words, **changes})


def filled(kind, configuration: TupeConfig):
    """A model in eval mode, with parameters large enough for positions to matter."""
    torch.manual_seed(0)
    model = kind(configuration).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    return model


def masked_lm(name: str = "tupe_r", **changes) -> TupeForMaskedLM:
    return filled(TupeForMaskedLM, config(name, **changes))


def causal_lm(name: str = "tupe_r", **changes) -> TupeForCausalLM:
    return filled(TupeForCausalLM, config(name, is_decoder=True, **changes))


def tokens(lengths: tuple[int, ...] = (LENGTH, 13, 3)) -> torch.Tensor:
    """Random ids, padded on the right: sequences × the longest."""
    generator = torch.Generator().manual_seed(len(lengths))
    ids = torch.randint(4, WORDS, (len(lengths), max(lengths)), generator=generator)
    for row, length in enumerate(lengths):
        ids[row, length:] = 1
    return ids
