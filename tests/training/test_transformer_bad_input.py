"""What a user of the transformer models does wrong: one line with the way out."""

import pytest

from tests import toy_data
from tests.fairseq_commands import train_lm, train_translation
from tests.training.test_bad_input import told


@pytest.fixture(scope="module")
def checkpoint(toy_translation_data, tmp_path_factory):
    flags = ("--max-update", 1, "--position-encoding", "learned")
    return train_translation(toy_translation_data, tmp_path_factory.mktemp("m"), *flags)


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--position-encoding", "rotary"], ["'rotary'", "learned", "tupe_r"]),
        (["--position-encoding", "t5", "--num-buckets", 13], ["--num-buckets must be even"]),
        (["--position-encoding", "deberta", "--deberta-emd"], ["masks none"]),
        (["--encoder-learned-pos"], ["--encoder-learned-pos", "--position-encoding learned"]),
        (["--no-token-positional-embeddings"], ["--position-encoding none"]),
        (["--no-cross-attention", "--cross-self-attention"], ["--cross-self-attention"]),
        (["--offload-activations"], ["--checkpoint-activations"]),
        (["--position-encoding", "none", "--attention-backend", "flash"], ["later tokens"]),
        (["--decoder-attention-heads", 5], ["5 heads", "32"]),
        (["--restore-file", "nowhere.pt"], ["'nowhere.pt'", "from scratch"]),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, list) else "",
)
def test_flags_of_translation(toy_translation_data, tmp_path, flags, parts):
    with pytest.raises(Exception) as error:  # noqa: PT011  (fairseq may wrap it)
        train_translation(toy_translation_data, tmp_path, *flags)
    assert all(part in told(error) for part in parts), told(error)


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--character-embeddings"], ["--character-embeddings"]),
        (["--decoder-learned-pos"], ["--position-encoding learned"]),
        (["--max-target-positions", 16], ["--max-target-positions is 16", "32 tokens"]),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, list) else "",
)
def test_flags_of_language_models(toy_masked_lm_data, tmp_path, flags, parts):
    with pytest.raises(Exception) as error:  # noqa: PT011
        train_lm(toy_masked_lm_data, tmp_path, *flags)
    assert all(part in told(error) for part in parts), told(error)


def test_dictionaries_that_differ(tmp_path):
    data = toy_data.write_translation(tmp_path / "data", joined=False)
    with pytest.raises(ValueError, match=r"204 and 205 symbols.*--joined-dictionary"):
        train_translation(data, tmp_path / "m", "--share-all-embeddings")


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--position-encoding", "t5"], ["'t5'", "relative_bias"]),
        (["--max-source-positions", 40], ["--max-source-positions is 40", "32 positions"]),
        (["--max-target-positions", 40], ["--max-target-positions is 40", "32 positions"]),
        (["--decoder-layers", 3], ["missing", "decoder.layers.2"]),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, list) else "",
)
def test_checkpoint_of_another_model(toy_translation_data, tmp_path, checkpoint, flags, parts):
    with pytest.raises(Exception) as error:  # noqa: PT011
        train_translation(
            *(toy_translation_data, tmp_path, "--position-encoding", "learned"),
            *("--restore-file", checkpoint, *flags),
        )
    assert all(part in told(error) for part in parts), told(error)


def test_checkpoint_of_another_dictionary(tmp_path, checkpoint):
    data = toy_data.write_translation(tmp_path / "data", joined=False)
    flags = ("--position-encoding", "learned", "--restore-file", checkpoint)
    with pytest.raises(Exception) as error:  # noqa: PT011
        train_translation(data, tmp_path / "m", *flags)
    assert "205 symbols" in told(error)
    assert "204" in told(error)
