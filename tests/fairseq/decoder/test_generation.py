"""Word by word gives what all words at once give; caches follow the beams and grow."""

import functools
import inspect
from collections import Counter

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator

from tests.fairseq.decoder.samples import (
    BOS,
    DICTIONARY,
    EOS,
    KINDS,
    PAD,
    VARIANTS,
    build,
    every_kind,
    every_variant,
    sentences,
    stock,
    targets,
)
from tests.tolerances import assert_close
from tupe_fairseq import UsageError
from tupe_fairseq.transformer.decoding import READY


def read(model, source=None):
    return None if source is None else model.encoder(source)


def word_by_word(model, words, encoded=None, first=0, state=None):
    """Outputs from word `first` on, and the state they leave."""
    state = {} if state is None else state
    steps = [
        model.decoder(words[:, : i + 1], encoded, incremental_state=state)[0]
        for i in range(first, words.size(1))
    ]
    return torch.cat(steps, 1), state


@torch.no_grad()
@pytest.mark.parametrize(
    ("arch", "variant"),
    # The decoder of both models is the same but for its source.
    [("tupe_transformer_lm", each) for each in VARIANTS]
    + [("tupe_transformer", each) for each in KINDS],
)
def test_equals_the_full_forward(arch, variant):
    """Over more words than are made ready at first."""
    model = build(variant, arch)
    words = targets(2, READY + 6)
    source = sentences(2, 6) if arch == "tupe_transformer" else None
    encoded = read(model, source)
    found, _ = word_by_word(model, words, encoded)
    assert_close(found, model.decoder(words, encoded)[0])


@torch.no_grad()
@every_variant
def test_caches_follow_the_beams(variant):
    """Hypotheses change places, one is dropped and one doubled, also between sentences."""
    model = build(variant)
    words = targets(3, 8)
    source = sentences(3, 6)
    source[1, :3] = PAD
    encoded = read(model, source)
    _, state = word_by_word(model, words[:, :5], encoded)
    order = torch.tensor([2, 0, 2])
    model.decoder.reorder_incremental_state_scripting(state, order)
    encoded = model.encoder.reorder_encoder_out(encoded, order)
    words = torch.cat((words[order, :5], targets(3, 3, seed=5)), 1)
    found, _ = word_by_word(model, words, encoded, 5, state)
    expected, _ = model(source[order], None, words)
    assert_close(found, expected[:, 5:])


@torch.no_grad()
@every_kind
def test_positional_terms_are_not_made_at_each_step(variant, monkeypatch):
    """Once for the first words, once when they are used up."""
    model = build(variant)
    calls = Counter()
    for module in model.decoder.modules():
        for name in ("attention_bias", "relative", "path"):
            if inspect.ismethod(method := getattr(module, name, None)):
                key = (id(module), name)
                counted = functools.partial(count, calls, key, method)
                monkeypatch.setattr(module, name, counted)
    word_by_word(model, targets(1, READY + 6), read(model, sentences(1, 6)))
    most = 2 * len(model.decoder.layers)
    assert all(each <= most for each in calls.values()), calls


def count(calls, key, method, *args, **how):
    calls[key] += 1
    return method(*args, **how)


@every_kind
def test_beam_search_finds_what_full_forwards_score(variant):
    """Its scores are those of the hypotheses, read at once."""
    model = build(variant)
    source = sentences(3, 6)
    source[0, :2] = PAD
    generator = SequenceGenerator([model], DICTIONARY, beam_size=3, max_len_a=0, max_len_b=9)
    found = generator.generate([model], {"net_input": {"src_tokens": source}})
    for sentence, hypotheses in zip(source, found, strict=True):
        for hypothesis in hypotheses:
            tokens = hypothesis["tokens"]
            read_words = torch.cat((tokens.new_tensor([EOS]), tokens[:-1]))[None]
            output = model(sentence[None], None, read_words)
            scores = model.get_normalized_probs(output, log_probs=True)[0]
            expected = scores.gather(1, tokens[:, None])[:, 0]
            assert_close(hypothesis["positional_scores"], expected)


def test_beam_search_equals_stock_fairseq():
    theirs = stock("transformer").eval()
    ours = stock("tupe_transformer", position_encoding="sinusoidal").eval()
    ours.load_state_dict(theirs.state_dict())
    source = sentences(4, 7)
    source[1, :3] = PAD
    found = []
    for model in (ours, theirs):
        generator = SequenceGenerator([model], DICTIONARY, beam_size=4, max_len_a=0, max_len_b=12)
        found.append(generator.generate([model], {"net_input": {"src_tokens": source}}))
    for mine, stocks in zip(*found, strict=True):
        for hypothesis, other in zip(mine, stocks, strict=True):
            assert hypothesis["tokens"].tolist() == other["tokens"].tolist()
            assert_close(hypothesis["attention"], other["attention"])


@torch.no_grad()
def test_beams_share_their_source():
    """Keys and values of a sentence are kept once, and outputs stay the same."""
    model = build("tupe_r")
    words = targets(6, 4)
    source = sentences(2, 6)
    model.set_beam_size(3)
    encoded = model.encoder.reorder_encoder_out(
        read(model, source), torch.arange(2).repeat_interleave(3)
    )
    found, state = word_by_word(model, words, encoded)
    (cache,) = (held["decoder_cache"] for held in state.values())
    assert [len(layer.source[0]) for layer in cache.layers] == [2, 2]
    expected, _ = model(source.repeat_interleave(3, 0), None, words)
    assert_close(found, expected)
    # The second sentence has ended.
    order = torch.tensor([2, 0, 1])
    model.decoder.reorder_incremental_state_scripting(state, order)
    more = torch.cat((words[order], targets(3, 1, seed=9)), 1)
    found, _ = word_by_word(
        model, more, model.encoder.reorder_encoder_out(encoded, order), 4, state
    )
    expected, _ = model(source[:1].expand(3, -1), None, more)
    assert_close(found, expected[:, 4:])


@torch.no_grad()
def test_hypotheses_of_different_sources_are_kept_apart_after_a_beam_search():
    """A beam size that was set for another search does not make them share one."""
    model = build("learned")
    words = targets(4, 4)
    source = sentences(4, 6)
    model.set_beam_size(2)
    found, _ = word_by_word(model, words, read(model, source))
    assert_close(found, model(source, None, words)[0])


@torch.no_grad()
def test_rows_that_end_alone_after_a_beam_search():
    """Equal sources beside each other share one, until single rows of them have ended."""
    model = build("rope")
    words = targets(4, 4)
    source = sentences(2, 6).repeat_interleave(2, 0)
    model.set_beam_size(2)
    for order in ([1, 3], [0, 2, 3], [2], [0, 1, 2, 3]):
        encoded = model.encoder(source)
        state = {}
        rows = torch.tensor(order)
        for i in range(1, 4):
            model.decoder(words[:, :i], encoded, incremental_state=state)
        model.decoder.reorder_incremental_state_scripting(state, rows)
        encoded = model.encoder.reorder_encoder_out(encoded, rows)
        found, _ = model.decoder(words[rows], encoded, incremental_state=state)
        expected, _ = model(source[rows], None, words[rows])
        assert_close(found[:, -1], expected[:, -1])


def test_more_words_than_positions_are_refused():
    model = build("tupe_a", "tupe_transformer_lm", max_target_positions=5)
    with pytest.raises(UsageError, match=r"6 tokens, but --max-target-positions is 5"):
        word_by_word(model, targets(1, 6))
    with pytest.raises(UsageError, match=r"6 tokens, but --max-target-positions is 5"):
        model(targets(1, 6))


def test_prefixes_are_followed():
    model = build("t5")
    source = sentences(2, 6)
    generator = SequenceGenerator([model], DICTIONARY, beam_size=2, max_len_a=0, max_len_b=9)
    prefix = torch.tensor([[7, 8, 9], [10, 11, PAD]])
    found = generator.generate(
        [model], {"net_input": {"src_tokens": source}}, prefix_tokens=prefix, bos_token=BOS
    )
    assert found[0][0]["tokens"][:3].tolist() == [7, 8, 9]
    assert found[1][0]["tokens"][:2].tolist() == [10, 11]


@torch.no_grad()
def test_a_known_path_of_floater_is_forgotten_when_it_changes():
    """By a step of training, by loading, by casting."""
    positions = build("floater").decoder.embed_positions
    zeros = torch.zeros(1, 9, 16)
    other = {key: value + 0.1 for key, value in positions.state_dict().items()}

    def step_in_half_precision():
        """fairseq's fp16 optimizers write to `.data`, which no counter of changes sees."""
        with torch.enable_grad():
            positions.embed(zeros)
        positions.first.data.add_(1.0)

    with torch.inference_mode():
        # Such parameters have no version.
        inferred = build("floater").decoder.embed_positions
        inferred.embed(zeros)
        inferred.first.mul_(3)
        assert_close(inferred.embed(zeros)[0], inferred.path(9))
    for change in (
        lambda: positions.first.add_(1.0),
        step_in_half_precision,
        lambda: positions.load_state_dict(other),
        lambda: positions.double(),
    ):
        positions.embed(zeros)
        change()
        found = positions.embed(zeros.to(positions.first.dtype))
        assert_close(found[0], positions.path(9))


@pytest.mark.parametrize("is_new", [False, True])
@torch.no_grad()
def test_each_value_of_floater_that_changes_is_seen(is_new):
    """Of one with large parameters, and of a new one, whose dynamics are 0."""
    positions = build("floater").decoder.embed_positions
    if is_new:
        positions.dynamics["2"].weight.zero_()
        positions.dynamics["2"].bias.zero_()
    zeros = torch.zeros(1, 9, 16)
    for parameter in positions.parameters():
        positions.embed(zeros)
        parameter.add_(0.1)
        assert_close(positions.embed(zeros)[0], positions.path(9))
