"""What fairseq's own test-suite does with transformers, with our architectures in their place."""

import io
import json
import logging
import math
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq_cli import eval_lm as fairseq_eval_lm
from fairseq_cli import interactive as fairseq_interactive
from fairseq_cli import validate as fairseq_validate

from tests.fairseq_commands import (
    PLUGIN,
    configuration,
    generate,
    generated,
    load,
    parameters,
    train_lm,
    train_translation,
)
from tests.tolerances import LOSSES, assert_close, assert_trained_alike
from tests.toy_data import word_dictionary

USER = ("--user-dir", str(PLUGIN), "--cpu", "--num-workers", "0", "--no-progress-bar")
#: Flags of language modelling that are the task's, and their values.
TASK = ("--add-bos-token", "--sample-break-mode", "eos")
#: Of the translation model that tests read.
FLAGS = ("--share-all-embeddings", "--position-encoding", "t5")


@pytest.fixture(scope="module")
def translator(toy_translation_data, tmp_path_factory):
    return train_translation(toy_translation_data, tmp_path_factory.mktemp("m"), *FLAGS)


@torch.no_grad()
def logs_of(
    models: list[torch.nn.Module], words: str, source: str | None = None, temperature: float = 1
) -> torch.Tensor:
    """Base 2, of the mean probability of each word and of </s>: all words at once, in double."""
    symbols = word_dictionary()
    encode = partial(symbols.encode_line, add_if_not_exist=False)
    ids = encode(words).long()
    read = [] if source is None else [encode(source).long()[None], None]
    given = ids.roll(1)[None]
    logits = [model.double()(*read, given)[0][0] / temperature for model in models]
    probabilities = torch.stack(logits).softmax(-1).mean(0)
    return probabilities.gather(1, ids[:, None])[:, 0].log2()


def is_shown(lines: dict[str, list[str]]) -> bool:
    """Whether the hypothesis has no <s> or further </s>, which fairseq does not print."""
    return len(lines["H"][1].split()) + 1 == len(lines["P"][0].split())


@pytest.mark.parametrize(
    ("flags", "lenpen", "temperature"),
    [
        (("--lenpen", 0.6, "--no-repeat-ngram-size", 2, "--prefix-size", 1), 0.6, 1),
        (("--sampling", "--sampling-topk", 3, "--temperature", 2), 1, 2),
        # A penalty of groups that are alike would be part of the scores.
        (("--beam", 4, "--diverse-beam-groups", 2, "--diverse-beam-strength", 0), 1, 1),
    ],
    ids=["beams", "sampling", "groups"],
)
def test_scores_of_translations(toy_translation_data, translator, flags, lenpen, temperature):
    found = generated(toy_translation_data, translator, "--beam", 2, *flags)
    assert len(found) == 16
    model = load(translator)
    complete = [lines for lines in found.values() if is_shown(lines)]
    # A group goes on after </s>.
    assert len(complete) == 16 or "--diverse-beam-groups" in flags
    assert complete
    for lines in complete:
        told, words = lines["H"]
        logs = logs_of([model], words, *lines["S"], temperature)
        assert_close(torch.tensor(float(told)), (logs.sum() / len(logs) ** lenpen).float())


def test_translations_of_the_length_of_the_source(toy_translation_data, translator):
    """Each has as many words as the source with its </s>, and </s> costs nothing."""
    flags = ("--print-alignment", "--match-source-len")
    # --left-pad-source turns off what is on by default.
    found, padded_right = (
        generated(toy_translation_data, translator, *flags, *more)
        for more in ((), ("--left-pad-source",))
    )
    assert found.keys() == padded_right.keys()
    model = load(translator)
    for i, lines in found.items():
        (source,) = lines["S"]
        told, words = lines["H"]
        length = len(source.split()) + 1
        assert len(words.split()) == length
        logs = logs_of([model], words, source)[:-1]
        assert_close(torch.tensor(float(told)), (logs.sum() / (length + 1)).float())
        targets = [int(pair.partition("-")[2]) for pair in lines["A"][0].split()]
        assert targets == list(range(length))
        assert (padded_right[i]["A"], padded_right[i]["H"][1]) == (lines["A"], words)


def test_padding_of_batches_changes_no_translation(toy_translation_data, translator):
    flags = ("--max-len-b", 10)
    together = generate(toy_translation_data, translator, *flags, "--batch-size", 16)
    assert together == generate(toy_translation_data, translator, *flags, "--batch-size", 1)


def test_an_ensemble_translates(toy_translation_data, translator, tmp_path):
    flags = ("--share-all-embeddings", "--seed", 3)
    other = train_translation(toy_translation_data, tmp_path, *flags)
    found = generated(toy_translation_data, f"{translator}:{other}", "--max-len-b", 10)
    assert len(found) == 16
    models = [load(translator), load(other)]
    for lines in found.values():
        told, words = lines["H"]
        expected = logs_of(models, words, *lines["S"]).mean()
        assert_close(torch.tensor(float(told)), expected.float())


def test_interactive(toy_translation_data, translator, monkeypatch, capsys):
    """With an empty line among others, which is a sentence of </s> alone."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("w1 w2 w3\n\nw4\n"))
    parser = options.get_interactive_generation_parser()
    flags = [str(toy_translation_data), "--path", str(translator), *USER, "--beam", "2"]
    fairseq_interactive.main(configuration(options.parse_args_and_arch(parser, flags)))
    told = capsys.readouterr().out
    assert [f"H-{i}\t" in told for i in range(4)] == [True, True, True, False]


def test_validate(toy_translation_data, translator, caplog):
    parser = options.get_validation_parser()
    flags = [str(toy_translation_data), "--path", str(translator), *USER, "--log-format", "json"]
    flags += ["--task", "translation", "--valid-subset", "valid", "--max-tokens", "500"]
    with caplog.at_level(logging.INFO):
        fairseq_validate.main(configuration(options.parse_args_and_arch(parser, flags)))
    (told,) = (json.loads(r.getMessage()) for r in caplog.records if r.name == "valid")
    in_training = torch.load(translator, weights_only=True)["extra_state"]["val_loss"]
    # Both are rounded.
    assert float(told["valid_loss"]) == pytest.approx(in_training, abs=LOSSES)
    # After four updates, near that of a guess: log2(204) = 7.7 bits.
    assert 6 < in_training < 9


def test_training_learns_to_read_backwards(toy_translation_data, tmp_path):
    flags = ("--share-all-embeddings", "--dropout", 0, "--position-encoding", "tupe_r")
    longer = ("--max-update", 60, "--lr", 0.01, "--batch-size", 50)
    seldom = ("--validate-interval", 100, "--save-interval", 100)
    checkpoint = train_translation(toy_translation_data, tmp_path, *flags, *longer, *seldom)
    state = torch.load(checkpoint, weights_only=True)["extra_state"]
    # Of 200 words all but sure: far below log2(200) = 7.6 bits.
    assert state["best"] < 5


@pytest.mark.parametrize(
    "flags",
    [
        ("--no-cross-attention", "--adaptive-softmax-cutoff", "50,100"),
        (
            *(
                "--encoder-normalize-before",
                "--decoder-normalize-before",
                "--decoder-output-dim",
                24,
            ),
            *("--attention-dropout", 0.1, "--activation-dropout", 0.1, "--activation-fn", "gelu"),
            *("--quant-noise-pq", 0.5, "--quant-noise-pq-block-size", 8),
            *("--position-encoding", "tupe_a", "--no-tie-cls"),
        ),
    ],
    ids=lambda flags: str(flags[0]),
)
def test_other_flags(toy_translation_data, tmp_path, flags):
    adaptive = "--adaptive-softmax-cutoff" in flags
    criterion = ("--criterion", "adaptive_loss") if adaptive else ()
    trained = load(train_translation(toy_translation_data, tmp_path, *flags, *criterion))
    assert all(parameter.isfinite().all() for parameter in trained.parameters())


def test_pruning_of_layers(toy_translation_data, tmp_path):
    flags = ("--encoder-layerdrop", 0.5, "--decoder-layerdrop", 0.5)
    checkpoint = train_translation(toy_translation_data, tmp_path, *flags)
    overrides = {"encoder_layers_to_keep": "0", "decoder_layers_to_keep": "1"}
    model = load(checkpoint, **overrides)
    assert len(model.encoder.layers) == len(model.decoder.layers) == 1


def test_activation_checkpointing_changes_nothing(toy_translation_data, translator, tmp_path):
    saving = train_translation(toy_translation_data, tmp_path, *FLAGS, "--checkpoint-activations")
    assert_trained_alike(parameters(saving), parameters(translator))


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--add-bos-token",),
        ("--sample-break-mode", "eos", "--position-encoding", "alibi"),
        ("--attention-window", 5, "--position-encoding", "rope"),
        ("--share-decoder-input-output-embed", "--position-encoding", "cnn"),
        ("--adaptive-softmax-cutoff", "50,100", "--criterion", "adaptive_loss"),
    ],
    ids=lambda flags: str(flags[0]) if flags else "plain",
)
def test_language_modelling(toy_masked_lm_data, tmp_path, flags):
    """The loss by fairseq-eval-lm is that of each text alone, in double precision."""
    checkpoint = train_lm(toy_masked_lm_data, tmp_path, *flags)
    parser = options.get_eval_lm_parser()
    given = [str(toy_masked_lm_data), "--path", str(checkpoint), *USER, "--gen-subset", "valid"]
    # The command does not take them from the checkpoint.
    given += ["--tokens-per-sample", "32", *(flag for flag in flags if flag in TASK)]
    found = fairseq_eval_lm.main(configuration(options.parse_args_and_arch(parser, given)))
    assert_close(found["loss"], loss_of_each(checkpoint).float())


@torch.no_grad()
def loss_of_each(checkpoint: Path) -> torch.Tensor:
    """Bits per token of the held-out text, without batches; <s> at the beginning is given."""
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])
    model.double().eval()
    task.load_dataset("valid")
    losses = []
    for example in task.dataset("valid"):
        target = example["target"]
        out = model(example["source"][None])
        logs = model.get_normalized_probs(out, True, {"target": target[None]})[0]
        each = [-logs[i, word].item() for i, word in enumerate(target)]
        losses += each[task.args.add_bos_token :]
    return torch.tensor(losses, dtype=torch.double).mean() / math.log(2)


def test_generation_with_a_language_model(toy_masked_lm_data, toy_language_model):
    """--sample-break-mode eos: each line is a prefix."""
    task = ("--task", "language_modeling", "--sample-break-mode", "eos", "--gen-subset", "valid")
    flags = (*task, "--max-len-b", 30, "--beam", 2)
    found = generated(toy_masked_lm_data, toy_language_model, *flags)
    assert len(found) == 60
    assert all(lines["H"][1].startswith(lines["S"][0]) for lines in found.values())
    model = load(toy_language_model)
    complete = [lines for lines in found.values() if is_shown(lines)]
    assert len(complete) > 50
    for lines in complete:
        told, words = lines["H"]
        assert_close(torch.tensor(float(told)), logs_of([model], words).mean().float())
