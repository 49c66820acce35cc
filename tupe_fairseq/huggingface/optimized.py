"""Encoders of transformers whose layers are computed by `TransformerStack`.

Each class here is a subclass of the class of the same name in transformers, and has its modules:
parameters, their names, the configuration and files stay. The stack has no parameters of its own:
before each pass, its modules are set to those that the encoder has then. What replaces a linear
layer or a norm of the encoder, such as an adapter or a quantized layer, is used.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.activations import ACT2FN
from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions

from ..attention import Layout, Padding
from ..base.errors import UsageError
from ..kernels.dropout import Dropout
from ..position.base import PositionEncoding, build_position_encoding
from ..transformer.config import StackConfig
from ..transformer.forward_pass import Batch, Pass
from ..transformer.padding_shift import PaddingShift
from .encoder import HuggingFaceStack, Record
from .padding import check_inputs

#: A module here and its name of a part, and the module of transformers with its name of the part.
Link = tuple[Any, str, Any, str]
OUTPUTS = ("output_hidden_states", "output_attentions")
#: Arguments of `forward` that the optimized encoders have besides their inputs. The Trainer gives
#: a number of items to heads, which pass it on.
SERVED = {*OUTPUTS, "use_cache", "return_dict", "num_items_in_batch"}


class Optimized(transformers.PreTrainedModel):
    """What the optimized encoders share."""

    #: By the names of `TransformerLayer`: the module of a layer that has the part, and its name.
    parts: ClassVar = {
        "self_attn.q_proj": ("attention.self", "query"),
        "self_attn.k_proj": ("attention.self", "key"),
        "self_attn.v_proj": ("attention.self", "value"),
        "self_attn.out_proj": ("attention.output", "dense"),
        "self_attn_layer_norm": ("attention.output", "LayerNorm"),
        "fc1": ("intermediate", "dense"),
        "fc2": ("output", "dense"),
        "final_layer_norm": ("output", "LayerNorm"),
    }

    #: Of the dropout probabilities: the module of a layer that has the dropout, and its name.
    dropouts: ClassVar = {
        "self_attn.dropout": ("attention.self", "dropout"),
        "dropout_module.p": ("output", "dropout"),
    }

    #: The part of the encoder that has the layers.
    body: ClassVar = "encoder"

    embeddings: Any
    #: Whether vectors at padding are computed as those at tokens, since a head reads them.
    keeps_padding = False
    #: In which the layers compute; "fp32" stands for that of the model.
    precision = "fp32"

    @classmethod
    def replacing(cls, model: Any) -> Any:
        """An encoder with the modules of this one."""
        encoder = cls.__new__(cls)
        encoder.__dict__.update(model.__dict__)
        encoder.build()
        return encoder

    @classmethod
    def why_not(cls, model: Any) -> str:
        """Why an encoder cannot be replaced, or an empty string."""
        if "forward" in model.__dict__:
            return "its forward has been replaced by another library"
        return cls.unsupported(model)

    @classmethod
    def unsupported(cls, model: Any) -> str:
        """Which part of the configuration is not supported, or an empty string."""
        config = model.config
        if config.is_decoder or config.add_cross_attention:
            return "it is a decoder"
        kind = getattr(config, "position_embedding_type", "absolute")
        if kind != "absolute":
            return f"position_embedding_type is {kind!r}"
        return ""

    @property
    def own_layers(self) -> Iterable[Any]:
        """The layers that the encoder has in transformers."""
        return self.encoder.layer

    def build(self) -> None:
        """Make the stack and its links."""
        config = self.config
        encoding = self.encoding(config.max_position_embeddings)
        own_layers = tuple(self.own_layers)
        # Dropouts are taken from the encoder's modules before each pass.
        settings = StackConfig(
            len(own_layers), config.intermediate_size, dropout=0.0, **self.stack_options()
        )
        with torch.device("meta"):
            stack = HuggingFaceStack(encoding, settings)
        # The input is normalised and dropped by the encoder's embeddings.
        stack.dropout_module = Dropout(0.0)
        layers: Iterable[Any] = stack.layers
        for layer in layers:
            layer._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False)
        # Not a submodule: its modules are the encoder's.
        self.__dict__["stack"] = stack
        self.__dict__["links"] = self.make_links(stack)
        self.__dict__["rates"] = self.make_rates(stack)
        self.__dict__["linked_layers"] = own_layers

    def keep(self, stack: HuggingFaceStack, precision: str) -> None:
        """Replace the stack by this one, which has its own parameters, for inference."""
        setattr(self, self.body, stack)
        self.precision = precision
        self.__dict__["stack"] = stack
        self.__dict__["links"] = []
        self.register_state_dict_pre_hook(_refuse)

    def encoding(self, longest: int) -> PositionEncoding:
        """The encoding for texts of at most this many tokens."""
        name, options = self.encoding_options()
        config = self.config
        return build_position_encoding(
            name, config.hidden_size, config.num_attention_heads, longest, **options
        )

    def encoding_options(self) -> tuple[str, dict[str, Any]]:
        """Name and options of the encoding; the embeddings add the positions of BERT."""
        return "none", {}

    def stack_options(self) -> dict[str, Any]:
        """Further settings of the stack."""
        return {"activation_fn": _activation(self.config.hidden_act)}

    def make_links(self, stack: HuggingFaceStack) -> list[Link]:
        """The parts of the stack that are parts of the encoder."""
        return self._link(stack, self.parts)

    def make_rates(self, stack: HuggingFaceStack) -> list[Link]:
        """The dropout probabilities of the stack, and the encoder's modules that have them."""
        return self._link(stack, self.dropouts)

    def _link(self, stack: HuggingFaceStack, parts: dict[str, tuple[str, str]]) -> list[Link]:
        return [
            (*_owner(layer, here), theirs.get_submodule(owner), name)
            for layer, theirs in zip(stack.layers, self.own_layers, strict=True)
            for here, (owner, name) in parts.items()
        ]

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **more: Any,
    ) -> Any:
        """As the class of transformers; it computes itself what the stack does not.

        That is: masks that are not B×T, caches and sources of decoders, and graphs that torch
        compiles, exports or traces.

        Raises:
            UsageError: an input has another shape, or converted layers cannot compute this.
        """
        inputs = {"input_ids": input_ids, "inputs_embeds": inputs_embeds}
        inputs.update(token_type_ids=token_type_ids, position_ids=position_ids)
        return self.compute(inputs, attention_mask, more)

    def compute(self, inputs: dict[str, Any], attention_mask: Any, more: dict[str, Any]) -> Any:
        """As `forward`, with the inputs of the embeddings by name."""
        if unserved := self._unserved(attention_mask, more):
            if self.precision != "fp32":
                raise UsageError(
                    f"layers in {self.precision} cannot compute {unserved}: use the model that "
                    "was given to optimize."
                )
            return super().forward(**inputs, attention_mask=attention_mask, **more)
        check_inputs(
            inputs["input_ids"],
            inputs["inputs_embeds"],
            attention_mask,
            inputs.get("token_type_ids"),
            getattr(self.config, "embedding_size", self.config.hidden_size),
        )
        x = self.embeddings(**inputs)
        record = Record(PaddingShift(), self.config, *(more.get(name) for name in OUTPUTS))
        padding = None if attention_mask is None else Padding.read(attention_mask == 0)
        batch, length = x.shape[:2]
        if padding is not None and (
            padding.leading or padding.scattered or self.keeps_padding or record.wants_weights
        ):
            # Padding stays where it is, hidden from all tokens.
            layout = Layout(batch, length, padding.mask)
        else:
            layout = Layout.of(padding, batch, length)
        last = self._run(x, layout, record)
        last = last.to(x.dtype)
        states = record.hidden_states(last)
        if states is not None:
            states = tuple(each.to(x.dtype) for each in states)
        output = self.output(last, hidden_states=states, attentions=record.attentions())
        wanted = more.get("return_dict")
        wanted = self.config.return_dict if wanted is None else wanted
        return output if wanted else output.to_tuple()

    def _run(self, x: Tensor, layout: Layout, record: Record) -> Tensor:
        """The last vectors, B×T×C, of embedded tokens."""
        stack = self.linked()
        stack.check_length(layout.length)
        x = layout.pack(x).to(stack.layers[0].final_layer_norm.weight.dtype)
        positions = stack.embed_positions
        # The encoding is no submodule, so its constants have not moved with the model.
        if any(constant.device != x.device for constant in positions.buffers()):
            positions.to(x.device)
        positions = positions.for_pass(layout.length, x.device)
        backend = "eager" if record.wants_weights else None
        prepared = stack.layers.prepare(positions, x, layout, backend=backend)
        return stack.run(Batch(x, layout, prepared), Pass(observe=record)).x

    def output(self, last: Tensor, **more: Any) -> Any:
        """What `forward` returns."""
        pooled = None if self.pooler is None else self.pooler(last)
        return BaseModelOutputWithPoolingAndCrossAttentions(
            last_hidden_state=last, pooler_output=pooled, **more
        )

    def _unserved(self, mask: Any, more: dict[str, Any]) -> str:
        """What the stack does not compute of these arguments, or an empty string."""
        asked = [name for name, value in more.items() if value is not None and name not in SERVED]
        if asked:
            return asked[0]
        if mask is not None and not (isinstance(mask, Tensor) and mask.dim() == 2):
            return "a mask whose shape is not batch × tokens"
        if torch.compiler.is_compiling() or torch.jit.is_tracing():
            return "graphs that are compiled, exported or traced"
        # Their parameters are not those of the stack.
        return "in replicas of nn.DataParallel" if hasattr(self, "_is_replica") else ""

    def linked(self) -> HuggingFaceStack:
        """The stack with the encoder's present modules and modes."""
        stack: HuggingFaceStack = self.stack
        if self.links and self.linked_layers != tuple(self.own_layers):
            raise UsageError(
                "layers were replaced after optimize: replace them in the model that it is given."
            )
        for here, name, theirs, part in self.links:
            module = theirs._modules.get(part)
            if module is None:
                here._parameters[name] = theirs._parameters[part]
            else:
                here._modules[name] = module
        if stack.training != self.training:
            stack.train(self.training)
        if self.training and self.precision == "fp32":
            for here, name, theirs, part in self.rates:
                # What replaces a dropout, such as nn.Identity, drops nothing.
                setattr(here, name, getattr(getattr(theirs, part), "p", 0.0))
            layers: Iterable[Any] = stack.layers
            for layer, theirs in zip(layers, self.own_layers, strict=True):
                layer.gradient_checkpointing = theirs.gradient_checkpointing
        return stack


def _refuse(encoder: Any, *_: Any) -> None:
    """Raise a UsageError; a hook called before the state dict of converted layers is built."""
    raise UsageError(
        f"layers in {encoder.precision} are for inference and cannot be saved: save the model "
        "that was given to optimize."
    )


def _owner(module: nn.Module, path: str) -> tuple[nn.Module, str]:
    """The module that has the part at this path, and the part's name."""
    owner, _, name = path.rpartition(".")
    return module.get_submodule(owner), name


def _activation(act: Any) -> Any:
    """The function of `hidden_act`, a name of transformers or a function."""
    if act == "gelu":
        # `TransformerLayer` knows this one by its function.
        return F.gelu
    return ACT2FN[act] if isinstance(act, str) else act
