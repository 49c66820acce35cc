"""Language models in transformers: commands, generation, tokenizers, and refusals."""

import pytest
import torch

from tests.fairseq_commands import train_lm, train_translation
from tests.interop.pieces import dictionary_of_pieces, train
from tests.interop.samples import refused, run
from tupe_fairseq import TupeTransformerLM

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from tupe_fairseq.interop.fast_tokenizers import write_tokenizer  # noqa: E402


@pytest.fixture(scope="module")
def trained(toy_masked_lm_data, tmp_path_factory):
    """The directory of a language model after a few updates."""
    folder = tmp_path_factory.mktemp("lm")
    train_lm(toy_masked_lm_data, folder, "--position-encoding", "tupe_r")
    (folder / "dict.txt").write_bytes((toy_masked_lm_data / "dict.txt").read_bytes())
    return folder


@torch.no_grad()
def test_generation_is_that_of_fairseq(trained, tmp_path):
    """Greedy, from a prompt, without a cache there and with one here."""
    run("--to", "huggingface", trained, tmp_path / "hf")
    auto, hub = transformers.AutoModelForCausalLM, TupeTransformerLM.from_pretrained(trained)
    import tupe_fairseq.huggingface  # noqa: F401 (the model's code is not loaded from there)

    theirs = auto.from_pretrained(tmp_path / "hf").eval()
    prompt = hub.encode("w3 w1 w4")
    expected = hub.generate(prompt[None], beam=1, max_len_b=9)[0][0]["tokens"]
    start = torch.cat((prompt[-1:], prompt[:-1]))[None]
    # fairseq ends a text of the largest length by </s>.
    found = theirs.generate(
        start, do_sample=False, max_new_tokens=len(expected) - 4, suppress_tokens=[1]
    )
    assert found[0, 1:].tolist() == expected[:-1].tolist()


@pytest.mark.parametrize("start", ["</s>", "<s>"])
def test_texts_begin_as_in_training(start, tmp_path):
    """One symbol before the text and none after it, so that `generate` continues it."""
    pieces = train(tmp_path)
    dictionary = dictionary_of_pieces(pieces)
    assert write_tokenizer(tmp_path, tmp_path, dictionary, 24, start=start) == ""
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ids = [dictionary.index(piece) for piece in pieces.encode("a movie", out_type=str)]
    assert tokenizer("a movie")["input_ids"] == [0 if start == "<s>" else 2, *ids]
    assert tokenizer.mask_token is None
    assert len(tokenizer) == len(dictionary)
    assert tokenizer.bos_token == start


def test_classes_of_masked_models_are_refused(trained, tmp_path):
    with refused("'roberta', but must be one of tupe for a language model"):
        run("--to", "huggingface", trained, tmp_path / "out", "--classes", "roberta")


def test_other_models_are_refused(toy_translation_data, toy_masked_lm_data, tmp_path):
    """Translation models, and language models with parts that the classes do not have."""
    train_translation(toy_translation_data, tmp_path / "t", "--max-update", 1)
    flags = ("--criterion", "adaptive_loss", "--adaptive-softmax-cutoff", "5,10")
    train_lm(toy_masked_lm_data, tmp_path / "a", *flags, "--max-update", 1)
    dictionary = (toy_masked_lm_data / "dict.txt").read_bytes()
    (tmp_path / "a" / "dict.txt").write_bytes(dictionary)
    # A translation model has no dict.txt.
    for name, part in (("t", "is a translation model"), ("a", "adaptive_softmax")):
        with refused(part):
            run("--to", "huggingface", tmp_path / name, tmp_path / "out")
