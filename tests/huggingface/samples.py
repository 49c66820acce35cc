"""Tiny models for transformers, and batches for them."""

import pytest
import torch

from tupe_fairseq.position import POSITION_ENCODINGS

pytest.importorskip("transformers", reason="transformers is not installed (extra hf)")

from tupe_fairseq import huggingface as hf
from tupe_fairseq.huggingface import TupeConfig, TupeForMaskedLM

WORDS = 50
LENGTH = 24
LAYERS = 2
HEADS = 4
IN_ENCODERS = [name for name, cls in POSITION_ENCODINGS.items() if not cls.causal_only]
every_encoding = pytest.mark.parametrize("name", IN_ENCODERS)


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


def tokens(lengths: tuple[int, ...] = (LENGTH, 13, 3)) -> torch.Tensor:
    """Random ids, padded on the right: sequences × the longest."""
    generator = torch.Generator().manual_seed(len(lengths))
    ids = torch.randint(4, WORDS, (len(lengths), max(lengths)), generator=generator)
    for row, length in enumerate(lengths):
        ids[row, length:] = 1
    return ids


IDS = tokens()
SEEN = IDS.ne(1)
SPAN = {"start_positions": torch.tensor([1, 5, 0]), "end_positions": torch.tensor([4, 6, 2])}
#: Each class, what its configuration adds, and its labels.
CLASSES = {
    hf.TupeForMaskedLM: ({}, {"labels": torch.where(SEEN, IDS, -100)}),
    hf.TupeForSequenceClassification: ({"num_labels": 3}, {"labels": torch.tensor([2, 0, 1])}),
    hf.TupeForMultipleChoice: ({}, {"labels": torch.tensor([0, 1, 1])}),
    hf.TupeForTokenClassification: ({"num_labels": 4}, {"labels": IDS % 4}),
    hf.TupeForQuestionAnswering: ({}, SPAN),
}
every_class = pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
#: Each class with one encoding, and one class with each encoding.
MODELS = [(kind, "tupe_r") for kind in CLASSES]
MODELS += [(hf.TupeForMaskedLM, name) for name in IN_ENCODERS if name != "tupe_r"]
every_model = pytest.mark.parametrize(("kind", "name"), MODELS)


def build(kind, name: str = "tupe_r", **changes):
    return filled(kind, config(name, **CLASSES[kind][0], **changes))


def ids_for(kind) -> torch.Tensor:
    return torch.stack((IDS, IDS), 1) if kind is hf.TupeForMultipleChoice else IDS


def labelled(model, **more):
    """The output for the class's ids and labels."""
    return model(ids_for(type(model)), **CLASSES[type(model)][1], **more)


def at_tokens(output: torch.Tensor) -> torch.Tensor:
    """Without what stands at padding, where it is of tokens."""
    return output[SEEN] if output.shape[:2] == SEEN.shape else output
