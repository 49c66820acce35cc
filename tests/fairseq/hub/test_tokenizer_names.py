"""`from_pretrained(bpe=...)` with an unknown name, or without a file."""

import shutil

import pytest

from examples.shared.pieces import load
from tests.convert import pieces
from tests.fairseq_commands import pretrain
from tupe_fairseq import TupeRobertaModel, UsageError
from tupe_fairseq.fairseq.hub.files import PREPROCESSING, SENTENCEPIECE, record_preprocessing


@pytest.fixture(scope="module")
def model(toy_masked_lm_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("m")
    trained = pretrain(
        toy_masked_lm_data, folder / "run", "--max-update", 1, "--disable-validation"
    )
    shutil.copy(trained, folder / "model.pt")
    shutil.copy(toy_masked_lm_data / "dict.txt", folder)
    return folder


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ({"bpe": "gpt-2"}, ["bpe is 'gpt-2', but must be one of: ", "gpt2"]),
        ({"bpe": "spm"}, ["bpe", "'spm'"]),
        ({"bpe": "sentencepiece"}, ["sentencepiece_model"]),
        ({"bpe": "sentencepiece", "sentencepiece_modle": "x"}, ["sentencepiece_model"]),
        ({"bpe": "fastbpe"}, ["bpe_codes"]),
        ({"bpe": "tokenizer_json"}, ["tokenizer_json"]),
    ],
)
def test_message(model, arguments, parts):
    with pytest.raises(UsageError) as error:
        TupeRobertaModel.from_pretrained(model, **arguments)
    assert all(part in str(error.value) for part in parts), str(error.value)
    assert "???" not in str(error.value)


#: Words of two tokenizers, which split them differently, and of the text.
HERE = "abc d"
THERE = "a bcd"
TEXT = "ABCD"


@pytest.fixture
def two_folders(model, tmp_path):
    """A model and data, each with a tokenizer and a record of its preprocessing."""
    data = tmp_path / "data"
    here = shutil.copytree(model, tmp_path / "model", ignore=shutil.ignore_patterns("run"))
    data.mkdir()
    shutil.copy(here / "dict.txt", data)
    for folder, words in ((here, HERE), (data, THERE)):
        pieces.train(folder, [words] * 20, 12)
        record_preprocessing(folder, lowercase=folder == here)
    return here, data


@pytest.mark.parametrize("bpe", [None, "sentencepiece"])
def test_files_beside_the_checkpoint_come_first(bpe, two_folders):
    """Tokenizer and record; without them, those beside the dictionaries."""
    here, data = two_folders

    def split():
        hub = TupeRobertaModel.from_pretrained(here, data_name_or_path=data, bpe=bpe)
        return hub.lowercase, hub.bpe.encode(TEXT.lower())

    models = [load(folder / SENTENCEPIECE) for folder in two_folders]
    first, second = (model.encode(TEXT.lower(), out_type=str) for model in models)
    assert first != second
    assert split() == (True, " ".join(first))
    (here / PREPROCESSING).unlink()
    assert split() == (False, " ".join(first))
    (here / SENTENCEPIECE).unlink()
    assert split() == (False, " ".join(second))


def test_a_record_of_one_thing_leaves_the_other_to_the_next_folder(two_folders):
    """What is between two sentences is recorded beside one, lowercasing beside the other."""
    here, data = two_folders
    (here / PREPROCESSING).write_text('{"separator": false}')
    record_preprocessing(data, lowercase=True)
    hub = TupeRobertaModel.from_pretrained(here, data_name_or_path=data)
    assert (hub.lowercase, hub.separator) == (True, False)
