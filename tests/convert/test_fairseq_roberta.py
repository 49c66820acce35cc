"""Checkpoints of stock RoBERTa, old and new, read as `learned` or as a warm start."""

import shutil
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.models.roberta import RobertaModel

from tests.attention.cases import IN_ENCODERS
from tests.convert.samples import refused, run
from tests.fairseq_commands import COMMON, SMALL, finetune, parameters, pretrain, train
from tests.tolerances import assert_close, assert_trained_alike
from tupe_fairseq import TupeRobertaModel
from tupe_fairseq.fairseq.checkpoints.migration import SECOND_COPY
from tupe_fairseq.fairseq.commands import running

STACK = "encoder.sentence_encoder."
LEARNED = ("--position-encoding", "learned")
STOCK = ("--arch", "roberta", *SMALL[2:])


@pytest.fixture(scope="module")
def stock(toy_masked_lm_data, tmp_path_factory):
    """fairseq's own RoBERTa after a few updates, with its dictionary beside it."""
    folder = tmp_path_factory.mktemp("stock")
    task = ("--task", "masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", 64)
    flags = (*task, *COMMON, *STOCK, "--max-update", 4, "--save-dir", folder)
    checkpoint = train(toy_masked_lm_data, *flags)
    shutil.copy(toy_masked_lm_data / "dict.txt", folder)
    return checkpoint


def as_of_2019(checkpoint, out):
    """The same checkpoint with the names and settings of the first release of RoBERTa."""
    from argparse import Namespace

    state = torch.load(checkpoint, weights_only=True)
    model = state["model"]
    old = {}
    for name, value in model.items():
        if ".self_attn." in name and "out_proj" not in name:
            layer = name.split(".self_attn.")[0]
            kind = name.rpartition(".")[2]
            joint = [model[f"{layer}.self_attn.{p}_proj.{kind}"] for p in "qkv"]
            name = f"{layer}.self_attn.in_proj_{kind}"
            value = torch.cat(joint)
        name = name.replace("layernorm_embedding", "emb_layer_norm")
        if not name.endswith(".version"):
            old[name.replace("encoder.", "decoder.", 1)] = value
    settings = Namespace(**{k: v for k, v in vars(state["cfg"]["model"]).items() if k != "_name"})
    settings.arch = "roberta_base"
    settings.task = "masked_lm"
    torch.save(
        {"args": settings, "model": old, "optimizer_history": [{"num_updates": 3}]},
        out / "model.pt",
    )
    shutil.copy(checkpoint.with_name("dict.txt"), out)
    return out / "model.pt"


def as_of_0_12_2(checkpoint, out):
    """The same checkpoint with the second copy of a layer's weights that fairseq 0.12.2 saves."""
    state = torch.load(checkpoint, weights_only=True)
    for layer in range(2):
        name = f"encoder.sentence_encoder.layers.{layer}"
        for copy, rows in (("in_proj", 96), ("out_proj", 32), ("fc1", 64), ("fc2", 32)):
            state["model"][f"{name}.{copy}_weight"] = torch.randn(rows, 32)
            state["model"][f"{name}.{copy}_bias"] = torch.randn(rows)
    torch.save(state, out / "model.pt")
    shutil.copy(checkpoint.with_name("dict.txt"), out)
    return out / "model.pt"


AGES = {"today": lambda checkpoint, out: checkpoint, "2019": as_of_2019, "2022": as_of_0_12_2}


def own_parameters(checkpoint):
    """Parameters without the second copies that fairseq 0.12.2 saves."""
    return {n: v for n, v in parameters(checkpoint).items() if not SECOND_COPY.search(n)}


def features_and_logits(model, tokens):
    with torch.no_grad():
        return model(tokens, features_only=True)[0], model(tokens)[0]


def test_layers_with_norms_before(toy_masked_lm_data, tmp_path):
    """fairseq's roberta_prenorm, which has no norm of the embeddings."""
    task = ("--task", "masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", 64)
    flags = ("--arch", "roberta_prenorm", *SMALL[2:], "--max-update", 3, "--disable-validation")
    source = train(toy_masked_lm_data, *task, *COMMON, *flags, "--save-dir", tmp_path / "stock")
    shutil.copy(toy_masked_lm_data / "dict.txt", tmp_path / "stock")
    report = run("--from", "fairseq-roberta", source, tmp_path / "ours", "--check")
    assert [line for line in report if line.startswith("logits")]
    further = ("--arch", "tupe_roberta_prenorm", "--finetune-from-model", source, "--lr", 0)
    with running("train"):
        trained = pretrain(
            toy_masked_lm_data, tmp_path / "more", *LEARNED, *further, "--max-update", 1
        )
    (theirs,), _ = checkpoint_utils.load_model_ensemble([str(source)])
    shutil.copy(toy_masked_lm_data / "dict.txt", trained.parent)
    ours = TupeRobertaModel.from_pretrained(trained).model
    tokens = torch.randint(4, 200, (2, 30))
    with torch.no_grad():
        assert_close(ours(tokens)[0], theirs.eval()(tokens)[0])


@pytest.mark.parametrize("age", AGES)
def test_learned_is_the_same_model(stock, tmp_path, age):
    source = AGES[age](stock, tmp_path)
    before = source.read_bytes()
    report = run("--from", "fairseq-roberta", source, tmp_path / "ours", "--check")
    assert source.read_bytes() == before
    assert [line for line in report if line.startswith("logits")]
    ours = TupeRobertaModel.from_pretrained(tmp_path / "ours").model
    (theirs,), _ = checkpoint_utils.load_model_ensemble([str(stock)])
    tokens = torch.randint(4, 200, (2, 30))
    for actual, expected in zip(
        features_and_logits(ours, tokens), features_and_logits(theirs.eval(), tokens), strict=True
    ):
        assert_close(actual, expected)


@pytest.mark.parametrize("name", [n for n in IN_ENCODERS if n != "learned"])
def test_warm_start(stock, tmp_path, name):
    """Words and layers are kept, positions are new, and the report names the new parameters."""
    flags = ("--position-encoding", name)
    report = run("--from", "fairseq-roberta", stock, tmp_path / "ours", *flags)
    ours = TupeRobertaModel.from_pretrained(tmp_path / "ours").model.state_dict()
    kept = own_parameters(stock)
    positions = kept.pop("encoder.sentence_encoder.embed_positions.weight")
    for parameter, value in kept.items():
        assert torch.equal(ours[parameter], value), parameter
    assert report[0] == "left out: embed_positions.weight"
    new = ours.keys() - kept.keys()
    assert all(parameter.removeprefix(STACK) in report[1] for parameter in new)
    assert f"new, {sum(ours[p].numel() for p in new):,} parameters" in report[1]
    assert not any(torch.equal(ours[p], positions) for p in new)


def test_training_from_a_warm_start(stock, toy_masked_lm_data, tmp_path):
    """With both of fairseq's flags for a checkpoint."""
    flags = ("--position-encoding", "tupe_a")
    run("--from", "fairseq-roberta", stock, tmp_path / "warm", *flags, "--check")
    model = tmp_path / "warm" / "model.pt"
    kept = parameters(tmp_path / "warm" / "model.pt")
    for i, flag in enumerate(("--restore-file", "--finetune-from-model")):
        flags = (flag, model, "--position-encoding", "tupe_a", "--lr", 0, "--max-update", 2)
        trained = parameters(pretrain(toy_masked_lm_data, tmp_path / str(i), *flags))
        assert all(torch.equal(trained[name], value) for name, value in kept.items())


def test_training_from_fairseq_0_12_2(stock, toy_masked_lm_data, tmp_path):
    """The second copies of weights are dropped."""
    old = as_of_0_12_2(stock, tmp_path)
    flags = ("--finetune-from-model", old, "--position-encoding", "learned", "--max-update", 1)
    trained = parameters(pretrain(toy_masked_lm_data, tmp_path / "m", *flags, "--lr", 0))
    kept = {n: v for n, v in parameters(stock).items() if n in trained}
    assert trained.keys() == kept.keys()
    assert all(torch.equal(trained[name], value) for name, value in kept.items())


def test_training_goes_on_as_in_stock(stock, toy_masked_lm_data, tmp_path):
    """With the state of Adam, also when it is resumed once more."""
    flags = ("--dropout", 0, "--attention-dropout", 0, "--lr", 0.01, "--max-update")
    restored = ("--restore-file", stock, *flags)
    theirs = pretrain(toy_masked_lm_data, tmp_path / "stock", *STOCK, *restored, 8)
    with running("train"):
        for more in ((*restored, 6), (*flags, 8)):
            ours = pretrain(toy_masked_lm_data, tmp_path / "ours", *LEARNED, *more)
    found = parameters(ours)
    expected = own_parameters(theirs)
    assert_trained_alike(found, {name: expected[name] for name in found})


def test_the_hub_loads_stock_checkpoints(stock):
    """As stock RoBERTa, with the hub interface of tupe_roberta."""
    ours = TupeRobertaModel.from_pretrained(stock)
    (theirs,), _ = checkpoint_utils.load_model_ensemble([str(stock)])
    tokens = torch.randint(4, 200, (2, 30))
    assert type(ours.model) is RobertaModel
    expected = theirs.eval()(tokens, features_only=True)[0]
    assert torch.equal(ours.extract_features(tokens), expected)


@pytest.mark.parametrize("noise", [0, 0.1])
def test_quantization_noise(noise, toy_masked_lm_data, tmp_path):
    flags = ("--arch", "roberta", "--max-update", 1, "--quant-noise-pq", noise)
    trained = pretrain(toy_masked_lm_data, tmp_path / "stock", *flags)
    words = ("--dict", toy_masked_lm_data / "dict.txt", "--check")
    lines = run("--from", "fairseq-roberta", trained, tmp_path / "ours", *words)
    assert lines[-1].startswith("logits: largest difference")


@pytest.mark.parametrize("separator", [True, False])
def test_classifier(separator, toy_sentence_data, tmp_path):
    flags = ("--num-classes", 2, "--arch", "roberta", "--max-update", 1)
    data = toy_sentence_data["single"]
    trained = finetune(data, tmp_path / "stock", *flags, separator=separator)
    words = toy_sentence_data["single"] / "input0" / "dict.txt"
    run("--from", "fairseq-roberta", trained, tmp_path / "ours", "--dict", words, "--check")
    ours = TupeRobertaModel.from_pretrained(tmp_path / "ours")
    assert ours.separator == separator
    # The first two lines have the labels of the data, "0" and "1".
    assert (tmp_path / "ours/label/dict.txt").read_text().split()[::2] == ["0", "1"]
    (theirs,), _ = checkpoint_utils.load_model_ensemble([str(trained)])
    tokens = torch.randint(4, 200, (2, 30))
    head = "sentence_classification_head"
    with torch.no_grad():
        expected = theirs.eval()(tokens, classification_head_name=head)[0]
    assert_close(ours.predict(head, tokens, return_logits=True), expected)


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (("--position-encoding", "rotary"), "'rotary', but the known ones"),
        (("--dict", "tokens.txt"), "6 symbols, but the checkpoint has embeddings for 205"),
        (("--dict", "words.txt"), "words.txt does not exist: give --dict FILE"),
    ],
)
def test_refusals(stock, tmp_path, monkeypatch, flags, part):
    """Damaged parameters are refused as those of `tupe-official`."""
    monkeypatch.chdir(tmp_path)
    Path("tokens.txt").write_text("one 1\n")
    with refused(part):
        run("--from", "fairseq-roberta", stock, "out", *flags)
    assert not Path("out").exists()


def test_checkpoints_of_this_package_are_refused(stock, tmp_path):
    """Unless they are as stock RoBERTa: their options would be lost."""
    flags = ("--position-encoding", "t5")
    for name, more in (("learned", ()), ("ours", flags)):
        run("--from", "fairseq-roberta", stock, tmp_path / name, *more)
    run("--from", "fairseq-roberta", tmp_path / "learned", tmp_path / "again", *flags)
    for source, part in (("ours", "with t5: leave out --from"), ("our", "does not exist")):
        with refused(str(tmp_path / source), part):
            run("--from", "fairseq-roberta", tmp_path / source, tmp_path / "more")
