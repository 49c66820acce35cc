"""`tupe_a` and `tupe_r` with their positional term folded into values by distance.

The written directory has the encoding `toeplitz`: a value for each head and distance, and one for
an untied [CLS], in place of TUPE's table and projections. All other parameters stay. It reads any
length (a larger max_positions), and training changes the values themselves.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch

from ...checkpoints.mismatch import differences
from ...errors import CheckpointError, ConfigurationError
from ...position import POSITION_ENCODINGS
from ..conversion import Conversion, register
from ..directory import write as write_directory
from ..models import Converted, build, options_of
from ..settings import known_settings

KIND = "toeplitz"
Far = Annotated[
    int,
    "distance from which all distances share one value (default: as recorded, or half of the "
    "positions)",
]
Slope = Annotated[
    float, "factor of ln(distance / far), which lowers that value (default: as recorded)"
]
#: Why `--check` compares nothing.
NOT_COMPARABLE = (
    "pairs of trained positions get the mean of their distance too; in TUPE each has its own score"
)


def write(
    converted: Converted,
    out: Path,
    *,
    toeplitz_far: Far | None = None,
    toeplitz_slope: Slope | None = None,
) -> None:
    """Write a directory of this package with the encoding `toeplitz`.

    Raises:
        UsageError: the model has another encoding, or the distance is not among the trained ones.
    """
    given = {"toeplitz_far": toeplitz_far, "toeplitz_slope": toeplitz_slope}
    settings = known_settings(converted.settings, converted.family)
    settings |= {name: value for name, value in given.items() if value is not None}
    encoding = settings["position_encoding"]
    if not POSITION_ENCODINGS[encoding].continues_by_distance:
        able = [name for name, cls in POSITION_ENCODINGS.items() if cls.continues_by_distance]
        raise ConfigurationError(
            f"--to toeplitz folds the term of absolute positions that {', '.join(able)} have, but "
            f"the model's --position-encoding is {encoding!r}."
        )
    dictionary = (converted.folder or Path()) / "dict.txt"
    write_directory(folded(converted, settings), out, dictionary)
    converted.not_comparable = NOT_COMPARABLE


@torch.no_grad()
def folded(converted: Converted, settings: dict[str, Any]) -> Converted:
    """The model with the encoding `toeplitz`; `converted` gets a note.

    Raises:
        UsageError: the parameters do not fit the settings.
    """
    family, state = converted.family, converted.state
    model = build(settings, converted.dictionary, state, family)
    if found := differences(state, model.state_dict()):
        raise CheckpointError(
            f"the model is not a {family.model} checkpoint; parameters: {found}."
        )
    model.load_state_dict(state)
    prefix = f"{family.stack}embed_positions."
    tupe: Any = model.get_submodule(prefix[:-1])
    values = tupe.folded()
    converted.notes.append(
        f"{sum(p.numel() for p in tupe.parameters()):,} parameters of "
        f"{settings['position_encoding']} became {values.numel():,}: {len(values)} heads, "
        f"--toeplitz-far {tupe.far}, --toeplitz-slope {tupe.slope}"
    )
    left_out = {*options_of(settings), "extend_positions"}
    kept = {name: value for name, value in settings.items() if name not in left_out}
    own = {"tie_cls": not tupe.untie_cls, "toeplitz_far": tupe.far, "toeplitz_slope": tupe.slope}
    others = {name: value for name, value in state.items() if not name.startswith(prefix)}
    return replace(
        converted,
        settings={**kept, "position_encoding": KIND, **own},
        state={**others, f"{prefix}weight": values},
    )


SUMMARY = "this package's encoding toeplitz, a value for each distance, from tupe_a or tupe_r"
register(Conversion("--to", KIND, SUMMARY, write))
