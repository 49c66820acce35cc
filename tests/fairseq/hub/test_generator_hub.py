"""`from_pretrained` of translation and language models, and fairseq's methods of both."""

import shutil

import pytest

from tests import processes, toy_data
from tests.fairseq_commands import generate, train_translation
from tests.tolerances import assert_close
from tupe_fairseq import TupeTransformerLM, TupeTransformerModel, UsageError


@pytest.fixture(scope="module")
def translator_directory(toy_translation_data, tmp_path_factory):
    """A published directory: checkpoint and dictionaries."""
    directory = tmp_path_factory.mktemp("published")
    flags = ("--position-encoding", "rope", "--max-update", 2)
    trained = train_translation(toy_translation_data, tmp_path_factory.mktemp("m"), *flags)
    shutil.copy(trained, directory / "model.pt")
    for language in ("en", "de"):
        shutil.copy(toy_translation_data / f"dict.{language}.txt", directory)
    return directory


@pytest.fixture(scope="module")
def translator(translator_directory):
    return TupeTransformerModel.from_pretrained(translator_directory)


@pytest.fixture(scope="module")
def language_model(toy_language_model, toy_masked_lm_data):
    return TupeTransformerLM.from_pretrained(toy_language_model, None, toy_masked_lm_data)


def test_translates_as_fairseq_generate(translator, translator_directory, toy_translation_data):
    """The toy sentences are separated by spaces and need no tokenizer."""
    directory = translator_directory / "model.pt"
    expected = generate(toy_translation_data, directory, "--beam", 3, "--max-len-b", 10)
    dataset = translator.task
    dataset.cfg.data = str(toy_translation_data)
    dataset.load_dataset("test")
    sources = [translator.src_dict.string(dataset.dataset("test")[i]["source"]) for i in range(4)]
    found = translator.translate(sources, beam=3, max_len_b=10)
    assert found == [expected[i] for i in range(4)]
    assert translator.translate(sources[0], beam=3, max_len_b=10) == expected[0]


def test_both_models_load_checkpoints_of_each_other(
    translator_directory, toy_language_model, toy_masked_lm_data
):
    assert TupeTransformerLM.from_pretrained(translator_directory).translates
    other = TupeTransformerModel.from_pretrained(toy_language_model, None, toy_masked_lm_data)
    assert not other.translates


def test_samples_and_scores(language_model):
    text = language_model.sample("w1 w2", beam=2, max_len_b=6)
    assert text.startswith("w1 w2")
    scored = language_model.score("w1 w2 w3")
    tokens = language_model.encode("w1 w2 w3")
    (model,) = language_model.models
    probabilities = model.get_normalized_probs(model(tokens.roll(1)[None]), log_probs=True)[0]
    expected = probabilities[:3].gather(1, tokens[:3, None])[:, 0]
    assert_close(scored["positional_scores"], expected)


def test_a_notebook_scores(language_model, toy_language_model, toy_masked_lm_data, tmp_path):
    """In a process that runs no fairseq command, so that nothing is installed for one."""
    (tmp_path / "program.py").write_text(
        "import sys; from tupe_fairseq import TupeTransformerLM as Model;"
        "model = Model.from_pretrained(sys.argv[1], None, sys.argv[2]);"
        "print(float(model.score('w1')['score']))"
    )
    done = processes.run(tmp_path / "program.py", toy_language_model, toy_masked_lm_data)
    assert done.returncode == 0, done.stderr
    score = float(done.stdout.split()[-1])
    assert score == pytest.approx(float(language_model.score("w1")["score"]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t, _: t.translate(""), "the sentence to translate is empty"),
        (lambda t, _: t.translate(["w1", " \t"]), "the sentence to translate is empty"),
        (lambda t, _: t.translate("w1 \ud800"), "half of a surrogate pair"),
        (lambda t, _: t.score("w1"), "a translation model cannot score"),
        (lambda _, m: m.translate("w1"), "a language model cannot translate"),
        (lambda _, m: m.score(["w1", " "]), "a text to score is empty"),
    ],
)
def test_invalid_calls(translator, language_model, call, message):
    with pytest.raises(UsageError, match=message):
        call(translator, language_model)


def test_texts_that_are_too_long(translator, language_model):
    for call in (translator.translate, language_model.score):
        with pytest.raises(UsageError, match="a text has 41 tokens, but the model takes at most"):
            call(["w1", "w1 " * 40])


def test_a_directory_without_dictionaries_is_refused(translator_directory, tmp_path):
    shutil.copy(translator_directory / "model.pt", tmp_path)
    with pytest.raises(UsageError, match=r"does not hold dict\.en\.txt and dict\.de\.txt"):
        TupeTransformerModel.from_pretrained(tmp_path, data_name_or_path=".")


def test_a_damaged_tokenizer(translator_directory, tmp_path):
    directory = shutil.copytree(translator_directory, tmp_path / "damaged")
    (directory / "sentencepiece.bpe.model").write_bytes(b"no model")
    with pytest.raises(UsageError, match=r"sentencepiece\.bpe\.model cannot be loaded"):
        TupeTransformerModel.from_pretrained(directory)


def test_a_tokenizer_beside_the_dictionaries(translator_directory, tmp_path):
    shutil.copy(translator_directory / "model.pt", tmp_path)
    data = shutil.copytree(translator_directory, tmp_path / "data")
    (data / "model.pt").unlink()
    toy_data.write_sentencepiece(data)
    found = TupeTransformerModel.from_pretrained(tmp_path, data_name_or_path=data)
    assert found.bpe is not None
