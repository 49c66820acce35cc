"""Training through fairseq: interruptions, regularisers, and what a checkpoint is good for."""

import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from tests import toy_data
from tests.fairseq_commands import (
    COMMON,
    FINETUNE,
    SMALL,
    configuration,
    finetune,
    load,
    parameters,
    pretrain,
    train,
    updates,
)
from tests.tolerances import assert_trained_alike

#: Two have random positions, which follow the number of updates.
ENCODINGS = ("tupe_r", "learned", "cape", "shape")


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


def test_configuration_is_that_of_fairseq_train(tmp_path):
    """That of trainings here, which hydra composes once for many of them."""
    words = (tmp_path / "a=1, (b)", "--task", "masked_lm", "--criterion", "masked_lm", *SMALL)
    flags = [*map(str, words), *COMMON, "--store-ema", "--adam-betas", "(0.9, 0.98)"]
    arguments = options.parse_args_and_arch(options.get_training_parser(), flags)
    assert str(configuration(arguments)) == str(convert_namespace_to_omegaconf(arguments))


def test_a_task_without_data_reads_no_files(tmp_path, monkeypatch):
    """fairseq's task for measurements makes its batches; the folder has data of others."""
    monkeypatch.setattr("sys.argv", ["fairseq-train"])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.idx").write_bytes(b"not fairseq's")
    task = ("--task", "dummy_masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", 16)
    sizes = ("--dict-size", 50, "--dataset-size", 32, "--max-update", 1)
    saved = train(*task, *sizes, *COMMON, *SMALL, "--save-dir", tmp_path / "model")
    assert updates(saved) == 1


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_resumed_equals_uninterrupted(toy_masked_lm_data, tmp_path, encoding):
    """Interrupted in the middle of an epoch, with dropout."""
    flags = ("--position-encoding", encoding, "--save-interval-updates", 3)
    whole = pretrain(toy_masked_lm_data, tmp_path / "whole", *flags, "--max-update", 8)
    pretrain(toy_masked_lm_data, tmp_path / "parts", *flags, "--max-update", 3)
    parts = pretrain(toy_masked_lm_data, tmp_path / "parts", *flags, "--max-update", 8)
    assert_same(parameters(whole), parameters(parts))


@pytest.mark.parametrize(
    ("limit", "more"), [(("--max-epoch", 1, "--max-update", 100), 0), (("--max-update", 3), 1)]
)
def test_a_finished_run_leaves_the_process_to_others(
    limit, more, toy_masked_lm_data, tmp_path, monkeypatch, caplog
):
    """It may be one run of a sweep, or the teacher of another model. fairseq makes one update more
    if --max-update is reached, and none if --max-epoch is.
    """
    monkeypatch.setattr("sys.argv", ["fairseq-train"])
    checkpoint = pretrain(toy_masked_lm_data, tmp_path, *limit)
    before = updates(checkpoint)
    caplog.clear()
    pretrain(toy_masked_lm_data, tmp_path, *limit)
    assert updates(checkpoint) == before + more
    assert "done training" in caplog.messages[-1]
    assert bool(more) == any("Stopping training due to" in line for line in caplog.messages)
    (teacher,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])
    assert_same(parameters(checkpoint), teacher.state_dict())


@pytest.mark.parametrize(("encoding", "fast"), [("tupe_r", "blocked"), ("tupe_a", "flash")])
def test_backends_train_the_same_model(toy_masked_lm_data, tmp_path, encoding, fast):
    """Ten updates without dropout, whose masks depend on the order of draws.

    A large eps keeps Adam from blowing the rounding of zero gradients up to whole steps.
    """
    flags = ("--dropout", 0, "--attention-dropout", 0, "--max-update", 10, "--adam-eps", 0.001)
    flags += ("--position-encoding", encoding, "--attention-backend")
    plain, trained = (
        pretrain(toy_masked_lm_data, tmp_path / name, *flags, name) for name in ("eager", fast)
    )
    assert_trained_alike(parameters(trained), parameters(plain))


#: Together: what each does to outputs is tested where it is computed.
FLAGS = (
    *(
        "--quant-noise-pq",
        0.2,
        "--quant-noise-pq-block-size",
        4,
        "--store-ema",
        "--ema-decay",
        0.9,
    ),
    *("--update-freq", 2, "--attention-window", 4, "--global-every", 2, "--tie-cls"),
    *("--sample-break-mode", "eos", "--encoder-normalize-before", "--untie-weights-roberta"),
    *("--num-buckets", 8, "--max-distance", 16, "--activation-fn", "relu"),
    *("--activation-dropout", 0.1),
)


def test_flags_of_roberta_and_ours_train(toy_masked_lm_data, tmp_path):
    trained = load(pretrain(toy_masked_lm_data, tmp_path, *FLAGS))
    assert all(parameter.isfinite().all() for parameter in trained.parameters())
    args = trained.args
    assert (args.num_buckets, args.tie_cls, args.attention_window) == (8, True, 4)


def test_layers_to_keep(toy_masked_lm_data, tmp_path):
    """A model trained with layerdrop is pruned when loaded."""
    checkpoint = pretrain(toy_masked_lm_data, tmp_path, "--encoder-layerdrop", 0.5)
    assert all(parameter.isfinite().all() for parameter in load(checkpoint).parameters())
    pruned = load(checkpoint, encoder_layers_to_keep="1")
    assert len(pruned.encoder.sentence_encoder.layers) == 1
    kept = pruned.state_dict()["encoder.sentence_encoder.layers.0.fc1.weight"]
    assert torch.equal(
        kept, parameters(checkpoint)["encoder.sentence_encoder.layers.1.fc1.weight"]
    )


def test_training_learns(toy_masked_lm_data, tmp_path):
    """On a language whose words follow from their neighbours the loss falls."""
    flags = ("--max-update", 150, "--lr", 0.01, "--dropout", 0, "--attention-dropout", 0)
    seldom = ("--validate-interval", 100, "--save-interval", 100)
    checkpoint = pretrain(toy_masked_lm_data, tmp_path, *flags, *seldom)
    state = torch.load(checkpoint, weights_only=True)
    uniform = torch.log2(torch.tensor(204.0))
    assert state["extra_state"]["best"] < uniform - 2


def test_finetuning_starts_from_the_pretrained_model(toy_sentence_data, tmp_path, toy_checkpoint):
    flags = ("--num-classes", 2, "--restore-file", toy_checkpoint, *FINETUNE, "--lr", 0)
    tuned = parameters(finetune(toy_sentence_data["pairs"], tmp_path / "tuned", *flags))
    for name, value in parameters(toy_checkpoint).items():
        assert torch.equal(tuned[name], value), name
    assert any(name.startswith("classification_heads.") for name in tuned)


def test_empty_lines_are_data(tmp_path):
    """fairseq keeps an empty line as a sentence of </s> alone: document ends, empty examples."""
    lines = ["w1 w2 w3", "", "w4 w5", ""] * 20
    for split in ("train", "valid"):
        toy_data.write_split(tmp_path / "data", split, lines, toy_data.word_dictionary())
    for mode in ("eos", "complete_doc"):
        flags = ("--sample-break-mode", mode)
        assert pretrain(tmp_path / "data", tmp_path / mode, *flags).exists()
