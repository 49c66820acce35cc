"""examples/transplant: its texts, loss and start."""

import itertools
import random
from pathlib import Path

import pytest
import torch
import transformers

from examples.transplant import compare
from examples.transplant.files import read_source
from tests.examples.test_serving import WORDS, write
from tests.huggingface.encoders import build
from tests.tolerances import assert_close
from tupe_fairseq import UsageError
from tupe_fairseq.transplant.encoders import Encoder, transplanted
from tupe_fairseq.transplant.fidelity import Fidelity
from tupe_fairseq.transplant.start import keep_mean_position
from tupe_fairseq.transplant.texts import Batch, Texts, halves, has_order, shuffled, swapped
from tupe_fairseq.transplant.training import loss_of


def test_the_mean_position_is_kept(tmp_path):
    """It is added to the input of each token, in the place of the types of tokens."""
    write(folder := tmp_path / "source", "Model")
    model = build("roberta")
    # As in released ones.
    torch.nn.init.zeros_(model.embeddings.token_type_embeddings.weight)
    model.save_pretrained(folder)
    converted = read_source(folder)
    source = Encoder(converted)
    student = Encoder(transplanted(converted, "none", {}, None, 1))
    keep_mean_position(source, student, 16)
    mean = source.base.encoder.embed_positions.weight[2:18].mean(0)
    assert_close(student.base.encoder.embed_token_types.weight[0], mean)


@pytest.mark.parametrize(("name", "encoding"), [("modernbert", "rope"), ("v3", "deberta")])
def test_the_same_encoding_keeps_its_options(name, encoding, tmp_path):
    """But those that are given."""
    write(folder := tmp_path / "source", "Model")
    build(name).save_pretrained(folder)
    source = read_source(folder)
    made = transplanted(source, encoding, {"attention_window": 5}, None, 1)
    expected = source.settings["position_options"]
    assert made.settings["position_options"] == {**made.settings["position_options"], **expected}
    assert made.settings["attention_window"] == 5
    assert made.settings["global_every"] == source.settings["global_every"]
    given = transplanted(source, encoding, {"relative_clip": 30, "rope_theta": 5.0}, None, 1)
    changed = {k for k, v in expected.items() if given.settings["position_options"][k] != v}
    assert changed == {"rope_theta" if encoding == "rope" else "relative_clip"}


def test_texts_without_spaces():
    """Characters are shuffled in scripts without spaces between words, and words elsewhere."""
    text = "天地玄黃宇宙洪荒日月盈昃辰宿列張"
    rng = random.Random(0)
    for change in (shuffled, swapped):
        assert sorted(change(text, rng)) == sorted(text)
        assert sorted(change("one two three", rng).split()) == ["one", "three", "two"]
    assert shuffled(text, rng) != text
    assert has_order(text)
    assert halves("天地玄黃 GPU 宇宙") == ("天地玄", "黃GPU宇宙")
    assert halves("one 天 three four") == ("one 天", "three four")
    assert not has_order("one two three")


def test_lines_without_tokens(tmp_path):
    """A tokenizer can drop all characters of a line, such as a space of no width."""
    lines = [" ".join(words) for words in itertools.permutations(WORDS, 4)][:1000]
    texts = texts_of(tmp_path, lines + ["\u200b" * number for number in range(1, 200)])
    for batch in texts.batches(seed=1, number=0, size=16, disordered=1.0, pairs=0.5):
        assert batch.mask.sum(1).min() >= 2
    assert texts.read("\u200b") == swapped("", random.Random(0)) == ""


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
    draw = random.Random(0)
    ends = " ".join(WORDS[-1:] * 5000)
    lines = [" ".join(draw.choices(WORDS[:-1], k=20)) + f" {ends}" for _ in range(1000)]
    (file := tmp_path / "long.txt").write_text("\n".join(lines))
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    texts = Texts(file, tokenizer, 20)
    assert len(texts.held_out) == 100
    assert texts.share_cut == 1
    unread = tokenizer.convert_tokens_to_ids(WORDS[-1])
    for batch in texts.batches(seed=1, number=0, size=4, disordered=1.0, pairs=0.0):
        assert not (batch.ids == unread).any()
    assert len(Texts(file, tokenizer, 4096).held_out) == 8


def test_pairs(tmp_path):
    """The halves of a text are read as the tokenizer joins two texts, with their types."""
    write(source := tmp_path / "bert", "Model")
    lines = [" ".join(words) for words in itertools.permutations(WORDS, 4)][:1000]
    (file := tmp_path / "lines.txt").write_text("\n".join(lines))
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    texts = Texts(file, tokenizer, 16)
    expected = []
    for line in lines:
        words = line.split()
        pair = tokenizer(" ".join(words[:2]), " ".join(words[2:]))
        assert 1 in pair["token_type_ids"]
        expected.append((pair["input_ids"], pair["token_type_ids"]))
    for batch in texts.batches(seed=1, number=0, size=4, disordered=0.0, pairs=1.0):
        for ids, types, mask in zip(batch.ids, batch.types, batch.mask.bool(), strict=True):
            assert (ids[mask].tolist(), types[mask].tolist()) in expected


def texts_of(tmp_path: Path, lines: list[str], length: int = 16, mark: str = "") -> Texts:
    """Texts of a file, with the tokenizer of a BERT."""
    write(source := tmp_path / "bert", "Model")
    (file := tmp_path / "lines.txt").write_text(mark + "\n".join(lines), encoding="utf-8")
    return Texts(file, transformers.AutoTokenizer.from_pretrained(source), length)


def test_long_lines_without_spaces(tmp_path):
    """Only the characters that are read are disordered."""
    line = "".join(map(chr, range(0x4E00, 0x4E00 + 3000)))
    texts = texts_of(tmp_path, [chr(0x8000 + number) + line for number in range(1000)])
    first = set(line[:14])
    read = [set(text[1:]) for text in texts.held_out]
    assert all(each <= first for each in read), "14 tokens are not special"
    assert len(read[0]) == 13


def test_lines_that_are_cut_on_the_left(tmp_path):
    """The words are disordered that the tokenizer reads, which are the last ones here."""
    write(source := tmp_path / "bert", "Model")
    lines = [" ".join(words) for words in itertools.permutations(WORDS, 7)][:1000]
    (file := tmp_path / "lines.txt").write_text("\n".join(lines))
    load = transformers.AutoTokenizer.from_pretrained
    for side, part in (("left", slice(-4, None)), ("right", slice(4))):
        texts = Texts(file, load(source, truncation_side=side), 6)
        assert texts.held_out == [" ".join(line.split()[part]) for line in lines[::10]]


def test_lines_that_repeat(tmp_path):
    """A held-out line is no line of the training, and repeated lines do not count."""
    lines = [" ".join(words) for words in itertools.permutations(WORDS, 4)][:1000]
    texts = texts_of(tmp_path, lines * 4)
    assert len({*texts.train, *texts.held_out}) == len(texts.train) + len(texts.held_out) == 1000
    with pytest.raises(UsageError, match="with 999 different lines"):
        texts_of(tmp_path / "few", lines[:999] * 2)


def test_short_lines(tmp_path):
    """The longest text is known, and short lines before the others have no order to measure."""
    lines = [" ".join(words) for words in itertools.permutations(WORDS[:8], 7)]
    texts = texts_of(tmp_path, [f"w{n}" for n in range(5000)] + lines, 32)
    assert texts.longest == 9
    source = Encoder(read_source(tmp_path / "bert")).eval()
    measures = Fidelity(source, texts)(source)
    assert measures["error"] < 1e-6
    assert measures["rank"] > 0.999
    with pytest.raises(UsageError, match="but only 2 of 102 held-out"):
        texts_of(tmp_path / "few", lines[:20] + [f"w{n}" for n in range(1000)])


def test_pairs_of_one_word_and_byte_order_marks(tmp_path):
    """A word alone is no pair, and the mark is no part of the first line."""
    assert halves("one") == ("one",)
    assert halves("one two three") == ("one", "two three")
    texts = texts_of(tmp_path, [f"one man sees {n}" for n in range(1000)], mark="\ufeff")
    assert texts.held_out[0] == "one man sees 0"


def test_comparison_of_other_folders(tmp_path):
    with pytest.raises(UsageError, match="is no directory of sentence-transformers"):
        compare.main([str(tmp_path)] * 3)
