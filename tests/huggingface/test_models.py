"""What users of transformers expect of a model, for every encoding.

The assertions are those of transformers' own tests of models; they also run without fairseq:
`python -m pytest --noconftest tests/huggingface/test_models.py`.
"""

import pytest
import torch

from tests.huggingface.samples import (
    CLASSES,
    HEADS,
    IN_ENCODERS,
    LAYERS,
    LENGTH,
    SEEN,
    WORDS,
    at_tokens,
    build,
    config,
    every_encoding,
    every_model,
    ids_for,
    labelled,
    masked_lm,
    tokens,
)
from tests.tolerances import assert_close, assert_gradients_close

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from safetensors.torch import load_file, save_file  # noqa: E402
from transformers.modeling_layers import GradientCheckpointingLayer  # noqa: E402

from tupe_fairseq.huggingface import TupeForMaskedLM  # noqa: E402


@every_model
@torch.no_grad()
def test_saves_and_loads(kind, name, tmp_path):
    """In several files, with equal outputs, and in half precision equal to a halved model."""
    model = build(kind, name)
    model.save_pretrained(tmp_path, max_shard_size="10KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    auto = getattr(transformers, kind.__name__.replace("Tupe", "AutoModel"))
    again = auto.from_pretrained(tmp_path).eval()
    assert type(again) is kind
    assert again.state_dict().keys() == model.state_dict().keys()
    first = labelled(model)
    second = labelled(model)
    loaded = labelled(again)
    assert torch.equal(at_tokens(first[1]), at_tokens(second[1]))
    assert_close(at_tokens(loaded[1]), at_tokens(first[1]))
    assert_close(loaded.loss, first.loss)
    halved = kind.from_pretrained(tmp_path, dtype=torch.bfloat16).eval()
    expected = labelled(model.bfloat16())[1]
    assert expected.dtype == torch.bfloat16
    assert_close(at_tokens(labelled(halved)[1]), at_tokens(expected))
    model.config.output_hidden_states = True
    assert len(labelled(model, return_dict=False)) == len(first) + 1
    model.config.return_dict = False
    assert len(labelled(model)) == len(first) + 1


@pytest.mark.parametrize("name", ["tupe_a", "tupe_r"])
@torch.no_grad()
def test_tupe_beyond_the_trained_length(name, tmp_path):
    """Short texts stay bit-identical, and the longer model saves and loads as it is."""
    model = masked_lm(name)
    model.save_pretrained(tmp_path / "short")
    longer = TupeForMaskedLM.from_pretrained(
        tmp_path / "short", max_position_embeddings=100, extend_positions="toeplitz"
    ).eval()
    assert torch.equal(longer(tokens()).logits, model(tokens()).logits)
    ids = tokens((100, 30))
    output = longer(ids).logits
    assert output.isfinite().all()
    assert_close(longer(ids[1:, :30]).logits, output[1:, :30])
    longer.save_pretrained(tmp_path / "long")
    again = TupeForMaskedLM.from_pretrained(tmp_path / "long").eval()
    assert torch.equal(again(ids).logits, output)


@torch.no_grad()
def test_cls_sees_all_and_is_seen_beyond_the_window():
    """On texts padded on either side; one layer of window 1."""
    model = masked_lm("tupe_r", attention_window=1, num_hidden_layers=1)
    for mask in ([1] * 9, [1] * 7 + [0] * 2, [0] * 2 + [1] * 7):
        places = [place for place, shown in enumerate(mask) if shown]
        for changed in range(len(places)):
            ids = torch.full((2, 9), 5)
            ids[1, places[changed]] = 6
            # Each text alone: rows of one batch may be rounded differently.
            one, other = (
                model(text[None], attention_mask=torch.tensor([mask])).logits[0, places]
                for text in ids
            )
            seen = one.ne(other).any(-1)
            expected = [abs(i - changed) <= 1 or 0 in (i, changed) for i in range(len(places))]
            assert seen.tolist() == expected


@every_encoding
@torch.no_grad()
def test_states_and_weights(name):
    model = masked_lm(name)
    assert model.config._attn_implementation == "sdpa"
    expected = model(tokens()).logits
    out = model(tokens(), output_hidden_states=True, output_attentions=True)
    assert_close(out.logits[SEEN], expected[SEEN])
    assert [tuple(state.shape) for state in out.hidden_states] == [(3, LENGTH, 32)] * (LAYERS + 1)
    last = model.tupe(tokens()).last_hidden_state
    assert_close(out.hidden_states[-1][SEEN], last[SEEN])
    assert [tuple(w.shape) for w in out.attentions] == [(3, HEADS, LENGTH, LENGTH)] * LAYERS
    for weights in out.attentions:
        assert_close(weights.sum(-1), torch.ones(3, HEADS, LENGTH))
        hidden = weights.transpose(2, 3).transpose(1, 2)[~SEEN]
        assert not hidden.any(), "padding is attended to"
    model.set_attn_implementation("eager")
    again = model(tokens(), output_attentions=True).attentions
    assert all(torch.equal(*pair) for pair in zip(again, out.attentions, strict=True))
    left = tokens((LENGTH,))
    mask = torch.ones(1, LENGTH)
    left[:, 5:] = tokens((19,))
    mask[:, :5] = 0
    shifted = model(left, attention_mask=mask, output_attentions=True)
    alone = model(tokens((19,)), output_attentions=True)
    assert_close(shifted.attentions[1][:, :, 5:, 5:], alone.attentions[1])


@every_encoding
@torch.no_grad()
def test_embeddings_in_place_of_ids(name):
    model = masked_lm(name)
    vectors = model.get_input_embeddings()(tokens())
    if name == "complex_order":
        with pytest.raises(ValueError, match="ids"):
            model(inputs_embeds=vectors, attention_mask=SEEN.long())
        return
    out = model(inputs_embeds=vectors, attention_mask=SEEN.long()).logits
    assert torch.equal(out[SEEN], model(tokens()).logits[SEEN])


@every_model
@torch.no_grad()
def test_the_vocabulary_grows_and_shrinks(kind, name, tmp_path):
    """Outputs for known words stay; those of masked and next words get columns."""
    model = build(kind, name)
    ids = ids_for(kind).clamp(max=WORDS - 11)
    before = model(ids)[0]
    for size in (WORDS + 7, WORDS - 10):
        model.resize_token_embeddings(size)
        assert model.config.vocab_size == model.get_input_embeddings().num_embeddings == size
        out = model(ids)[0]
        kept = min(size, WORDS)
        assert_close(at_tokens(out)[..., :kept], at_tokens(before)[..., :kept])
        if hasattr(model, "lm_head"):
            assert out.shape[-1] == size
            assert model.get_output_embeddings().weight is model.tupe.embed_tokens.weight
    model.save_pretrained(tmp_path)
    assert_close(at_tokens(kind.from_pretrained(tmp_path).eval()(ids)[0]), at_tokens(out))


@pytest.mark.parametrize("name", ["rope", "tupe_r", "complex_order"])
def test_a_grown_model_stays_where_it_was_and_frozen(name):
    """Constants too are on the device of the model; parameters of positions have its dtype."""
    model = TupeForMaskedLM(config(name)).to("meta", torch.bfloat16)
    positions = model.tupe.encoder.embed_positions
    frozen = dict(positions.requires_grad_(False).named_parameters())
    model.resize_token_embeddings(WORDS + 3, mean_resizing=False)
    assert {buffer.device.type for buffer in model.buffers()} <= {"meta"}
    assert model.tupe.encoder.embed_positions is not positions
    grown = dict(model.tupe.encoder.embed_positions.named_parameters())
    assert grown.keys() == frozen.keys()
    for parameter in grown.values():
        assert (parameter.device.type, parameter.dtype) == ("meta", torch.bfloat16)
        assert not parameter.requires_grad


WAYS = (None, {"use_reentrant": False}, {"use_reentrant": True})


@pytest.mark.parametrize(
    ("kind", "name", "options"),
    [
        *((kind, "tupe_r", options) for kind in CLASSES for options in WAYS),
        *((TupeForMaskedLM, name, None) for name in IN_ENCODERS if name != "tupe_r"),
    ],
)
def test_gradient_checkpointing(kind, name, options):
    """Each layer runs twice; the gradients, of what layers share too, are the same."""
    gradients = []
    counts = []
    for checkpointing in (False, True):
        runs: list[None] = []
        model = build(kind, name).train()
        # Encodings that draw positions draw the same.
        torch.manual_seed(0)
        if checkpointing:
            model.gradient_checkpointing_enable(options)
        assert model.is_gradient_checkpointing == checkpointing
        layers = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
        assert [layer.gradient_checkpointing for layer in layers] == [checkpointing] * LAYERS
        for layer in layers:
            layer.self_attn.register_forward_hook(lambda *_, runs=runs: runs.append(None))
        labelled(model).loss.backward()
        named = model.named_parameters()
        gradients.append({name: p.grad for name, p in named if p.grad is not None})
        counts.append(len(runs))
    assert_gradients_close(*gradients, torch.float32)
    assert counts == [LAYERS, 2 * LAYERS]


@every_encoding
def test_new_parameters_are_initialised(name, tmp_path):
    """Those of a head when a masked LM becomes a classifier; nothing that was loaded changes."""
    model = masked_lm(name)
    model.save_pretrained(tmp_path)
    torch.manual_seed(0)
    auto = transformers.AutoModelForSequenceClassification
    classifier = auto.from_pretrained(tmp_path, num_labels=3)
    own = model.tupe.state_dict()
    assert all(torch.equal(own[key], v) for key, v in classifier.tupe.state_dict().items())
    head = classifier.classifier
    assert 0.01 < head.dense.weight.std() < 0.03
    assert not head.dense.bias.any()
    with torch.no_grad():
        states = model.tupe(tokens()).last_hidden_state[:, 0]
        assert_close(classifier.eval()(tokens()).logits, head(states))


@every_encoding
def test_positions_that_a_file_lacks_start_as_in_a_new_model(name, tmp_path):
    """transformers 5 builds models without values; what it does not load would be garbage."""
    masked_lm(name).save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    parts = ("embed_positions", "layer_terms")
    whole = load_file(path)
    kept = {n: v for n, v in whole.items() if not any(part in n for part in parts)}
    save_file(kept, path, metadata={"format": "pt"})
    loaded = TupeForMaskedLM.from_pretrained(tmp_path).state_dict()
    one, other = (TupeForMaskedLM(config(name)).state_dict() for _ in range(2))
    assert kept.keys() == loaded.keys() & kept.keys()
    assert all(torch.equal(loaded[n], v) for n, v in kept.items())
    for n in whole.keys() - kept.keys():
        if torch.equal(one[n], other[n]):
            assert torch.equal(loaded[n], one[n]), n
        else:
            assert 0.3 < loaded[n].std() / one[n].std() < 3, n
            assert not torch.equal(loaded[n], whole[n]), n


@every_encoding
def test_new_models_start_as_in_fairseq(name):
    """Values in the range of RoBERTa's initialisation, constants as the encoding sets them."""
    from tupe_fairseq.position import build_position_encoding

    model = TupeForMaskedLM(config(name))
    assert 0.015 < model.tupe.embed_tokens.weight.std() < 0.025
    assert not model.tupe.embed_tokens.weight[1].any()
    fresh = build_position_encoding(name, 32, HEADS, LENGTH, vocab_size=WORDS, num_layers=LAYERS)
    built = model.tupe.encoder.embed_positions
    for key, value in fresh.named_buffers():
        assert torch.equal(built.get_buffer(key), value), key
