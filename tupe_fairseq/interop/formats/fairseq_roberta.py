"""Checkpoints of fairseq's RoBERTa, of the fairseq of 2019 and of today's.

With `learned` positions the model computes the same; with any other encoding it is a warm start.
"""

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

from fairseq.models.roberta import RobertaModel

from ...checkpoints.migration import SECOND_COPY
from ...checkpoints.reading import read_checkpoint
from ...checkpoints.settings import recorded_settings
from ...position import POSITION_ENCODINGS
from .. import settings
from ..check import outputs_of
from ..conversion import Conversion, Forward, register
from ..dictionaries import check_size
from ..directory import read_source
from ..keys import Rule, Table, roberta_rules, to_ours
from ..models import EMBED_TOKENS, ENCODER, POSITIONS, Converted, build, register_heads, renamed
from ..warm_start import OPTIONS, warm_start

KIND = "fairseq-roberta"


def table(names: Iterable[str]) -> Table:
    """Rules for the names of a checkpoint: `names` decides which of the older names it uses."""
    names = list(names)
    top = "decoder." if any(name.startswith("decoder.") for name in names) else "encoder."
    joint = any(name.endswith("in_proj_weight") for name in names)
    old_norm = any(".emb_layer_norm." in name for name in names)
    theirs = f"{top}sentence_encoder."
    norm = "emb_layer_norm" if old_norm else "layernorm_embedding"
    return (
        Rule(f"{theirs}embed_tokens.weight", EMBED_TOKENS),
        Rule(f"{theirs}embed_positions.weight", POSITIONS),
        Rule(f"{theirs}{norm}.*", f"{ENCODER}layernorm_embedding.*"),
        Rule(f"{theirs}layer_norm.*", f"{ENCODER}layer_norm.*"),
        *roberta_rules(top, ENCODER, joint),
    )


def read(
    checkpoint: str | Path,
    dictionary: str | Path | None = None,
    position_encoding: str = "learned",
    seed: int = 1,
) -> Converted:
    """Read a stock RoBERTa.

    Any other encoding than `learned` is a warm start, with parameters from `seed`.

    Raises:
        UsageError: the file is not such a checkpoint, or its contents do not fit.
    """
    # An unknown name is an error before anything is read.
    POSITION_ENCODINGS[position_encoding]
    state, entries, path = read_source(checkpoint, dictionary)
    theirs = {
        n: value
        for n, value in state["model"].items()
        if not n.endswith(".version") and not SECOND_COPY.search(n)
    }
    rules = table(theirs)
    for rule in rules[:2]:
        settings.matrix(theirs, rule.theirs, checkpoint, KIND)
    recorded, ours = recorded_settings(state, "model", checkpoint), to_ours(theirs, rules)
    check_size(entries, len(ours[EMBED_TOKENS]), path)
    known = settings.of_roberta(recorded, ours, checkpoint, "learned")
    converted = renamed(theirs, rules, known, entries, checkpoint, KIND)
    return warm_start(converted, position_encoding, seed)


def outputs(checkpoint: Path, converted: Converted, head: str | None) -> Forward:
    """Fairseq's own RoBERTa with the parameters of the checkpoint."""
    ours = build(converted.settings, converted.entries, {})
    task = SimpleNamespace(source_dictionary=ours.encoder.dictionary)
    model = RobertaModel.build_model(ours.args, task)
    register_heads(model, converted.state)
    state, own = read_checkpoint(checkpoint)["model"], model.state_dict()
    model.load_state_dict(
        {n: v for n, v in state.items() if n in own or not SECOND_COPY.search(n)}
    )
    return outputs_of(model.eval(), head)


SUMMARY = "checkpoints of fairseq's RoBERTa, of 2019 or later"
register(Conversion("--from", KIND, SUMMARY, read, outputs, OPTIONS, source="CHECKPOINT"))
