"""`from_pretrained(bpe=...)` with an unknown name, or without a file."""

import shutil

import pytest

from tests.fairseq_commands import pretrain
from tupe_fairseq import TupeRobertaModel, UsageError


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
