"""No word of a decoder sees a later one, whatever the encoding and the backend."""

import pytest
import torch

from tests.attention.cases import (
    BACKENDS,
    BUCKETS,
    EMBED_DIM,
    NUM_HEADS,
    attention_of,
    enlarged,
    normal,
)
from tests.attention.loops import REFERENCES
from tests.decoder.samples import (
    PAD,
    build,
    every_language_model,
    every_variant,
    sentences,
    targets,
)
from tests.tolerances import assert_close
from tupe_fairseq import UsageError
from tupe_fairseq.attention import ATTENTION_BACKENDS, Feature, required_features, share_attention
from tupe_fairseq.position import build_position_encoding

CAUSAL = [name for name in BACKENDS if Feature.DECODER in ATTENTION_BACKENDS[name].supports]


@every_variant
def test_later_words_change_nothing(variant):
    model, source = build(variant), sentences(2, 6)
    before = targets(2, 9)
    after = before.clone()
    after[:, 5:] = targets(2, 9, seed=7)[:, 5:]
    found, _ = model(source, None, after)
    expected, _ = model(source, None, before)
    assert torch.equal(found[:, :5], expected[:, :5])
    assert not torch.allclose(found[:, 5:], expected[:, 5:]), "or else the test tests nothing"


@every_language_model
def test_nor_in_training_with_dropout_in_a_language_model(variant):
    model = build(variant, "tupe_transformer_lm", attention_dropout=0.2, dropout=0.1).train()
    before = targets(2, 9)
    after = before.clone()
    after[:, 5:] = targets(2, 9, seed=7)[:, 5:]
    outputs = []
    for words in (before, after):
        torch.manual_seed(3)
        outputs.append(model(words)[0])
    assert torch.equal(outputs[0][:, :5], outputs[1][:, :5])


#: Options of encodings, and of their loops.
ONE_SIDED = {
    **{name: ({}, {}) for name in ("alibi", "kerple_log", "kerple_power", "none", "rope")},
    "fire": ({"fire_width": 4, "fire_threshold": 2}, {}),
    "sandwich": ({"sandwich_width": 4}, {}),
    "shaw": ({"relative_clip": 2}, {}),
    "t5": (BUCKETS, {"bidirectional": False}),
    "tupe_a": ({"tie_cls": True}, {}),
    "tupe_r": ({"tie_cls": True, **BUCKETS}, {"bidirectional": False}),
    "urpe": (BUCKETS, {"bidirectional": False}),
    "pope": ({}, {}),
    "relative_bank": ({"bank_width": 3, "bank_extent": 4}, {"bidirectional": False}),
}


@pytest.mark.parametrize("backend", CAUSAL)
@pytest.mark.parametrize("name", ONE_SIDED)
def test_each_word_is_the_last_of_what_it_sees(name, backend):
    """The loops of tests/reference over the first i words give output i."""
    options, one_sided = ONE_SIDED[name]
    encoding = build_position_encoding(name, EMBED_DIM, NUM_HEADS, 7, False, **options)
    encoding, attention = enlarged(encoding, 1), enlarged(attention_of(encoding), 2)
    if reason := ATTENTION_BACKENDS[backend].unsupported(
        required_features(encoding.at(0), attention.layer_terms)
    ):
        pytest.skip(reason)
    x = normal(2, 7, EMBED_DIM, seed=4)
    how = {"layer_terms": attention.layer_terms, "backend": backend, "causal": True}
    found = attention(x, share_attention(encoding.at(0), x, **how))
    weights = {key: value.double() for key, value in attention.state_dict().items()}
    positions = {key: value.double() for key, value in encoding.state_dict().items()}
    if name == "shaw":
        # The loops' tables have rows for the right too, which no word looks up here.
        for key in ("layer_terms.key", "layer_terms.value_weight"):
            weights[key] = torch.cat((weights[key].new_full((2, 4), 9.0), weights[key]))
    for i in range(7):
        expected, _ = REFERENCES[name](
            x[:, : i + 1].double(), weights, positions, NUM_HEADS, **options, **one_sided
        )
        assert_close(found[:, i], expected[:, -1])


@pytest.mark.parametrize("backend", sorted(set(ATTENTION_BACKENDS) - set(CAUSAL)))
def test_a_backend_that_cannot_decode_is_refused(backend):
    with pytest.raises(UsageError, match=r"hide later tokens.*use auto or eager"):
        build("learned", attention_backend=backend)


def test_full_context_is_given_where_it_is_asked_for():
    """For the alignment models of Garg et al. 2019; padding at the end changes nothing."""
    model, source, words = build("learned"), sentences(2, 6), targets(2, 9)
    changed, encoded = words.clone(), model.encoder(source)
    changed[:, 8] = 5
    padded = torch.cat((words, words.new_full((2, 3), PAD)), 1)
    found, other, alone = (
        model.decoder(w, encoded, full_context_alignment=True)[0][:, :9]
        for w in (padded, changed, words)
    )
    assert not torch.allclose(alone[:, 0], other[:, 0])
    assert_close(found, alone)
