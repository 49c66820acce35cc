"""fairseq-hydra-train: the YAML files compose, build and train; presets are the command line's."""

import sys
from pathlib import Path

import pytest
import torch
from fairseq import options

from tests.examples.hydra_configs import (
    FILES,
    GLUE,
    MAIN,
    ON_CPU,
    PRETRAINING,
    QUIET,
    ROOT,
    SHARED,
    SLURM,
    build,
    commanded,
    composed,
    relative,
    run_command,
)
from tests.fairseq_commands import configuration, parameters, train_by, updates
from tupe_fairseq import TupeRobertaModel, UsageError
from tupe_fairseq.fairseq.arguments.architectures import ROBERTA_ARCHITECTURES
from tupe_fairseq.position import POSITION_ENCODINGS

pytestmark = [pytest.mark.filterwarnings(text) for text in QUIET]

TINY = PRETRAINING / "tiny.yaml"

# ---------------------------------------------------------------- files compose and build


def test_all_files_are_tested():
    assert MAIN
    assert SLURM
    assert set(FILES) == {*MAIN, *SHARED, *SLURM}


@pytest.mark.parametrize("path", MAIN, ids=relative)
def test_file_builds_what_its_header_commands(path):
    cfg = commanded(path)
    assert Path(cfg.common.user_dir) == ROOT / "tupe_fairseq"
    model = build(cfg)
    assert isinstance(model, TupeRobertaModel)
    assert cfg.model._name in ROBERTA_ARCHITECTURES
    assert model.args.position_encoding == "tupe_r"
    if cfg.task._name == "masked_lm":
        assert model.max_positions() == cfg.task.tokens_per_sample
    else:
        assert model.max_positions() == cfg.task.max_positions
        head = model.classification_heads[cfg.criterion.classification_head_name]
        assert head.out_proj.out_features == cfg.task.num_classes


def test_another_encoding():
    changes = ("model.position_encoding=tupe_a", "+model.tie_cls=true")
    encoder = build(composed(TINY, *changes)).encoder.sentence_encoder
    assert type(encoder.embed_positions) is POSITION_ENCODINGS["tupe_a"]
    assert encoder.embed_positions.untie_cls is False


# ---------------------------------------------------------------- presets


def command_line_arguments(arch: str) -> dict:
    parser = options.get_training_parser(default_task="masked_lm")
    words = ["DATA", "--task", "masked_lm", "--criterion", "masked_lm", "--arch", arch]
    cfg = configuration(options.parse_args_and_arch(parser, words))
    return vars(build(cfg).args)


@pytest.fixture(scope="module")
def stock_arguments() -> dict:
    return command_line_arguments("roberta_base")


#: Layers, width, width of the feed-forward block, heads.
SIZES = {
    "tupe_roberta": (12, 768, 3072, 12),
    "tupe_roberta_tiny": (4, 128, 512, 4),
    "tupe_roberta_small": (6, 512, 2048, 8),
    "tupe_roberta_base": (12, 768, 3072, 12),
    "tupe_roberta_large": (24, 1024, 4096, 16),
    "tupe_roberta_prenorm": (12, 768, 3072, 12),
    "tupe_roberta_modern_tiny": (4, 128, 352, 4),
    "tupe_roberta_modern_small": (6, 512, 1376, 8),
    "tupe_roberta_modern_base": (22, 768, 1152, 12),
}


@pytest.mark.parametrize("arch", ROBERTA_ARCHITECTURES)
def test_preset_differs_from_stock_in_sizes_only(arch, stock_arguments):
    """Or also in the place of norms; and is the same under hydra and on the command line."""
    names = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")
    sizes = {f"encoder_{name}": size for name, size in zip(names, SIZES[arch], strict=True)}
    flags = command_line_arguments(arch)
    sizes["encoder_normalize_before"] = "modern" in arch or "prenorm" in arch
    sizes["layernorm_embedding"] = "prenorm" not in arch
    expected = {**stock_arguments, **sizes, "arch": arch, "_name": arch}
    assert {key: flags.get(key) for key in expected} == expected
    cfg = composed(TINY, f"model={{_name:{arch}}}", "task.tokens_per_sample=1024")
    hydra = dict(build(cfg).args)
    assert len(hydra) > 30
    assert {key: flags.get(key) for key in hydra} == hydra


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("+model.positon_encoding=tupe_a", "did you mean model.position_encoding?"),
        ("+model.encoder_layer=2", "did you mean model.encoder_layers?"),
    ],
)
def test_mistake_in_the_model_is_told_in_one_line(override, message, monkeypatch):
    cfg = composed(TINY, override)
    with pytest.raises(UsageError, match=message):
        build(cfg)
    monkeypatch.setattr(sys, "argv", ["/usr/bin/fairseq-hydra-train"])
    with pytest.raises(SystemExit, match=message) as stopped:
        build(cfg)
    assert len(str(stopped.value).splitlines()) == 1


# ---------------------------------------------------------------- training


@pytest.fixture(scope="module")
def pretrained(toy_masked_lm_data, tmp_path_factory) -> Path:
    """Checkpoint of the command in the header of tiny.yaml, over two updates."""
    run = tmp_path_factory.mktemp("tiny")
    done = run_command(TINY, "optimization.max_update=2", data=toy_masked_lm_data, dir=run)
    assert done.returncode == 0, done.stderr
    return run / "checkpoints" / "checkpoint_last.pt"


def test_command_in_the_header_trains(pretrained):
    state = torch.load(pretrained, weights_only=True)
    assert state["cfg"]["model"]["_name"] == "tupe_roberta_tiny"
    assert updates(pretrained) == 2


def fine_tune(name: str, data: Path, start: Path | str, folder: Path, most: int = 1) -> Path:
    """Train on a GLUE file in this process; nothing moves, because the rate is 0."""
    cfg = composed(
        GLUE / f"{name}.yaml",
        f"task.data={data}",
        f"checkpoint.finetune_from_model={start}",
        "model._name=tupe_roberta_tiny",
        "task.max_positions=128",
        "optimization.lr=[0.0]",
        "lr_scheduler.warmup_updates=1",
        f"optimization.max_update={most}",
        *ON_CPU,
        f"checkpoint.save_dir={folder}",
    )
    return train_by(cfg)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("cola", "single"), ("qqp", "pairs"), ("sts_b", "regression"), ("mnli", "mnli")],
)
def test_glue_file_fine_tunes_the_pretrained_model(
    name, kind, toy_sentence_data, pretrained, tmp_path
):
    before = parameters(pretrained)
    after = parameters(fine_tune(name, toy_sentence_data[kind], pretrained, tmp_path))
    encoder = [key for key in before if key.startswith("encoder.sentence_encoder.")]
    assert encoder
    torch.testing.assert_close(
        {k: after[k] for k in encoder}, {k: before[k] for k in encoder}, rtol=0, atol=0
    )


def test_fine_tuning_resumes_without_the_pretrained_model(toy_sentence_data, pretrained, tmp_path):
    data = toy_sentence_data["single"]
    fine_tune("rte", data, pretrained, tmp_path)
    assert updates(fine_tune("rte", data, "/not/there.pt", tmp_path, most=2)) == 2
