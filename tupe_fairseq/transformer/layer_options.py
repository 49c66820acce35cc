"""The options of layers: what a user can set of a layer besides sizes, dropout and positions.

Configurations for transformers read this file, also where there is no torch.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from ..base.errors import ConfigurationError
from ..base.options import Mark, declared_options

#: Values of `gated_ffn`.
GATES = ("geglu", "swiglu")
#: Values of `norm`.
NORMS = ("layer", "rms")


@dataclass(frozen=True, kw_only=True)
class LayerOptions:
    """Options of layers. To add one, add a field here and read it in `TransformerLayer`.

    Flags, hydra's keys, settings of `TupeConfig` and conversions follow from the fields.

    Raises:
        ConfigurationError: a value is unknown or has another type.
    """

    gated_ffn: Annotated[
        str | None,
        "feed-forward blocks with a gate, in place of --activation-fn: `geglu` or `swiglu` "
        "(Shazeer 2020)",
        Mark.FIXED,
    ] = None
    norm: Annotated[
        str, "norms of layers: `layer` for LayerNorm, `rms` for RMSNorm", Mark.FIXED
    ] = "layer"
    norm_bias: Annotated[bool, "LayerNorms have a bias", Mark.FIXED] = True
    attention_bias: Annotated[bool, "projections of attention have a bias", Mark.FIXED] = True
    ffn_bias: Annotated[bool, "projections of feed-forward blocks have a bias", Mark.FIXED] = True
    # Of ModernBERT, whose input is normalised already.
    first_attention_norm: Annotated[
        bool, "in pre-LN models, the first layer has a norm before attention", Mark.FIXED
    ] = True

    def __post_init__(self) -> None:
        for option in declared_options(LayerOptions):
            option.check(getattr(self, option.name))
        if self.gated_ffn not in (None, *GATES):
            raise ConfigurationError(
                f"--gated-ffn is {self.gated_ffn!r}, but must be one of: {', '.join(GATES)}; "
                "leave it out for no gate."
            )
        if self.norm not in NORMS:
            raise ConfigurationError(
                f"--norm is {self.norm!r}, but must be one of: {', '.join(NORMS)}."
            )

    @classmethod
    def of(cls, settings: Any) -> "LayerOptions":
        """The options among the attributes of `settings`."""
        return cls(**{each.name: getattr(settings, each.name) for each in declared_options(cls)})


#: A layer of BERT.
USUAL = LayerOptions()
