"""BERT, read as RoBERTa with another vocabulary.

BERT counts positions from 0, RoBERTa from 2. Its ids are put into fairseq's order. Its
`layer_norm_eps` is 1e-12, ours 1e-5, so outputs differ where hidden states have a small variance.
"""

import torch

from ...errors import ConfigurationError
from ..families import Family
from ..keys import Rule, Table
from ..models import LM_HEAD
from ..vocabularies import Vocabulary, of_bert
from .base import Source
from .roberta import REQUIRED, Roberta, leave_out, stack_rules


class Bert(Roberta):
    """BERT; it is not written."""

    model_type = "bert"
    output = "cls.predictions.decoder.weight"
    unused = ("bert.embeddings.position_ids", "cls.predictions.decoder.bias")
    required = REQUIRED

    def read(self, source: Source) -> Vocabulary:
        """The dictionary is that of the tokenizer."""
        if source.dictionary is not None:
            raise ConfigurationError(
                "--dict does not apply to BERT: its tokenizer has the tokens."
            )
        theirs = source.parameters
        rows = len(theirs[self.embed_tokens])
        vocabulary = of_bert(source.folder, rows)
        for name in (self.embed_tokens, self.output, "cls.predictions.bias"):
            if name in theirs and theirs[name].shape[:1] == (rows,):
                theirs[name] = theirs[name][vocabulary.order]
        # fairseq counts from 2; padding has row 1.
        positions = theirs[self.positions]
        theirs[self.positions] = torch.cat([torch.zeros_like(positions[:2]), positions])
        leave_out(source, "cls.seq_relationship.")
        self.read_stack(source)
        if (eps := source.config.get("layer_norm_eps", 1e-12)) != 1e-5:
            source.not_comparable = f"layer_norm_eps is {eps!r} there and 1e-05 here"
        return vocabulary

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
