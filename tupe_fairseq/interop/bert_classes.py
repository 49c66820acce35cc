"""BERT of transformers, read as RoBERTa with another vocabulary.

Both have the same layers. BERT counts positions from 0, RoBERTa from 2. Its ids are put into
fairseq's order, and token type 0 is added to the positions (`roberta_classes.py`). BERT's
`layer_norm_eps` is 1e-12, ours 1e-5, so outputs differ where hidden states have a small variance.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from . import roberta_classes as roberta

EMBED_TOKENS_THERE = "bert.embeddings.word_embeddings.weight"
POSITIONS_THERE = "bert.embeddings.position_embeddings.weight"
#: Beginnings of names: BERT's, and RoBERTa's.
NAMES = {
    "bert.": "roberta.",
    "cls.predictions.transform.dense.": "lm_head.dense.",
    "cls.predictions.transform.LayerNorm.": "lm_head.layer_norm.",
    "cls.predictions.bias": "lm_head.bias",
    "cls.predictions.decoder.weight": roberta.TIED_HEAD,
    "classifier.": "classifier.out_proj.",
}
#: Parameters with a row for each token.
BY_TOKEN = (roberta.EMBED_TOKENS_THERE, roberta.TIED_HEAD, "lm_head.bias")
#: Settings that may differ from RoBERTa's.
FREE = ("layer_norm_eps", "pad_token_id")


def as_roberta(
    theirs: Mapping[str, Tensor], order: list[int], notes: list[str]
) -> dict[str, Tensor]:
    """The parameters by RoBERTa's names, and in the order of fairseq's ids and positions.

    `order` is the row of each id in the token embeddings. Notes for the user are added to `notes`.
    """
    state = dict(theirs)
    notes += roberta.left_out(state, "cls.seq_relationship.")
    # A second name of a bias.
    state.pop("cls.predictions.decoder.bias", None)
    for name in list(state):
        first = next((each for each in NAMES if name.startswith(each)), "")
        state[NAMES.get(first, "") + name.removeprefix(first)] = state.pop(name)
    for name in BY_TOKEN:
        if name in state and len(state[name]) == len(order):
            state[name] = state[name][order]
    # fairseq counts from 2; padding has row 1.
    positions = state[roberta.POSITIONS_THERE]
    state[roberta.POSITIONS_THERE] = torch.cat([torch.zeros_like(positions[:2]), positions])
    # The pooler is the first layer of the classifier.
    for kind in ("weight", "bias"):
        if "classifier.out_proj.weight" in state and f"roberta.pooler.dense.{kind}" in state:
            state[f"classifier.dense.{kind}"] = state.pop(f"roberta.pooler.dense.{kind}")
    return state


def difference(config: Mapping[str, Any]) -> str:
    """Why outputs differ from BERT's, or ""."""
    eps = config.get("layer_norm_eps", 1e-12)
    return "" if eps == 1e-5 else f"layer_norm_eps is {eps!r} there and 1e-05 here"
