"""examples/transplant: its texts, loss and start."""

import random

import pytest
import torch
import transformers

from examples.transplant.encoders import Encoder, read_source, transplanted
from examples.transplant.start import keep_mean_position, positional_scores
from examples.transplant.texts import Batch, Texts, has_order, shuffled, swapped
from examples.transplant.training import loss_of
from tests.examples.test_serving import WORDS, write
from tests.examples.test_transplant import write_lines
from tests.huggingface.encoders import build
from tests.tolerances import assert_close


@pytest.mark.parametrize("name", ["roberta", "v3", "modernbert"])
def test_fitted_scores_are_those_of_the_source(name, tmp_path):
    """They contain what it adds to scores, and its mean position is kept."""
    write(folder := tmp_path / "source", "Model")
    model = build(name)
    if name == "roberta":
        # As in released ones.
        torch.nn.init.zeros_(model.embeddings.token_type_embeddings.weight)
    model.save_pretrained(folder)
    converted = read_source(folder)
    text = write_lines(tmp_path / "lines.txt")
    texts = Texts(text, transformers.AutoTokenizer.from_pretrained(folder), 16)
    found = positional_scores(source := Encoder(converted).eval(), texts)
    number = len(texts.held_out)
    ids = torch.tensor(sorted(texts.ids(texts.train), key=len)[-number:])
    model = model.eval()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = torch.stack(model(ids, output_attentions=True).attentions)
    scores = weights.log().where(weights > 0, torch.nan)
    expected = (scores - scores.nanmean(-1, keepdim=True)).mean(1)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4, equal_nan=True)
    student = Encoder(transplanted(converted, "none", {}, None, 1))
    keep_mean_position(source, student, 16)
    if name == "roberta":
        mean = source.base.encoder.embed_positions.weight[2:18].mean(0)
        assert_close(student.base.encoder.embed_token_types.weight[0], mean)


def test_texts_without_spaces():
    """Characters are shuffled in scripts without spaces between words, and words elsewhere."""
    text = "天地玄黃宇宙洪荒日月盈昃辰宿列張"
    rng = random.Random(0)
    for change in (shuffled, swapped):
        assert sorted(change(text, rng)) == sorted(text)
        assert sorted(change("one two three", rng).split()) == ["one", "three", "two"]
    assert shuffled(text, rng) != text
    assert has_order(text)
    assert not has_order("one two three")


def test_no_masked_token(tmp_path):
    """The loss is then that of the features."""
    write(folder := tmp_path / "source", "ForMaskedLM")
    converted = read_source(folder)
    source = Encoder(converted).eval()
    student = Encoder(transplanted(converted, "rope", {}, None, 1))
    ids = torch.tensor([[2, 7, 3]])
    batch = Batch(ids, torch.ones_like(ids), torch.zeros_like(ids))
    losses = []
    for seed in range(20):
        torch.manual_seed(seed)
        losses.append(loss_of(student, source, batch, 4.0, 4))
    assert torch.stack(losses).isfinite().all()


def test_long_lines(tmp_path):
    """Only what is read of a line is disordered, and few of them are held out."""
    write(source := tmp_path / "bert", "Model")
    lines = [" ".join([*(WORDS[:5] * 4), *(WORDS[-1:] * 5000)]) for _ in range(1000)]
    (file := tmp_path / "long.txt").write_text("\n".join(lines))
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    texts = Texts(file, tokenizer, 20)
    assert len(texts.held_out) == 100
    assert texts.share_cut() == 1
    unread = tokenizer.convert_tokens_to_ids(WORDS[-1])
    for batch in texts.batches(seed=1, number=0, size=4, disordered=1.0, pairs=0.0):
        assert not (batch.ids == unread).any()
    assert len(Texts(file, tokenizer, 4096).held_out) == 8


def test_pairs(tmp_path):
    """The halves of a text are read as the tokenizer joins two texts, with their types."""
    write(source := tmp_path / "bert", "Model")
    lines = [" ".join(WORDS[first : first + 4]) for first in range(5)] * 200
    (file := tmp_path / "lines.txt").write_text("\n".join(lines))
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    texts = Texts(file, tokenizer, 16)
    expected = []
    for line in lines[:5]:
        words = line.split()
        pair = tokenizer(" ".join(words[:2]), " ".join(words[2:]))
        assert 1 in pair["token_type_ids"]
        expected.append((pair["input_ids"], pair["token_type_ids"]))
    for batch in texts.batches(seed=1, number=0, size=4, disordered=0.0, pairs=1.0):
        for ids, types, mask in zip(batch.ids, batch.types, batch.mask.bool(), strict=True):
            assert (ids[mask].tolist(), types[mask].tolist()) in expected
