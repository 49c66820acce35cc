"""Checkpoints of fairseq's RoBERTa, of 2019 or later, and of the authors' code (guolinke/TUPE).

With `learned` positions RoBERTa computes the same here; with any other encoding it is a warm
start. The authors' code, a fork of the fairseq of 2019, differs from `tupe_roberta` in names, in
joint projections and in what it records; its dictionary has three more symbols, with ids 4, 5
and 6. Its first release has classification heads of one projection. Its pull request 20 joins the
two projections of positions and saves a table of buckets, which follows from the settings.
"""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models.roberta import RobertaModel
from torch import Tensor

from ...checkpoints.migration import SECOND_COPY, rename_old_layers
from ...checkpoints.reading import read_checkpoint, recorded_settings
from ...errors import CheckpointError
from ...position import POSITION_ENCODINGS
from ..check import outputs_of
from ..conversion import Conversion, Forward, register
from ..dictionaries import check_size, dictionary_of, read_labels
from ..directory import read_source
from ..keys import Rule, Table, to_ours
from ..models import (
    EMBED_TOKENS,
    ENCODER,
    HEADS,
    Converted,
    build,
    head_names,
    imported,
    matrix,
    register_heads,
    sizes,
)
from ..warm_start import Encoding, Seed, warm_start

ROBERTA, OFFICIAL = "fairseq-roberta", "tupe-official"
POSITIONS, OLD = f"{ENCODER}embed_positions.", "decoder.sentence_encoder."
#: In 2019, the encoder was a decoder.
ROBERTA_RULES = (
    Rule(f"{OLD}emb_layer_norm.*", f"{ENCODER}layernorm_embedding.*"),
    Rule(f"{ENCODER}emb_layer_norm.*", f"{ENCODER}layernorm_embedding.*"),
    Rule("decoder.**", "encoder.**"),
)
OFFICIAL_RULES = (
    Rule(f"{OLD}pos.*", f"{POSITIONS}*"),
    Rule(f"{OLD}pos_ln.*", f"{POSITIONS}layer_norm.*"),
    Rule(f"{OLD}pos_q_linear.*", f"{POSITIONS}q_proj.*"),
    Rule(f"{OLD}pos_k_linear.*", f"{POSITIONS}k_proj.*"),
    Rule(f"{OLD}relative_attention_bias.*", f"{POSITIONS}relative_bias.*"),
    Rule(f"{OLD}emb_out_layer_norm.*", f"{ENCODER}layer_norm.*"),
    Rule(f"{OLD}rp_bucket", ""),
    *ROBERTA_RULES,
)
#: Symbols of every dictionary of the authors' code before the tokens of dict.txt.
MORE_SYMBOLS = ("<file>", "<email>", "<url>")
#: Settings that parameters do not show, beside the number of heads.
RECORDED = (
    *("activation_fn", "pooler_activation_fn"),
    *("dropout", "attention_dropout", "activation_dropout", "pooler_dropout"),
)


def todays_names(state: Mapping[str, Tensor], table: Table) -> dict[str, Tensor]:
    """Parameters by today's names; joint projections are split."""
    found = to_ours(state, table)
    for kind in ("weight", "bias"):
        if (joint := found.pop(f"{ENCODER}pos_proj.{kind}", None)) is not None:
            for name, part in zip("qk", joint.chunk(2), strict=True):
                found[f"{POSITIONS}{name}_proj.{kind}"] = part
    rename_old_layers(found, ENCODER.removesuffix("."), ())
    return found


def read_roberta(
    checkpoint: str | Path,
    dictionary: str | Path | None = None,
    *,
    position_encoding: Encoding | None = None,
    seed: Seed = 1,
) -> Converted:
    """Read a stock RoBERTa.

    Any other encoding than `learned` is a warm start, with parameters from `seed`.

    Raises:
        UsageError: the file is not such a checkpoint, or its contents do not fit.
    """
    if position_encoding is not None:
        # An unknown name is an error before anything is read.
        POSITION_ENCODINGS[position_encoding]
    state, words, path = read_source(checkpoint, dictionary)
    ours = todays_names(state["model"], ROBERTA_RULES)
    settings = _settings(state, ours, checkpoint, ROBERTA, "learned")
    check_size(words, len(ours[EMBED_TOKENS]), path, adds_mask=True)
    converted = imported(settings, ours, words, checkpoint, ROBERTA)
    converted.labels = read_labels(path, Path(checkpoint).parent)
    return warm_start(converted, position_encoding, seed)


def read_official(checkpoint: str | Path, dictionary: str | Path | None = None) -> Converted:
    """Read a checkpoint of the authors' code.

    Raises:
        UsageError: the file is not such a checkpoint, or its contents do not fit.
    """
    state, words, path = read_source(checkpoint, dictionary)
    ours = todays_names(state["model"], OFFICIAL_RULES)
    recorded = recorded_settings(state, "model", checkpoint)
    relative = recorded.get("rel_pos", f"{POSITIONS}relative_bias.weight" in ours)
    encoding = "tupe_r" if relative else "tupe_a"
    settings = _settings(state, ours, checkpoint, OFFICIAL, encoding)
    words = _with_more_symbols(words)
    check_size(words, len(ours[EMBED_TOKENS]), path, adds_mask=True)
    notes = []
    if heads := _complete_heads(ours, settings["encoder_embed_dim"]):
        # The missing projection and its activation are the identity.
        settings["pooler_activation_fn"] = "linear"
        notes.append(f"{', '.join(heads)}: the missing dense projection is the identity here")
    converted = imported(settings, ours, words, checkpoint, OFFICIAL)
    converted.notes += notes
    converted.labels = read_labels(path, Path(checkpoint).parent)
    converted.not_comparable = (
        "the authors' code is not installed; tests of this package compare with it"
    )
    return converted


def _settings(
    state: Mapping[str, Any], ours: Mapping[str, Tensor], source: object, kind: str, encoding: str
) -> dict[str, Any]:
    """Settings of a model with this encoding, as parameters show them and the file records."""
    recorded = recorded_settings(state, "model", source)
    positions = matrix(ours, f"{POSITIONS}weight", source, kind)
    # fairseq counts learned positions from padding_idx + 1 = 2; TUPE has θ1, θ2 and 1, 2, ...
    unused = 2 if encoding == "learned" else 1
    return {
        **{name: recorded[name] for name in RECORDED if name in recorded},
        "encoder_attention_heads": recorded.get("encoder_attention_heads"),
        **sizes(ours, source, kind),
        "position_encoding": encoding,
        "max_positions": len(positions) - unused,
        "layernorm_embedding": f"{ENCODER}layernorm_embedding.weight" in ours,
        "encoder_normalize_before": f"{ENCODER}layer_norm.weight" in ours,
    }


def _with_more_symbols(words: Dictionary) -> Dictionary:
    """The dictionary of the authors' code, whose own symbols come first."""
    tokens, counts = (every[words.nspecial :] for every in (words.symbols, words.count))
    return dictionary_of([*MORE_SYMBOLS, *tokens], [1] * len(MORE_SYMBOLS) + counts)


def _complete_heads(ours: dict[str, Tensor], width: int) -> list[str]:
    """Add RoBERTa's dense projection to the first release's heads, which lack it.

    Returns:
        Names of these heads.

    Raises:
        CheckpointError: only some heads lack it, but all share one activation.
    """
    heads = head_names(ours)
    lacking = [head for head in heads if f"{HEADS}{head}.dense.weight" not in ours]
    if lacking and lacking != heads:
        raise CheckpointError(
            f"the checkpoint lacks {HEADS}{lacking[0]}.dense.weight, which other heads have: "
            "remove the parameters of this head."
        )
    if not lacking:
        return []
    for head in heads:
        ours[f"{HEADS}{head}.dense.weight"] = torch.eye(width)
        ours[f"{HEADS}{head}.dense.bias"] = torch.zeros(width)
    return heads


def outputs(checkpoint: Path, converted: Converted, head: str | None) -> Forward:
    """Fairseq's own RoBERTa with the parameters of the checkpoint."""
    ours = build(converted.settings, converted.dictionary, {})
    task = SimpleNamespace(source_dictionary=ours.encoder.dictionary)
    model = RobertaModel.build_model(ours.args, task)
    register_heads(model, converted.state)
    state, own = read_checkpoint(checkpoint)["model"], model.state_dict()
    model.load_state_dict(
        {n: v for n, v in state.items() if n in own or not SECOND_COPY.search(n)}
    )
    return outputs_of(model.eval(), head)


SUMMARY = "checkpoints of fairseq's RoBERTa, of 2019 or later"
register(Conversion("--from", ROBERTA, SUMMARY, read_roberta, outputs, source="CHECKPOINT"))
SUMMARY = "checkpoints of the authors' code, guolinke/TUPE"
register(Conversion("--from", OFFICIAL, SUMMARY, read_official, source="CHECKPOINT"))
