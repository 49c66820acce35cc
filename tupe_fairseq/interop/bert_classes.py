"""BERT of transformers, read as RoBERTa with another vocabulary.

Both have the same layers. BERT counts positions from 0, RoBERTa from 2. Its ids are put into
fairseq's order, and token type 0 is added to the positions (`roberta_classes.py`). BERT's
`layer_norm_eps` is 1e-12, ours 1e-5, so outputs differ where hidden states have a small variance.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import ConfigurationError
from ..extras import import_extra
from . import roberta_classes as roberta
from .conversion import Forward
from .directory import Converted
from .vocabularies import of_bert

#: Beginnings of names: BERT's, and RoBERTa's.
NAMES = {
    "bert.pooler.": "roberta.pooler.",
    "bert.": "roberta.",
    "cls.predictions.transform.dense.": "lm_head.dense.",
    "cls.predictions.transform.LayerNorm.": "lm_head.layer_norm.",
    "cls.predictions.bias": "lm_head.bias",
    "cls.predictions.decoder.weight": roberta.TIED_HEAD,
    "classifier.": "classifier.out_proj.",
}
#: Parameters with a row for each word.
BY_WORD = (roberta.WORDS_THERE, roberta.TIED_HEAD, "lm_head.bias")
#: The head for the next sentence, and a second name of a bias.
LEFT_OUT = ("cls.seq_relationship.", "cls.predictions.decoder.bias")


def read(
    source: Path,
    config: Mapping[str, Any],
    theirs: Mapping[str, Tensor],
    position_encoding: str = "learned",
    seed: int = 1,
) -> Converted:
    """Read BERT with a head for masked words, a classifier or neither.

    Args:
        source: the directory, which holds the tokenizer.
        config: its config.json.
        theirs: its parameters.
        position_encoding: of the new model; any other than `learned` is a warm start.
        seed: of new parameters.

    Raises:
        UsageError: the contents do not fit.
    """
    roberta.check_config(config, source / "config.json", free=("layer_norm_eps", "pad_token_id"))
    for name in ("position", "word"):
        table = roberta.matrix(theirs, f"bert.embeddings.{name}_embeddings.weight", source)
    vocabulary = of_bert(source, len(table))
    state = _as_roberta(theirs, vocabulary.order)
    given = (config, state, vocabulary.entries, position_encoding, seed)
    converted = roberta.read(source, *given)
    left_out = [name for name in theirs if name.startswith(LEFT_OUT[0])]
    converted.notes += [vocabulary.note, *([f"left out: {LEFT_OUT[0]}*"] if left_out else [])]
    eps = config.get("layer_norm_eps", 1e-12)
    if eps != 1e-5 and not converted.not_comparable:
        converted.not_comparable = f"layer_norm_eps is {eps!r} there and 1e-05 here"
    return converted


def _as_roberta(theirs: Mapping[str, Tensor], order: list[int]) -> dict[str, Tensor]:
    """The parameters by RoBERTa's names, and in the order of fairseq's ids and positions."""
    state = {}
    for name, value in theirs.items():
        if name.startswith(LEFT_OUT):
            continue
        first = next((each for each in NAMES if name.startswith(each)), "")
        state[NAMES.get(first, "") + name.removeprefix(first)] = value
    state.pop("roberta.embeddings.position_ids", None)
    for name in BY_WORD:
        if name in state and len(state[name]) == len(order):
            state[name] = state[name][order]
    if (positions := state.get(roberta.POSITIONS_THERE)) is not None:
        # fairseq counts from 2; padding has row 1.
        state[roberta.POSITIONS_THERE] = torch.cat([torch.zeros_like(positions[:2]), positions])
    # The pooler is the first layer of the classifier.
    for kind in ("weight", "bias"):
        if "classifier.out_proj.weight" in state and f"roberta.pooler.dense.{kind}" in state:
            state[f"classifier.dense.{kind}"] = state.pop(f"roberta.pooler.dense.{kind}")
    return state


def outputs(directory: Path, converted: Converted, head: str | None) -> Forward:
    """BERT of transformers, called with fairseq's ids.

    Raises:
        UsageError: transformers is not installed.
    """
    library = import_extra("transformers", "hf")
    kind = library.BertForSequenceClassification if head else library.BertForMaskedLM
    model = kind.from_pretrained(str(directory)).eval()
    order = torch.tensor(of_bert(directory, model.config.vocab_size).order)

    def forward(tokens: Tensor) -> tuple[Tensor, ...]:
        out = model(order[tokens], attention_mask=tokens.ne(1), output_hidden_states=True)
        return (out.logits,) if head else (out.hidden_states[-1], out.logits[..., order])

    return forward


def refuse_dictionary(dictionary: object) -> None:
    """Check that --dict is not given: it does not say which rows belong to its words.

    Raises:
        ConfigurationError: --dict is given.
    """
    if dictionary is not None:
        raise ConfigurationError("--dict does not apply to BERT: its tokenizer has the words.")
