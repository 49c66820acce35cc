"""Training with alignments (Garg et al. 2019), also of models without an alignment layer."""

import shutil

import pytest
import torch
from fairseq.data import data_utils, indexed_dataset

from tests.fairseq_commands import train_translation
from tests.toy_data import word_dictionary

SIZES = [
    word
    for side in ("encoder", "decoder")
    for word in (
        f"--{side}-layers",
        2,
        f"--{side}-embed-dim",
        32,
        f"--{side}-ffn-embed-dim",
        32,
        f"--{side}-attention-heads",
        4,
    )
]


@pytest.mark.parametrize("arch", ["transformer", "tupe_transformer"])
def test_trains(arch, toy_translation_data, tmp_path):
    data = shutil.copytree(toy_translation_data, tmp_path / "data")
    for split in ("train", "valid"):
        pairs = str(data / f"{split}.en-de.en"), str(data / f"{split}.align.en-de")
        sources = data_utils.load_indexed_dataset(pairs[0], word_dictionary(), None)
        builder = indexed_dataset.make_builder(f"{pairs[1]}.bin", "mmap", vocab_size=None)
        for i in range(len(sources)):
            n = len(sources[i]) - 1
            builder.add_item(torch.tensor([x for j in range(n) for x in (j, n - 1 - j)]))
        builder.finalize(f"{pairs[1]}.idx")
    train_translation(
        data,
        tmp_path / "m",
        "--arch",
        arch,
        *SIZES,
        "--load-alignments",
        "--max-update",
        2,
        "--criterion",
        "label_smoothed_cross_entropy_with_alignment",
        "--label-smoothing",
        0.1,
    )
