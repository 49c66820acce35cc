"""`TupeForCausalLM`: the language model, and what `generate` needs of it."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from ..errors import ConfigurationError
from .cache import NAME, TupeCache
from .configuration import TupeConfig
from .modeling import EMBED_TOKENS
from .padding import check_shape, scored_labels, visible
from .with_head import TupeWithHead

#: Arguments of `generate` that every step takes.
STEPS = ("output_attentions", "output_hidden_states")
# By this, Trainer shifts the labels for its label smoothing.
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.setdefault(TupeConfig.model_type, "TupeForCausalLM")


class TupeForCausalLM(TupeWithHead, GenerationMixin):
    """`TupeModel` with a causal mask and an output layer without a bias.

    `generate` uses a KV cache (`TupeCache`), unless the batch has padding, the encoding does not
    decode token by token, or use_cache is False.
    """

    output_class = CausalLMOutputWithPast
    accepts_loss_kwargs = True
    _tied_weights_keys: ClassVar = {"lm_head.weight": EMBED_TOKENS}

    def __init__(self, config: TupeConfig):
        if not config.is_decoder:
            raise ConfigurationError(
                "TupeForCausalLM needs a configuration with is_decoder=True, which masks later "
                "tokens."
            )
        super().__init__(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        """False: `generate` takes the cache that `forward` returns, and makes none."""
        return False

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        past_key_values: TupeCache | None = None,
        attention_mask: Tensor | None = None,
        use_cache: bool | None = None,
        next_sequence_length: int | None = None,
        token_type_ids: Tensor | None = None,
        cache: TupeCache | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """The tokens that the cache does not hold, and the mask of all tokens."""
        past = past_key_values if cache is None else cache
        new = length = input_ids.size(1)
        if past is not None and (seen := past.get_seq_length()):
            # transformers 5 gives their number, 4 the mask of all tokens.
            if next_sequence_length is not None:
                new = next_sequence_length
            elif attention_mask is not None:
                new = attention_mask.size(1) - seen
        if attention_mask is None:
            # transformers 5 leaves out a mask of ones. Without a mask, a generated padding symbol
            # would be padding.
            attention_mask = torch.ones_like(input_ids)
        types = None if token_type_ids is None else token_type_ids[:, length - new :]
        return {
            "input_ids": input_ids[:, length - new :],
            "token_type_ids": types,
            "attention_mask": attention_mask,
            NAME: past,
            "use_cache": use_cache,
            **{name: more[name] for name in STEPS if name in more},
        }

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        return_dict: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        past_key_values: TupeCache | None = None,
        use_cache: bool | None = None,
        token_type_ids: Tensor | None = None,
        cache: TupeCache | None = None,
        **more: Any,
    ) -> Any:
        """Logits B×T×V of the next token; labels are input_ids, B×T.

        Padding has no part in the loss: neither its labels, nor those that it would predict.

        See `TupeModel.forward`, which gets ``more``, and `TupeWithHead.forward`. With the keyword
        `shift_labels`, its labels are those of the logits, and `labels` are not shifted. The
        signature lacks it: Trainer requires each argument whose name contains "label" in an
        evaluation.
        """
        shifted = more.pop("shift_labels", None)
        past = past_key_values if cache is None else cache
        if attention_mask is None and past is None:
            attention_mask = visible(input_ids, self.config.pad_token_id)
        more |= {NAME: past, "use_cache": use_cache, "token_type_ids": token_type_ids}
        out = self.tupe(input_ids, attention_mask, inputs_embeds, return_dict=True, **more)
        logits, loss = self.lm_head(out.last_hidden_state), None
        if (scored := labels if shifted is None else shifted) is not None:
            check_shape("labels", scored, logits.shape[:2])
            scored = scored_labels(scored, attention_mask, shifted is not None)
            loss = self.loss_function(
                logits,
                scored,
                self.config.vocab_size,
                num_items_in_batch=num_items_in_batch,
                shift_labels=None if shifted is None else scored,
            )
        values = {"loss": loss, "logits": logits, NAME: getattr(out, NAME)}
        return self.output(out, return_dict, **values)
