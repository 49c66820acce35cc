"""Checkpoints of fairseq's RoBERTa, of the fairseq of 2019 and of today's.

With `learned` positions the model computes the same; with any other encoding it is a warm start.
"""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

from fairseq.models.roberta import RobertaModel
from torch import Tensor

from ...checkpoints.migration import SECOND_COPY, rename_old_layers
from ...checkpoints.reading import read_checkpoint
from ...checkpoints.settings import recorded_settings
from ...position import POSITION_ENCODINGS
from .. import settings
from ..check import outputs_of
from ..conversion import Conversion, Forward, register
from ..dictionaries import check_size
from ..directory import read_source
from ..models import EMBED_TOKENS, ENCODER, POSITIONS, Converted, build, imported, register_heads
from ..warm_start import OPTIONS, warm_start

KIND = "fairseq-roberta"


def todays_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters by today's names; in 2019, the encoder was a decoder."""
    found = {}
    for name, value in state.items():
        if name.startswith("decoder."):
            name = name.replace("decoder.", "encoder.", 1)
        found[name.replace(".emb_layer_norm.", ".layernorm_embedding.")] = value
    rename_old_layers(found, ENCODER.removesuffix("."), ())
    return found


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
    ours = todays_names(state["model"])
    for name in (EMBED_TOKENS, POSITIONS):
        settings.matrix(ours, name, checkpoint, KIND)
    check_size(entries, len(ours[EMBED_TOKENS]), path)
    recorded = recorded_settings(state, "model", checkpoint)
    known = settings.of_roberta(recorded, ours, checkpoint, "learned")
    return warm_start(imported(ours, known, entries, checkpoint, KIND), position_encoding, seed)


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
