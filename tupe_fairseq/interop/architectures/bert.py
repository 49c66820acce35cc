"""BERT, read as RoBERTa with another vocabulary.

BERT counts positions from 0, RoBERTa from 2. Its ids are put into fairseq's order. Its
`layer_norm_eps` is 1e-12, ours 1e-5, so outputs differ where hidden states have a small variance.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ..families import Family
from ..keys import Rule, Table
from ..models import LM_HEAD
from ..vocabularies import Vocabulary, of_bert
from .roberta import Roberta, left_out, stack_rules


class Bert(Roberta):
    """BERT, which is read and not written."""

    model_type = "bert"
    output = "cls.predictions.decoder.weight"
    unused = ("bert.embeddings.position_ids", "cls.predictions.decoder.bias")
    required: ClassVar = {
        name: values
        for name, values in Roberta.required.items()
        if name not in ("layer_norm_eps", "pad_token_id")
    }

    def vocabulary(
        self, folder: Path, dictionary: str | Path | None, rows: int, family: Family
    ) -> Vocabulary:
        """The WordPieces of the tokenizer; a dict.txt does not say which rows are theirs."""
        if dictionary is not None:
            raise ConfigurationError(
                "--dict does not apply to BERT: its tokenizer has the tokens."
            )
        return of_bert(folder, rows)

    def read(
        self,
        config: Mapping[str, Any],
        theirs: dict[str, Tensor],
        vocabulary: Vocabulary,
        learned: bool,
        notes: list[str],
    ) -> dict[str, Any]:
        notes += left_out(theirs, "cls.seq_relationship.")
        for name in (self.embed_tokens, self.output, "cls.predictions.bias"):
            if name in theirs and theirs[name].shape[:1] == (len(vocabulary.order),):
                theirs[name] = theirs[name][vocabulary.order]
        # fairseq counts from 2; padding has row 1.
        positions = theirs[self.positions]
        theirs[self.positions] = torch.cat([torch.zeros_like(positions[:2]), positions])
        return super().read(config, theirs, vocabulary, learned, notes)

    def difference(self, config: Mapping[str, Any]) -> str:
        eps = config.get("layer_norm_eps", 1e-12)
        return "" if eps == 1e-5 else f"layer_norm_eps is {eps!r} there and 1e-05 here"

    def rules(self, family: Family, head: str | None) -> Table:
        # The pooler is the first layer of the classifier.
        return (
            *stack_rules(self.model_type),
            Rule("cls.predictions.transform.dense.*", f"{LM_HEAD}dense.*"),
            Rule("cls.predictions.transform.LayerNorm.*", f"{LM_HEAD}layer_norm.*"),
            Rule(self.output, f"{LM_HEAD}weight"),
            Rule("cls.predictions.bias", f"{LM_HEAD}bias"),
            Rule("bert.pooler.dense.*", f"classification_heads.{head}.dense.*"),
            Rule("classifier.*", f"classification_heads.{head}.out_proj.*"),
        )
