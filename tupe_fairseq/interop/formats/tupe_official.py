"""Checkpoints of the authors' code (guolinke/TUPE, a fork of the fairseq of 2019).

They differ from `tupe_roberta` in names, in joint projections and in what they record: settings
are an argparse.Namespace, and the dictionary has three more symbols, with ids 4, 5 and 6. The
first release has classification heads of one projection. Its pull request 20 joins the two
projections of positions and saves a table of buckets, which follows from the settings.
"""

from pathlib import Path

import torch
from torch import Tensor

from ...checkpoints.settings import recorded_settings
from ...errors import CheckpointError
from .. import settings
from ..conversion import Conversion, register
from ..dictionaries import Entry, check_size
from ..directory import read_source
from ..keys import Rule, Table, roberta_rules, to_ours
from ..models import EMBED_TOKENS, ENCODER, Converted, head_names, renamed

KIND = "tupe-official"
THEIRS = "decoder.sentence_encoder."
POSITIONS = f"{ENCODER}embed_positions."
#: Symbols of every dictionary of the release before the tokens of dict.txt.
MORE_SYMBOLS = (Entry("<file>", 1), Entry("<email>", 1), Entry("<url>", 1))
#: A saved table, which follows from the settings.
BUCKETS = f"{THEIRS}rp_bucket"
#: Why `--check` compares nothing.
NOT_COMPARABLE = "the authors' code is not installed; tests of this package compare with it"


def table(joint: bool = False) -> Table:
    """Rules for the names of the release; `joint`: queries and keys of positions are one."""
    q, k = f"{POSITIONS}q_proj.*", f"{POSITIONS}k_proj.*"
    separate = (Rule(f"{THEIRS}pos_q_linear.*", q), Rule(f"{THEIRS}pos_k_linear.*", k))
    return (
        Rule(f"{THEIRS}embed_tokens.weight", EMBED_TOKENS),
        Rule(f"{THEIRS}pos.weight", f"{POSITIONS}weight"),
        Rule(f"{THEIRS}pos_ln.*", f"{POSITIONS}layer_norm.*"),
        *((Rule(f"{THEIRS}pos_proj.*", (q, k)),) if joint else separate),
        Rule(f"{THEIRS}relative_attention_bias.weight", f"{POSITIONS}relative_bias.weight"),
        Rule(f"{THEIRS}emb_layer_norm.*", f"{ENCODER}layernorm_embedding.*"),
        Rule(f"{THEIRS}emb_out_layer_norm.*", f"{ENCODER}layer_norm.*"),
        *roberta_rules("decoder.", ENCODER, joint=True),
    )


def read(checkpoint: str | Path, dictionary: str | Path | None = None) -> Converted:
    """Read a checkpoint of the release.

    Raises:
        UsageError: the file is not such a checkpoint, or its contents do not fit.
    """
    state, entries, path = read_source(checkpoint, dictionary)
    theirs = {name: value for name, value in state["model"].items() if name != BUCKETS}
    rules = table(joint=f"{THEIRS}pos_proj.weight" in theirs)
    for name in ("embed_tokens", "pos"):
        settings.matrix(theirs, f"{THEIRS}{name}.weight", checkpoint, KIND)
    recorded, ours = recorded_settings(state, "model", checkpoint), to_ours(theirs, rules)
    entries = [*MORE_SYMBOLS, *entries]
    check_size(entries, len(ours[EMBED_TOKENS]), path)
    relative = recorded.get("rel_pos", f"{POSITIONS}relative_bias.weight" in ours)
    encoding = "tupe_r" if relative else "tupe_a"
    known = settings.of_roberta(recorded, ours, checkpoint, encoding)
    for flag, name in (
        ("embedding_normalize", "layernorm_embedding"),
        ("encoder_normalize_before", "encoder_normalize_before"),
    ):
        known[name] = bool(recorded.get(flag, known[name]))
    notes = []
    if heads := _complete_heads(theirs, known["encoder_embed_dim"]):
        # The missing projection and its activation are the identity.
        known["pooler_activation_fn"] = "linear"
        notes.append(f"{', '.join(heads)}: the missing dense projection is the identity here")
    converted = renamed(theirs, rules, known, entries, checkpoint, KIND)
    converted.notes += notes
    converted.not_comparable = NOT_COMPARABLE
    return converted


def _complete_heads(theirs: dict[str, Tensor], width: int) -> list[str]:
    """Add RoBERTa's dense projection to the first release's heads, which lack it.

    Returns:
        Names of these heads.

    Raises:
        CheckpointError: only some heads lack the projection, but all share one activation.
    """
    heads = head_names(theirs)
    short = [h for h in heads if f"classification_heads.{h}.dense.weight" not in theirs]
    if short and short != heads:
        raise CheckpointError(
            f"the classification heads {', '.join(short)} have no dense projection, but others "
            "do: they cannot be in one model."
        )
    for head in short:
        theirs[f"classification_heads.{head}.dense.weight"] = torch.eye(width)
        theirs[f"classification_heads.{head}.dense.bias"] = torch.zeros(width)
    return short


SUMMARY = "checkpoints of the authors' code, guolinke/TUPE"
register(Conversion("--from", KIND, SUMMARY, read, source="CHECKPOINT"))
