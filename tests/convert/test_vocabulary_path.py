"""From the quickstart's vocabulary to transformers: tokenizer, and the words of the hub."""

import shutil
import sys

import pytest

from examples.quickstart import tokenizer
from tests import processes
from tests.convert.pieces import dictionary_of_pieces, train
from tests.convert.samples import masked_lm, run
from tests.fairseq_commands import pretrain
from tupe_fairseq import TupeRobertaModel
from tupe_fairseq.convert.directory import write
from tupe_fairseq.fairseq.hub.files import record_preprocessing

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

LINES = ["a good movie, and a long one.", "the film is great!", "we saw a dull, slow mess."]
#: Pieces of this line are in the vocabulary, but the text for validation lacks most of them.
RARE = "zebras vex jumpy quokkas"


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """The pieces, as scripts/quickstart.sh has them made, and the data binarised with them."""
    folder = tmp_path_factory.mktemp("vocabulary")
    text = folder / "text"
    out = folder / "pieces"
    text.mkdir()
    (text / "pretrain.train").write_text("\n".join(LINES * 40 + [RARE] * 2) + "\n")
    (text / "pretrain.valid").write_text("\n".join(LINES * 5) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        sizes = {"pretrain": (90, ("pretrain.train", "pretrain.valid"))}
        patch.setattr(tokenizer, "VOCABULARIES", sizes)
        patch.setattr(sys, "argv", ["tokenizer", str(text), str(out)])
        tokenizer.main()
    pieces = out / "pretrain"
    words = ["--only-source", "--destdir", folder / "data", "--srcdict", pieces / "dict.txt"]
    words += ["--trainpref", pieces / "pretrain.train", "--validpref", pieces / "pretrain.valid"]
    ended = processes.run("fairseq_cli.preprocess", *words)
    assert ended.returncode == 0, ended.stderr
    shutil.copy(pieces / "sentencepiece.bpe.model", folder / "data")
    return folder / "data"


@pytest.mark.parametrize("encoding", ["tupe_r", "learned"])
def test_fill_mask(vocabulary, tmp_path, encoding):
    flags = ("--position-encoding", encoding, "--max-update", 3)
    model = tmp_path / "model"
    shutil.copytree(vocabulary, model)
    shutil.copy(pretrain(vocabulary, tmp_path / "run", *flags), model / "model.pt")
    told = run("--to", "huggingface", model, tmp_path / "hf")
    assert told == [f"written: {tmp_path / 'hf'}"]
    code = {"trust_remote_code": True} if encoding == "tupe_r" else {}
    pipeline = transformers.pipeline(
        "fill-mask",
        transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "hf", **code),
        tokenizer=transformers.AutoTokenizer.from_pretrained(tmp_path / "hf", **code),
        device="cpu",
    )
    hub = TupeRobertaModel.from_pretrained(model)
    for text in ("a <mask> movie.", "the <mask> vex us!"):
        # The hub leaves special symbols out.
        found = [each for each in pipeline(text, top_k=12) if each["token"] > 3][:5]
        expected = hub.fill_mask(text, topk=5)
        assert [each["token_str"].strip() for each in found] == [w.strip() for *_, w in expected]
        assert [each["score"] for each in found] == pytest.approx(
            [score for _, score, _ in expected], rel=1e-4
        )


def test_lowercasing_is_kept_as_it_is_recorded(tmp_path):
    """Into tokenizer.json, and back into fairseq."""
    words = dictionary_of_pieces(train(tmp_path))
    write(masked_lm("tupe_r", 0, words, tmp_path)[1], tmp_path / "here")
    record_preprocessing(tmp_path / "here", True)
    run("--to", "huggingface", tmp_path / "here", tmp_path / "hf", "--check")
    run("--from", "huggingface", tmp_path / "hf", tmp_path / "back", "--check")
    ids = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")("A good MOVIE")["input_ids"]
    for name in ("here", "back"):
        hub = TupeRobertaModel.from_pretrained(tmp_path / name)
        assert hub.encode("a Good movie").tolist() == ids
