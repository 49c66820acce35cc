"""Keys and values of earlier tokens in `generate`: the same outputs as without them."""

import math

import pytest
import torch

from tests.decoder.samples import OPTIONS as DECODERS
from tests.huggingface.samples import LAYERS, WORDS, causal_lm, every_decoder, tokens
from tests.tolerances import assert_close

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from tupe_fairseq import UsageError  # noqa: E402
from tupe_fairseq.huggingface import TupeModel  # noqa: E402

#: Those of decoders, with an untied [CLS].
OPTIONS = DECODERS | {"tupe_r": {**DECODERS["tupe_r"], "tie_cls": False}}
#: One for each way in which positions enter, and what the cache must then keep.
SEARCHED = (
    *("cnn", "complex_order", "fox", "pope", "relative_bank", "rope", "shaw"),
    *("t5", "tupe_r", "transformer_xl", "urpe"),
)


def model(name: str, **changes):
    return causal_lm(name, position_options=OPTIONS.get(name, {}), **changes)


def ids() -> torch.Tensor:
    """Two texts of 20 tokens."""
    return tokens((20, 20))


def in_parts(lm, *sizes, **given):
    """Logits and hidden states of parts of a text, the first tokens together."""
    past, outputs = None, []
    for part in torch.arange(20).split(sizes):
        own = {name: value[:, part] for name, value in given.items()}
        more = {"past_key_values": past, "use_cache": True, "output_hidden_states": True}
        outputs.append(lm(ids()[:, part], **own, **more))
        past = outputs[-1].past_key_values
    assert past.get_seq_length() == 20
    states = zip(*(out.hidden_states for out in outputs), strict=True)
    return torch.cat([out.logits for out in outputs], 1), [torch.cat(each, 1) for each in states]


@every_decoder
@pytest.mark.parametrize("normalize_before", [False, True])
@torch.no_grad()
def test_logits_and_states(name, normalize_before):
    """Of parts of a text: the first together, then one token, then several."""
    lm = model(name, normalize_before=normalize_before, attention_window=6, global_every=2)
    expected = lm(ids(), output_hidden_states=True)
    logits, states = in_parts(lm, 7, 1, 3, 9)
    assert_close(logits, expected.logits)
    for actual, other in zip(states, expected.hidden_states, strict=True):
        assert_close(actual, other)


@torch.no_grad()
def test_token_types():
    lm = model("rope", type_vocab_size=2)
    types = torch.randint(2, (2, 20), generator=torch.Generator().manual_seed(0))
    for given in ({}, {"token_type_ids": types}):
        assert_close(in_parts(lm, 7, 1, 12, **given)[0], lm(ids(), **given).logits)


@pytest.mark.parametrize("name", SEARCHED)
@pytest.mark.parametrize("beams", [1, 3])
def test_generated_texts(name, beams, monkeypatch):
    """Greedy and beam search read the new tokens alone, and find the same as without a cache."""
    lm, read = model(name), []
    lm.generation_config.eos_token_id = None
    forward = TupeModel.forward

    def counted(self, input_ids, *args, **kwargs):
        read.append(input_ids.size(1))
        return forward(self, input_ids, *args, **kwargs)

    monkeypatch.setattr(TupeModel, "forward", counted)
    found = {}
    for use_cache in (True, False):
        read.clear()
        found[use_cache] = lm.generate(
            ids()[:, :5],
            num_beams=beams,
            num_return_sequences=beams,
            max_new_tokens=12,
            do_sample=False,
            use_cache=use_cache,
        )
        assert read == ([5] + [1] * 11 if use_cache else list(range(5, 17)))
    assert torch.equal(found[True], found[False])


class Padding(transformers.LogitsProcessor):
    """Chooses <pad> as the eighth token."""

    def __call__(self, input_ids, scores):
        if input_ids.size(1) == 7:
            scores[:, 1] = math.inf
        return scores


def test_a_generated_padding_symbol_is_a_token():
    """It is visible to later tokens, with a cache and without."""
    lm = model("transformer_xl")
    lm.generation_config.eos_token_id = None
    choice = {"do_sample": False, "max_new_tokens": 12, "logits_processor": [Padding()]}
    found, expected = (lm.generate(ids()[:, :5], use_cache=use, **choice) for use in (True, False))
    assert found[0, 7] == 1
    assert torch.equal(found, expected)


@torch.no_grad()
def test_attention_weights():
    lm = model("tupe_r")
    expected = lm(ids(), output_attentions=True).attentions
    past = lm(ids()[:, :18], use_cache=True).past_key_values
    lm(ids()[:, 18:19], past_key_values=past)
    found = lm(ids()[:, 19:], past_key_values=past, output_attentions=True).attentions
    assert len(found) == LAYERS
    for actual, other in zip(found, expected, strict=True):
        assert_close(actual, other[:, :, 19:])
    with pytest.raises(UsageError, match="output_attentions needs one token at a time"):
        lm(ids()[:, :2], past_key_values=past, output_attentions=True)


@torch.no_grad()
def test_input_vectors():
    lm = model("cnn")
    words = lm.tupe.embed_tokens(ids())
    out = lm(inputs_embeds=words[:, :8], use_cache=True)
    found = lm(ids()[:, 8:], past_key_values=out.past_key_values).logits
    assert_close(found, lm(ids()).logits[:, 8:])


def test_a_conversation_goes_on():
    """`generate` with the cache of an earlier call, and with all tokens or the new ones alone."""
    lm = model("rope")
    lm.generation_config.eos_token_id = None
    choice = {"do_sample": False, "max_new_tokens": 4}
    expected = lm.generate(ids()[:, :10], **choice)
    for first in (0, 6):
        past = lm(ids()[:, :6], use_cache=True).past_key_values
        mask = torch.ones(2, 10, dtype=torch.int64)
        given = {"past_key_values": past, "attention_mask": mask}
        found = lm.generate(ids()[:, first:10], **given, **choice)
        assert torch.equal(found, expected[:, first:])


@torch.no_grad()
def test_no_cache_where_it_would_be_wrong():
    """Padding, keys that change with the length, recomputed layers, encoders."""
    lm = model("rope")
    assert lm(tokens((20, 9)), use_cache=True).past_key_values is None
    assert lm(ids()).past_key_values is None
    scaling = {"rope_scaling": "dynamic", "rope_scaling_factor": 2.0}
    dynamic = causal_lm("rope", position_options=scaling)
    assert dynamic(ids(), use_cache=True).past_key_values is None
    lm.gradient_checkpointing_enable()
    assert lm.train()(ids(), use_cache=True).past_key_values is None
    prompts = torch.ones(2, 9, dtype=torch.int64)
    prompts[0, 3:], prompts[1] = ids()[0, :6], ids()[1, :9]
    lm.eval().generation_config.eos_token_id = None
    found = lm.generate(prompts, attention_mask=prompts.ne(1), do_sample=False, max_new_tokens=4)
    alone = lm.generate(ids()[:1, :6], do_sample=False, max_new_tokens=4)
    assert torch.equal(found[:1, 3:], alone)


@torch.no_grad()
def test_refusals():
    lm = model("t5")
    past = lm(ids(), use_cache=True).past_key_values
    with pytest.raises(UsageError, match="25 tokens, but max_position_embeddings is 24"):
        lm(ids()[:, :5], past_key_values=past)
    with pytest.raises(UsageError, match="a sequence has no tokens"):
        lm(ids()[:, :0], past_key_values=past)
    with pytest.raises(UsageError, match="cannot be used with padding"):
        lm(ids()[:, :1], torch.eye(2, 21), past_key_values=past)
    with pytest.raises(UsageError, match="is a DynamicCache, but must be what this model"):
        lm(ids(), past_key_values=transformers.DynamicCache())
    with pytest.raises(UsageError, match="assisted generation is not supported"):
        past.crop(3)
    assert WORDS > past.get_seq_length() == 20


@torch.no_grad()
def test_states_and_weights_of_generated_texts():
    lm = model("rope")
    given = {"max_new_tokens": 3, "min_new_tokens": 3, "return_dict_in_generate": True}
    out = lm.generate(ids(), output_attentions=True, output_hidden_states=True, **given)
    assert len(out.attentions) == len(out.hidden_states) == 3
    assert [each[0].shape[2:] for each in out.attentions] == [(20, 20), (1, 21), (1, 22)]
    assert [each[-1].size(1) for each in out.hidden_states] == [20, 1, 1]
