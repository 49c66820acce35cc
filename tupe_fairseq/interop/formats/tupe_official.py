"""Checkpoints of the authors' code (guolinke/TUPE, a fork of the fairseq of 2019).

They differ from `tupe_roberta` in names, in joint projections and in what they record: settings
are an argparse.Namespace, and the dictionary has three more symbols, with ids 4, 5 and 6. The
first release has classification heads of one projection. Its pull request 20 joins the two
projections of positions and saves a table of buckets, which follows from the settings.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from ...checkpoints.migration import rename_old_layers
from ...checkpoints.settings import recorded_settings
from ...errors import CheckpointError
from .. import settings
from ..conversion import Conversion, register
from ..dictionaries import Entry, check_size
from ..directory import read_source
from ..models import EMBED_TOKENS, ENCODER, LM_HEAD, Converted, head_names, imported

KIND = "tupe-official"
THEIRS, POSITIONS = "decoder.sentence_encoder.", f"{ENCODER}embed_positions."
#: Beginnings of names there and here; the first that fits is replaced.
NAMES = {
    f"{THEIRS}pos.": POSITIONS,
    f"{THEIRS}pos_ln.": f"{POSITIONS}layer_norm.",
    f"{THEIRS}pos_q_linear.": f"{POSITIONS}q_proj.",
    f"{THEIRS}pos_k_linear.": f"{POSITIONS}k_proj.",
    f"{THEIRS}relative_attention_bias.": f"{POSITIONS}relative_bias.",
    f"{THEIRS}emb_layer_norm.": f"{ENCODER}layernorm_embedding.",
    f"{THEIRS}emb_out_layer_norm.": f"{ENCODER}layer_norm.",
    THEIRS: ENCODER,
    "decoder.lm_head.": LM_HEAD,
}
#: Symbols of every dictionary of the release before the tokens of dict.txt.
MORE_SYMBOLS = (Entry("<file>", 1), Entry("<email>", 1), Entry("<url>", 1))
#: Why `--check` compares nothing.
NOT_COMPARABLE = "the authors' code is not installed; tests of this package compare with it"


def to_ours(theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters by their names here; joint projections are split."""
    found = {}
    for name, value in theirs.items():
        first = next((each for each in NAMES if name.startswith(each)), "")
        found[NAMES.get(first, "") + name.removeprefix(first)] = value
    found.pop(f"{ENCODER}rp_bucket", None)
    for kind in ("weight", "bias"):
        if (joint := found.pop(f"{ENCODER}pos_proj.{kind}", None)) is not None:
            for name, part in zip("qk", joint.chunk(2), strict=True):
                found[f"{POSITIONS}{name}_proj.{kind}"] = part
    rename_old_layers(found, ENCODER.removesuffix("."), ())
    return found


def read(checkpoint: str | Path, dictionary: str | Path | None = None) -> Converted:
    """Read a checkpoint of the release.

    Raises:
        UsageError: the file is not such a checkpoint, or its contents do not fit.
    """
    state, entries, path = read_source(checkpoint, dictionary)
    ours = to_ours(state["model"])
    for name in (EMBED_TOKENS, f"{POSITIONS}weight"):
        settings.matrix(ours, name, checkpoint, KIND)
    entries = [*MORE_SYMBOLS, *entries]
    check_size(entries, len(ours[EMBED_TOKENS]), path)
    recorded = recorded_settings(state, "model", checkpoint)
    relative = recorded.get("rel_pos", f"{POSITIONS}relative_bias.weight" in ours)
    encoding = "tupe_r" if relative else "tupe_a"
    known = settings.of_roberta(recorded, ours, checkpoint, encoding)
    for flag, name in (
        ("embedding_normalize", "layernorm_embedding"),
        ("encoder_normalize_before", "encoder_normalize_before"),
    ):
        known[name] = bool(recorded.get(flag, known[name]))
    notes = []
    if heads := _complete_heads(ours, known["encoder_embed_dim"]):
        # The missing projection and its activation are the identity.
        known["pooler_activation_fn"] = "linear"
        notes.append(f"{', '.join(heads)}: the missing dense projection is the identity here")
    converted = imported(ours, known, entries, checkpoint, KIND)
    converted.notes += notes
    converted.not_comparable = NOT_COMPARABLE
    return converted


def _complete_heads(ours: dict[str, Tensor], width: int) -> list[str]:
    """Add RoBERTa's dense projection to the first release's heads, which lack it.

    Returns:
        Names of these heads.

    Raises:
        CheckpointError: only some heads lack the projection, but all share one activation.
    """
    heads = head_names(ours)
    short = [h for h in heads if f"classification_heads.{h}.dense.weight" not in ours]
    if short and short != heads:
        raise CheckpointError(
            f"the classification heads {', '.join(short)} have no dense projection, but others "
            "do: they cannot be in one model."
        )
    for head in short:
        ours[f"classification_heads.{head}.dense.weight"] = torch.eye(width)
        ours[f"classification_heads.{head}.dense.bias"] = torch.zeros(width)
    return short


SUMMARY = "checkpoints of the authors' code, guolinke/TUPE"
register(Conversion("--from", KIND, SUMMARY, read, source="CHECKPOINT"))
