"""The transformer models under fairseq-hydra-train: `model._name=NAME`, keys like the flags."""

import pytest
import torch

from tests.examples.hydra_configs import QUIET, composed
from tests.fairseq.training.test_bad_input import told
from tests.fairseq_commands import load, train_by

pytestmark = [pytest.mark.filterwarnings(text) for text in QUIET]

TRANSLATION = """
task: {_name: translation, data: '???', source_lang: en, target_lang: de}
criterion: {_name: label_smoothed_cross_entropy, label_smoothing: 0.1}
model:
  _name: tupe_transformer_tiny
  position_encoding: t5
  num_buckets: 8
  max_distance: 16
  encoder_layers: 1
  decoder_layers: 1
  share_all_embeddings: true
"""
LANGUAGE_MODEL = """
task: {_name: language_modeling, data: '???', tokens_per_sample: 32}
criterion: {_name: cross_entropy}
model: {_name: tupe_transformer_lm_tiny, position_encoding: tupe_a, decoder_layers: 1}
"""
COMMON = """
common: {cpu: true, no_progress_bar: true}
dataset: {batch_size: 16, num_workers: 0, required_batch_size_multiple: 1}
optimization: {lr: [0.001], max_update: 2}
optimizer: {_name: adam}
lr_scheduler: {_name: fixed}
distributed_training: {distributed_world_size: 1, ddp_backend: legacy_ddp}
checkpoint: {save_dir: '???', no_epoch_checkpoints: true}
"""


def configured(text, data, folder, *overrides):
    path = folder / "config" / "small.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"# @package _group_\n{text}{COMMON}")
    places = (f"task.data={data}", f"checkpoint.save_dir={folder / 'saved'}")
    return composed(path, *places, *overrides)


@pytest.mark.parametrize("text", [TRANSLATION, LANGUAGE_MODEL], ids=["translation", "lm"])
def test_trains_and_reloads(text, toy_translation_data, toy_masked_lm_data, tmp_path):
    data = toy_translation_data if text == TRANSLATION else toy_masked_lm_data
    model = load(train_by(configured(text, data, tmp_path)))
    positions = model.decoder.embed_positions
    assert positions.shape.bidirectional is False
    if text == TRANSLATION:
        assert len(positions.relative_bias.weight) == 8
    else:
        assert positions.untie_cls is False
        assert positions.shape.max_positions == 32
        assert torch.isfinite(model(torch.randint(4, 200, (1, 32)))[0]).all()


def test_a_key_that_is_none_is_told(toy_translation_data, tmp_path):
    cfg = configured(TRANSLATION, toy_translation_data, tmp_path, "+model.num_bucket=8")
    with pytest.raises(Exception) as error:  # noqa: PT011
        train_by(cfg)
    assert "did you mean model.num_buckets?" in told(error)
