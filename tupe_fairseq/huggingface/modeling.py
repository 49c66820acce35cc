"""`TupeModel` and the base class of all models for transformers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from ..attention import Padding
from ..base.errors import ConfigurationError
from ..transformer.config import StackConfig
from ..transformer.forward_pass import Pass
from ..transformer.layer import set_epsilon
from ..transformer.layer_options import LayerOptions
from ..transformer.padding_shift import PaddingShift
from .configuration import TupeConfig
from .encoder import HuggingFaceStack, Record
from .padding import Read, check_inputs, for_each_row, read_mask, visible
from .positions import TRAINED, build_positions, resized, restore

#: The token embeddings in the state dict of a model with a head, which may tie them to its output.
EMBED_TOKENS = "tupe.embed_tokens.weight"
#: By fairseq's names; gelu is exact, not the approximation by tanh.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "relu": F.relu,
    "tanh": torch.tanh,
}


def stack_config(config: TupeConfig) -> StackConfig:
    """What the layers of a model read.

    Raises:
        ConfigurationError: hidden_act is unknown, or an option of layers is.
    """
    if config.hidden_act not in ACTIVATIONS:
        raise ConfigurationError(
            f"hidden_act is {config.hidden_act!r}, but must be one of: {', '.join(ACTIVATIONS)}."
        )
    return StackConfig(
        num_layers=config.num_hidden_layers,
        ffn_dim=config.intermediate_size,
        activation_fn=ACTIVATIONS[config.hidden_act],
        dropout=config.hidden_dropout_prob,
        attention_dropout=config.attention_probs_dropout_prob,
        activation_dropout=config.activation_dropout,
        normalize_before=config.normalize_before,
        layernorm_embedding=config.layernorm_embedding,
        attention_backend=config.attention_backend,
        token_types=config.type_vocab_size,
        layer_options=LayerOptions.of(config),
    )


class TupePreTrainedModel(PreTrainedModel):
    """Loading, saving and initialisation, as transformers' models have them."""

    config_class = TupeConfig
    base_model_prefix = "tupe"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    # Layers share what depends on positions, so they are on one device.
    _no_split_modules: ClassVar = ["HuggingFaceStack"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """RoBERTa's initialisation; that of positions follows in `initialize_weights`."""
        # Modules of other kinds, in encodings, keep their own.
        if isinstance(module, (nn.Linear, nn.Embedding, nn.LayerNorm, nn.RMSNorm)):
            super()._init_weights(module)

    def initialize_weights(self) -> None:
        """As transformers' method, which calls this for what was not loaded."""
        super().initialize_weights()
        restore(self.base_model.encoder, self.config, self._init_weights)

    def _set_gradient_checkpointing(
        self,
        enable: bool = True,
        gradient_checkpointing_func: Callable = checkpoint,
        **kwargs: Any,
    ) -> None:
        """As transformers' method, but always with `use_reentrant=False`.

        Layers share tensors that need gradients, which reentrant checkpoints do not support.
        """
        function = partial(gradient_checkpointing_func, use_reentrant=False)
        super()._set_gradient_checkpointing(enable, function, **kwargs)

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        """As transformers' method; encodings with values for each token are resized too."""
        embeddings = super().resize_token_embeddings(*args, **kwargs)
        encoder = self.base_model.encoder
        if encoder.embed_positions.shape.vocab_size != self.config.vocab_size:
            encoder.embed_positions = resized(encoder, self.config)
        return embeddings

    def returned(self, output: Any, return_dict: bool | None) -> Any:
        """An output as an object, or as a tuple if that is requested."""
        wanted = self.config.return_dict if return_dict is None else return_dict
        return output if wanted else output.to_tuple()


class TupeModel(TupePreTrainedModel):
    """Token embeddings and `TransformerStack`.

    Raises:
        UsageError: the configuration has an invalid value.
    """

    def __init__(self, config: TupeConfig):
        super().__init__(config)
        config.check_numbers()
        self.embed_tokens = nn.Embedding(
            config.vocab_size, config.hidden_size, config.pad_token_id
        )
        self.encoder = HuggingFaceStack(build_positions(config), stack_config(config))
        if config.quant_noise_pq > 0:
            width = config.hidden_size
            self.encoder.quant_noise = nn.Linear(width, width, bias=False)
        own = self.encoder.embed_positions.token_scale
        self.embedding_scale = own(config.hidden_size, config.embedding_scale)
        if self.encoder.embed_positions.continues_by_distance:
            # The trained length, which stays when a loaded model gets a larger one.
            config.position_options.setdefault(TRAINED, config.max_position_embeddings)
        set_epsilon(self.encoder, config.layer_norm_eps)
        self.encoder.length_limit = ("max_position_embeddings", "shorten it (truncation=True)")
        self.gradient_checkpointing = False
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        token_type_ids: Tensor | None = None,
        read: Read | None = None,
    ) -> BaseModelOutput | tuple[Tensor, ...]:
        """Encode.

        Args:
            input_ids: B×T.
            attention_mask: B×T or 1×T, 0 at padding, another number at tokens; without it, tokens
                with pad_token_id are padding. Positions count unmasked tokens.
            inputs_embeds: B×T×C, used in place of the token embeddings.
            output_attentions: also return the weights of each layer, B×H×T×T, by eager attention:
                in the dtype of the layers, as in transformers, after a softmax in fp32.
            output_hidden_states: also return the first layer's input and each layer's output.
            return_dict: False for a tuple.
            token_type_ids: B×T or 1×T, of config.type_vocab_size types; None: all have type 0.
            read: rows and columns of the tokens whose last vectors are read, M each; None: all.

        Returns:
            last_hidden_state, B×T×C, or M×C with `read`; vectors at padding have no meaning.

        Raises:
            UsageError: the inputs cannot be used.
        """
        x = input_ids if inputs_embeds is None else inputs_embeds
        attention_mask = for_each_row(attention_mask, x)
        token_type_ids = for_each_row(token_type_ids, x)
        check_inputs(
            input_ids, inputs_embeds, attention_mask, token_type_ids, self.config.hidden_size
        )
        if attention_mask is None:
            attention_mask = visible(input_ids, self.config.pad_token_id)
        shift = read_mask(attention_mask)
        record = Record(shift, self.config, output_hidden_states, output_attentions)
        part = None if record.wants_states else read
        with _loaded(self.encoder):
            x = self._encode(input_ids, inputs_embeds, record, token_type_ids, part)
        states = record.hidden_states(x)
        x = x if part is read else x[read]
        output = BaseModelOutput(x, states, record.attentions())
        return self.returned(output, return_dict)

    def _encode(
        self,
        tokens: Tensor | None,
        vectors: Tensor | None,
        record: Record,
        types: Tensor | None,
        read: Read | None,
    ) -> Tensor:
        """The last hidden states, B×T×C or M×C."""
        shift = record.shift
        weights = record.wants_weights
        x = self.embed_tokens(tokens) if vectors is None else vectors
        x = self.embedding_scale * x
        x = shift.to_end(x)
        tokens = None if tokens is None else shift.to_end(tokens)
        types = None if types is None else shift.to_end(types)
        padding = shift.padding
        if weights and padding is not None:
            # Keeps the sequences of a batch in their order.
            padding = Padding(padding.mask)
        eager = weights or self.config._attn_implementation == "eager"
        backend = "eager" if eager else self.config.attention_backend
        in_batch = None if read is None else read[0] * x.size(1) + _columns(read, shift)
        wanted = Pass(tokens, types, backend=backend, read=in_batch, observe=record)
        x = self.encoder.encode(x, padding, wanted).x
        return shift.back(x) if read is None else x

    def before_lm_head(
        self,
        x: Tensor,
        attention_mask: Tensor | None,
        read: Read | None = None,
    ) -> Tensor:
        """Positions that enter between the last layer and the language modeling head.

        Args:
            x: last hidden states, B×T×C or M×C.
            attention_mask: as in `forward`.
            read: as in `forward`.
        """
        positions = self.encoder.embed_positions
        if not positions.uses("before_lm_head"):
            return x
        shift = read_mask(attention_mask)
        with _loaded(self.encoder):
            if read is not None:
                return positions.before_lm_head(x, _columns(read, shift))
            return shift.back(positions.before_lm_head(shift.to_end(x)))


def _columns(read: Read, shift: PaddingShift) -> Tensor:
    """The columns of tokens once padding has been moved."""
    rows, columns = read
    return columns if shift.targets is None else shift.targets[rows, columns]


@contextmanager
def _loaded(encoder: HuggingFaceStack) -> Iterator[None]:
    """Load the parameters of positions that accelerate has offloaded, and offload them afterwards.

    accelerate loads a module's parameters where it is called, but encodings have several hooks.
    """
    first = next(encoder.parameters(), None)
    # One parameter, because this is called for each batch.
    if torch.compiler.is_compiling() or first is None or not first.is_meta:
        yield
        return
    positional = [encoder.embed_positions, *filter(None, encoder.layers.terms())]
    modules: list[Any] = [module for part in positional for module in part.modules()]
    hooks = [(module, module._hf_hook) for module in modules if hasattr(module, "_hf_hook")]
    for module, hook in hooks:
        hook.pre_forward(module)
    try:
        yield
    finally:
        for module, hook in hooks:
            hook.post_forward(module, None)
