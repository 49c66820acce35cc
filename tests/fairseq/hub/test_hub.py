"""`TupeRobertaModel.from_pretrained(directory)` and RoBERTa's methods."""

import shutil

import pytest
import torch

from tests import toy_data
from tests.fairseq_commands import finetune, pretrain
from tests.tolerances import assert_close
from tupe_fairseq import TupeRobertaModel, UsageError
from tupe_fairseq.fairseq.hub.files import find_tokenizer


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Binarised pieces of a small sentencepiece vocabulary, for both tasks, and its model."""
    root = tmp_path_factory.mktemp("text")
    words = ["the cat sat on the mat", "a dog ran over the hill", "cats and dogs run"] * 20
    lines, symbols = toy_data.write_pieces(root, words)
    labels = toy_data.dictionary(["0", "1"])
    for split in ("train", "valid"):
        toy_data.write_split(root / "data", split, lines, symbols)
        toy_data.write_split(root / "data" / "input0", split, lines, symbols)
        toy_data.write_split(root / "data" / "label", split, ["0", "1"] * 30, labels)
    return root


@pytest.fixture(scope="module")
def pretrained(text, tmp_path_factory):
    """A published directory: checkpoint, dictionary and sentencepiece model."""
    directory = tmp_path_factory.mktemp("published")
    shutil.copy(pretrain(text / "data", tmp_path_factory.mktemp("m")), directory / "model.pt")
    shutil.copy(text / "data" / "dict.txt", directory)
    shutil.copy(text / "sentencepiece.bpe.model", directory)
    return directory


@pytest.fixture(scope="module")
def finetuned(text, tmp_path_factory):
    return finetune(text / "data", tmp_path_factory.mktemp("m"), "--num-classes", 2)


@pytest.fixture(scope="module")
def roberta(pretrained):
    """A model that tests only read."""
    return TupeRobertaModel.from_pretrained(pretrained)


def test_encode_and_decode(roberta):
    tokens = roberta.encode("the cat sat", "a dog ran")
    assert tokens[0] == 0
    assert (tokens == 2).sum() == 3
    assert roberta.decode(tokens) == ["the cat sat", "a dog ran"]


def test_fill_mask(roberta):
    filled = roberta.fill_mask("the <mask> sat on the mat", topk=4)
    assert len(filled) == 4
    probabilities = [probability for _, probability, _ in filled]
    assert probabilities == sorted(probabilities, reverse=True)
    for sentence, _, word in filled:
        assert sentence == f"the{word} sat on the mat"
        assert word.strip() not in ("<s>", "</s>", "<pad>", "<mask>")


@pytest.mark.parametrize("bias", [20, 1000])
def test_fill_mask_leaves_out_special_symbols(pretrained, monkeypatch, bias):
    """Even if they are the likeliest by far, and the probabilities of all others are 0."""
    roberta = TupeRobertaModel.from_pretrained(pretrained)
    dictionary = roberta.task.source_dictionary
    special = {"<s>", "<pad>", "</s>", "<unk>", "<mask>"}
    with torch.no_grad():
        roberta.model.encoder.lm_head.bias[[dictionary.index(name) for name in special]] = bias
    # The tokenizer does not show special symbols.
    monkeypatch.setattr(roberta.bpe, "decode", lambda piece: piece)
    pieces = set(dictionary.symbols) - special
    filled = roberta.fill_mask("the <mask> sat", topk=len(pieces))
    assert {word.strip() for _, _, word in filled} == pieces
    assert all(0 <= probability < 0.1 for _, probability, _ in filled)
    with pytest.raises(UsageError, match=f"topk is {len(pieces) + 1}, but the dictionary has"):
        roberta.fill_mask("the <mask> sat", topk=len(pieces) + 1)


def test_fill_mask_gives_each_word_its_probability(roberta):
    ((_, probability, word),) = roberta.fill_mask("the <mask> sat", topk=1)
    dictionary = roberta.task.source_dictionary
    pieces = roberta.bpe.encode("the"), roberta.bpe.encode(" sat")
    line = f"<s> {pieces[0]} <mask> {pieces[1]} </s>"
    tokens = dictionary.encode_line(line, append_eos=False, add_if_not_exist=False).long()
    with torch.no_grad():
        logits = roberta.model(tokens[None])[0][
            0, tokens.tolist().index(dictionary.index("<mask>"))
        ]
    piece = word.replace(" ", "▁")
    torch.testing.assert_close(logits.softmax(-1)[dictionary.index(piece)].item(), probability)


def test_positional_correlations(roberta):
    correlations = roberta.positional_correlations(20)
    assert correlations.shape == (4, 20, 20)
    # The row and the column of [CLS] are constant.
    assert_close(correlations[:, 0], correlations[:, 0, :1].expand(-1, 20))
    assert_close(correlations[:, 1:, 0], correlations[:, 1:2, 0].expand(-1, 19))


def test_finetuned_model_finds_its_dictionaries(finetuned, text, tmp_path):
    """Those of the data; or dict.txt alone, without which class names are missing."""
    shutil.copy(finetuned, tmp_path / "model.pt")
    shutil.copy(text / "sentencepiece.bpe.model", tmp_path)
    roberta = TupeRobertaModel.from_pretrained(tmp_path, "model.pt", text / "data")
    scores = roberta.predict("sentence_classification_head", roberta.encode("cats run"))
    labels = roberta.task.label_dictionary
    assert labels[scores.argmax() + labels.nspecial] in ("0", "1")
    shutil.copy(text / "data" / "dict.txt", tmp_path)
    alone = TupeRobertaModel.from_pretrained(tmp_path)
    assert_close(alone.predict("sentence_classification_head", alone.encode("cats run")), scores)


def test_stock_hub_loads_it_too(pretrained):
    from fairseq.models.roberta import RobertaModel

    roberta = RobertaModel.from_pretrained(str(pretrained), bpe="sentencepiece")
    assert type(roberta.model) is TupeRobertaModel


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda r: r.predict("sentiment", r.encode("cats")), ["'sentiment'", "none"]),
        (lambda r: r.fill_mask("no mask here"), ["one <mask>", "0"]),
        (lambda r: r.fill_mask("<mask> <mask>"), ["one <mask>", "2"]),
        (lambda r: r.positional_correlations(65), ["64", "65"]),
        (lambda r: r.positional_correlations(0), ["64", "0"]),
        (lambda r: r.fill_mask("cats " * 100 + "<mask>"), ["tokens", "64"]),
        (lambda r: r.fill_mask("the <mask>", topk=-1), ["topk is -1", "pieces"]),
    ],
)
def test_bad_calls(roberta, call, parts):
    with pytest.raises(UsageError) as error:
        call(roberta)
    assert all(part in str(error.value) for part in parts)


def test_bad_directories(pretrained, tmp_path):
    def refused(*parts, **arguments):
        with pytest.raises(UsageError) as error:
            TupeRobertaModel.from_pretrained(tmp_path, **arguments)
        assert all(part in str(error.value) for part in parts), str(error.value)

    refused("no checkpoint", str(tmp_path), "model.pt")
    (tmp_path / "model.pt").write_text("not a checkpoint")
    refused("model.pt cannot be loaded: it is not a checkpoint, or is damaged.")
    torch.save([1, 2], tmp_path / "model.pt")
    refused("not a fairseq checkpoint")
    shutil.copy(pretrained / "model.pt", tmp_path)
    (tmp_path / "elsewhere").mkdir()
    refused("no dictionary", "dict.txt", data_name_or_path=tmp_path / "elsewhere")
    shutil.copy(pretrained / "dict.txt", tmp_path)
    for name in ("one.model", "two.model"):
        shutil.copy(pretrained / "sentencepiece.bpe.model", tmp_path / name)
    refused("one.model, two.model", "sentencepiece_model=")
    shutil.copy(pretrained / "sentencepiece.bpe.model", tmp_path)
    settings = find_tokenizer(tmp_path)
    assert settings["sentencepiece_model"] == str(tmp_path / "sentencepiece.bpe.model")


def test_no_tokenizer(pretrained, tmp_path):
    for name in ("model.pt", "dict.txt"):
        shutil.copy(pretrained / name, tmp_path)
    roberta = TupeRobertaModel.from_pretrained(tmp_path)
    with pytest.raises(UsageError, match="no tokenizer"):
        roberta.encode("the cat")


def test_in_bfloat16(pretrained):
    """Evaluation with weights in bf16 needs no option."""
    exact, halved = (TupeRobertaModel.from_pretrained(pretrained).eval() for _ in range(2))
    for model in (exact, halved):
        torch.manual_seed(1)
        model.register_classification_head("classes", num_classes=3)
    halved.bfloat16()
    tokens = exact.encode("the cat sat on the mat")
    with torch.no_grad():
        expected, features = (model.extract_features(tokens).float() for model in (exact, halved))
        assert_close(features, expected, torch.bfloat16)
        of_exact, of_halved = (
            model.predict("classes", tokens).float() for model in (exact, halved)
        )
    assert_close(of_halved, of_exact, torch.bfloat16)
    filled, of_filled = (model.fill_mask("the <mask> sat", topk=3) for model in (exact, halved))
    probabilities = (torch.tensor([p for _, p, _ in each]) for each in (of_filled, filled))
    assert_close(*probabilities, torch.bfloat16)
