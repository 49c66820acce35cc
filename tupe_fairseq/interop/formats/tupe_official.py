"""Checkpoints of the authors' code (guolinke/TUPE, a fork of the fairseq of 2019).

They differ from `tupe_roberta` in names, in joint projections and in what they record: settings
are an argparse.Namespace, and the dictionary has three more symbols, with ids 4, 5 and 6. The
first release has classification heads of one projection. Its pull request 20 joins the two
projections of positions and saves a table of buckets, which follows from the settings.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...checkpoints.settings import recorded_settings
from ...errors import CheckpointError
from ...position.indices import distances, relative_buckets, toeplitz
from ..conversion import Conversion, register
from ..dictionaries import Entry, check_size
from ..directory import ENCODER, WORDS, Converted, head_names, read_source, renamed
from ..keys import Rule, Table, roberta_rules
from ..settings import functions, sizes

KIND = "tupe-official"
THEIRS = "decoder.sentence_encoder."
POSITIONS = f"{ENCODER}embed_positions."
#: Symbols of every dictionary of the release before the words of dict.txt.
MORE_SYMBOLS = (Entry("<file>", 1), Entry("<email>", 1), Entry("<url>", 1))
#: The release's buckets, which no argument changes, and the name of their saved table.
NUM_BUCKETS, MAX_DISTANCE, BUCKETS = 32, 128, f"{THEIRS}rp_bucket"
#: Why `--check` compares nothing.
NOT_COMPARABLE = "the authors' code is not installed; tests of this package compare with it"


def table(joint: bool = False) -> Table:
    """Rules for the names of the release.

    Args:
        joint: the projections of positions are one parameter, queries above keys.
    """
    q, k = f"{POSITIONS}q_proj.*", f"{POSITIONS}k_proj.*"
    separate = (Rule(f"{THEIRS}pos_q_linear.*", q), Rule(f"{THEIRS}pos_k_linear.*", k))
    return (
        Rule(f"{THEIRS}embed_tokens.weight", WORDS),
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

    Args:
        checkpoint: the file.
        dictionary: its dict.txt; default: the one beside it.

    Raises:
        UsageError: the file is not such a checkpoint, or its contents do not fit.
    """
    state, entries, path = read_source(checkpoint, dictionary)
    theirs = dict(state["model"])
    buckets = theirs.pop(BUCKETS, None)
    settings = _settings(recorded_settings(state, "model", checkpoint), theirs, checkpoint)
    _check_buckets(buckets, settings["max_positions"], checkpoint)
    notes = _complete_heads(theirs, settings)
    entries = [*MORE_SYMBOLS, *entries]
    check_size(entries, len(theirs[f"{THEIRS}embed_tokens.weight"]), path)
    names = table(joint=f"{THEIRS}pos_proj.weight" in theirs)
    converted = renamed(theirs, names, settings, entries, checkpoint, KIND)
    return replace(converted, notes=notes, not_comparable=NOT_COMPARABLE)


def _settings(
    recorded: dict[str, Any], theirs: Mapping[str, Tensor], source: object
) -> dict[str, Any]:
    """Arguments of `tupe_roberta`, from the parameters where these show them."""
    positions = theirs.get(f"{THEIRS}pos.weight")
    if positions is None or positions.dim() != 2:
        raise CheckpointError(
            f"{source} is not a {KIND} checkpoint: it has no {THEIRS}pos.weight."
        )
    settings = sizes(recorded, theirs, THEIRS, source) | functions(recorded, source)
    relative = f"{THEIRS}relative_attention_bias.weight" in theirs
    settings |= {
        "position_encoding": "tupe_r" if relative else "tupe_a",
        # Rows: θ1, θ2 and positions 1, ..., max_positions − 1.
        "max_positions": len(positions) - 1,
        "layernorm_embedding": f"{THEIRS}emb_layer_norm.weight" in theirs,
        "encoder_normalize_before": f"{THEIRS}emb_out_layer_norm.weight" in theirs,
    }
    for flag, found in (
        ("rel_pos", relative),
        ("embedding_normalize", settings["layernorm_embedding"]),
        ("encoder_normalize_before", settings["encoder_normalize_before"]),
    ):
        if flag in recorded and bool(recorded[flag]) != found:
            raise CheckpointError(
                f"{source} contradicts itself: its --{flag.replace('_', '-')} is "
                f"{recorded[flag]}, but its parameters require {found}."
            )
    head, words = theirs.get("decoder.lm_head.weight"), theirs[f"{THEIRS}embed_tokens.weight"]
    settings["untie_weights_roberta"] = head is not None and not torch.equal(head, words)
    return settings


def _check_buckets(saved: Tensor | None, length: int, source: object) -> None:
    """Compare the saved table of buckets with the one that `tupe_roberta` computes.

    Raises:
        CheckpointError: they differ.
    """
    if saved is None:
        return
    of_distance = relative_buckets(distances(length, length), NUM_BUCKETS, MAX_DISTANCE, True)
    expected = toeplitz(of_distance[None], length)[0].clone()
    expected[:, 0], expected[0, :] = NUM_BUCKETS, NUM_BUCKETS // 2
    if saved.shape != expected.shape or not torch.equal(saved.long(), expected):
        raise CheckpointError(f"{source}: {BUCKETS} is not the table of {NUM_BUCKETS} buckets.")


def _complete_heads(theirs: dict[str, Tensor], settings: dict[str, Any]) -> list[str]:
    """Add RoBERTa's dense projection to the first release's heads, which lack it.

    Projection and activation become the identity, so that the outputs stay the same.

    Returns:
        Notes for the user.

    Raises:
        CheckpointError: only some heads lack the projection, but all share one activation.
    """
    heads = head_names(theirs)
    short = [h for h in heads if f"classification_heads.{h}.dense.weight" not in theirs]
    if not short:
        return []
    if short != heads:
        raise CheckpointError(
            f"the classification heads {', '.join(short)} have no dense projection, but others "
            "do: they cannot be in one model."
        )
    width = settings["encoder_embed_dim"]
    for head in short:
        theirs[f"classification_heads.{head}.dense.weight"] = torch.eye(width)
        theirs[f"classification_heads.{head}.dense.bias"] = torch.zeros(width)
    settings["pooler_activation_fn"] = "linear"
    return [f"{', '.join(short)}: the missing dense projection is the identity here"]


SUMMARY = "checkpoints of the authors' code, guolinke/TUPE"
register(Conversion("--from", KIND, SUMMARY, read, source="CHECKPOINT"))
