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

from ...base.errors import CheckpointError, DataError
from ...fairseq.checkpoints.migration import SECOND_COPY, rename_old_layers
from ...fairseq.checkpoints.reading import read_checkpoint, recorded_settings
from ...fairseq.checks import read_dictionary
from ...fairseq.hub.files import find_checkpoint, separates
from ..carried import DICTIONARY
from ..conversion import Conversion, Opened, register
from ..dictionaries import MASK, dictionary_for, dictionary_of
from ..directory import neutral, outputs_of
from ..fairseq_models import CLASSIFIERS, STACK, all_arguments, read_state, register_heads
from ..keys import Rule, Table, to_ours
from ..models import Converted, matrix
from ..settings import from_config
from ..warm_start import Encoding, Seed, warm_start

ROBERTA = "fairseq-roberta"
OFFICIAL = "tupe-official"
POSITIONS = f"{STACK}embed_positions."
OLD = "decoder.sentence_encoder."
#: In 2019, the encoder was a decoder.
ROBERTA_RULES = (
    Rule(f"{OLD}emb_layer_norm.*", f"{STACK}layernorm_embedding.*"),
    Rule(f"{STACK}emb_layer_norm.*", f"{STACK}layernorm_embedding.*"),
    Rule("decoder.**", "encoder.**"),
)
OFFICIAL_RULES = (
    Rule(f"{OLD}pos.*", f"{POSITIONS}*"),
    Rule(f"{OLD}pos_ln.*", f"{POSITIONS}layer_norm.*"),
    Rule(f"{OLD}pos_q_linear.*", f"{POSITIONS}q_proj.*"),
    Rule(f"{OLD}pos_k_linear.*", f"{POSITIONS}k_proj.*"),
    Rule(f"{OLD}relative_attention_bias.*", f"{POSITIONS}relative_bias.*"),
    Rule(f"{OLD}emb_out_layer_norm.*", f"{STACK}layer_norm.*"),
    Rule(f"{OLD}rp_bucket", ""),
    *ROBERTA_RULES,
)
#: Symbols of every dictionary of the authors' code before the tokens of dict.txt.
MORE_SYMBOLS = ("<file>", "<email>", "<url>")
#: Settings that are read, beside the number of heads; parameters must show the same sizes.
RECORDED = (
    "encoder_layers",
    "encoder_embed_dim",
    "encoder_ffn_embed_dim",
    "activation_fn",
    "pooler_activation_fn",
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "pooler_dropout",
    "quant_noise_pq",
)


def todays_names(state: Mapping[str, Tensor], table: Table) -> dict[str, Tensor]:
    """Parameters by today's names; joint projections are split."""
    renamed = to_ours(state, table)
    for kind in ("weight", "bias"):
        joint = renamed.pop(f"{STACK}pos_proj.{kind}", None)
        if joint is not None:
            for name, part in zip("qk", joint.chunk(2), strict=True):
                renamed[f"{POSITIONS}{name}_proj.{kind}"] = part
    rename_old_layers(renamed, STACK.removesuffix("."), ())
    return renamed


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
    source, state, path, words = _read_source(checkpoint, dictionary)
    ours = todays_names(state["model"], ROBERTA_RULES)
    settings = _settings(state, ours, source, ROBERTA, "learned")
    separator = separates(recorded_settings(state, "task", source), source.parent)
    converted = neutral(settings, ours, words, path, source, separator=separator)
    warm_start(converted, position_encoding, seed)
    return converted


def read_official(checkpoint: str | Path, dictionary: str | Path | None = None) -> Converted:
    """Read a checkpoint of the authors' code.

    Raises:
        UsageError: the file is not such a checkpoint, or its contents do not fit.
    """
    source, state, path, words = _read_source(checkpoint, dictionary)
    ours = todays_names(state["model"], OFFICIAL_RULES)
    recorded = recorded_settings(state, "model", source)
    relative = recorded.get("rel_pos", f"{POSITIONS}relative_bias.weight" in ours)
    settings = _settings(state, ours, source, OFFICIAL, "tupe_r" if relative else "tupe_a")
    notes = []
    if heads := _complete_heads(ours):
        # The missing projection and its activation are the identity.
        settings["pooler_activation_fn"] = "linear"
        notes.append(f"{', '.join(heads)}: the missing dense projection is the identity here")
    converted = neutral(settings, ours, _with_more_symbols(words), path, source)
    converted.notes += notes
    converted.not_comparable = (
        "the authors' code is not installed; tests of this package compare with it"
    )
    return converted


def _read_source(
    checkpoint: str | Path, dictionary: str | Path | None
) -> tuple[Path, dict[str, Any], Path, Dictionary]:
    """The checkpoint's path and entries, and those of the dictionary, by default beside it."""
    source = find_checkpoint(Path(checkpoint))
    path = Path(dictionary or source.with_name(DICTIONARY))
    state = read_state(source)
    encoding = recorded_settings(state, "model", source).get("position_encoding", "learned")
    if encoding != "learned":
        raise CheckpointError(
            f"{source} is a checkpoint of this package, with {encoding}: leave out --from."
        )
    if not path.is_file():
        raise DataError(f"the dictionary {path} does not exist: give --dict FILE.")
    return source, state, path, read_dictionary(path)


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
        "position_encoding": encoding,
        "max_positions": len(positions) - unused,
        "layernorm_embedding": f"{STACK}layernorm_embedding.weight" in ours,
        "encoder_normalize_before": f"{STACK}layer_norm.weight" in ours,
    }


def _with_more_symbols(words: Dictionary) -> Dictionary:
    """The dictionary of the authors' code, whose own symbols come first."""
    tokens = words.symbols[words.nspecial :]
    counts = words.count[words.nspecial :]
    return dictionary_of([*MORE_SYMBOLS, *tokens], [1] * len(MORE_SYMBOLS) + counts)


def _complete_heads(ours: dict[str, Tensor]) -> list[str]:
    """Add RoBERTa's dense projection to the first release's heads, which lack it.

    Returns:
        Names of these heads.

    Raises:
        CheckpointError: only some heads lack it, but all share one activation.
    """
    heads = sorted({name.split(".")[1] for name in ours if name.startswith(CLASSIFIERS)})
    lacking = [head for head in heads if f"{CLASSIFIERS}{head}.dense.weight" not in ours]
    if lacking and lacking != heads:
        raise CheckpointError(
            f"the checkpoint lacks {CLASSIFIERS}{lacking[0]}.dense.weight, which other heads "
            "have: remove the parameters of this head."
        )
    for head in lacking:
        width = ours[f"{CLASSIFIERS}{head}.out_proj.weight"].size(1)
        ours[f"{CLASSIFIERS}{head}.dense.weight"] = torch.eye(width)
        ours[f"{CLASSIFIERS}{head}.dense.bias"] = torch.zeros(width)
    return lacking


def open_roberta(checkpoint: Path, converted: Converted, head: str | None) -> Opened | None:
    """Fairseq's own RoBERTa with the parameters of the checkpoint."""
    if converted.not_comparable:
        return None
    dictionary, _ = dictionary_for(converted)
    # As fairseq's task does.
    dictionary.add_symbol(MASK)
    arguments = all_arguments(from_config(converted.settings))
    model = RobertaModel.build_model(arguments, SimpleNamespace(source_dictionary=dictionary))
    state = read_checkpoint(find_checkpoint(checkpoint))["model"]
    register_heads(model, state)
    known = model.state_dict()
    model.load_state_dict(
        {n: v for n, v in state.items() if n in known or not SECOND_COPY.search(n)}
    )
    return Opened(outputs_of(model.eval(), head), model=model)


SUMMARY = "checkpoints of fairseq's RoBERTa, of 2019 or later"
register(Conversion("--from", ROBERTA, SUMMARY, read_roberta, open_roberta, source="CHECKPOINT"))
SUMMARY = "checkpoints of the authors' code, guolinke/TUPE"
register(Conversion("--from", OFFICIAL, SUMMARY, read_official, source="CHECKPOINT"))
