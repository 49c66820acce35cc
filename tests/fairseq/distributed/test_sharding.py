"""FSDP as far as a CPU allows: what fairseq is asked to wrap, and torch's FSDP with Gloo.

fairseq's --ddp-backend fully_sharded itself needs fairscale and GPUs.
"""

from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from fairseq.data import Dictionary
from torch import nn

from tests import processes
from tupe_fairseq import TupeRobertaModel
from tupe_fairseq.fairseq.models import fairseq_layers

#: With parameters in the layers, in the encoding, in both; all others were tried by hand.
NAMES = ("tupe_a", "tupe_r", "transformer_xl", "deberta", "fire", "rnn")


class Wrapped(nn.Module):
    """Passes attributes on, as FSDP does."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.module, name)


@pytest.mark.parametrize(("checkpointed", "smallest"), [(False, 1234), (True, 0)])
def test_layers_are_wrapped_one_by_one(monkeypatch, checkpointed, smallest):
    """With --checkpoint-activations all of them, as in stock fairseq."""
    wrapped = []

    def record(layer, min_num_params):
        wrapped.append((layer, min_num_params))
        return Wrapped(layer)

    monkeypatch.setattr(fairseq_layers, "fsdp_wrap", record)
    arguments = Namespace(
        encoder_layers=2,
        encoder_embed_dim=16,
        encoder_ffn_embed_dim=16,
        encoder_attention_heads=2,
        max_positions=8,
        checkpoint_activations=checkpointed,
        min_params_to_wrap=1234,
        position_encoding="tupe_r",
    )
    model = TupeRobertaModel.build_model(
        arguments, SimpleNamespace(source_dictionary=Dictionary())
    )
    layers = list(model.encoder.sentence_encoder.layers)
    assert [number for _, number in wrapped] == [smallest] * 2
    assert [layer.module for layer in layers] == [layer for layer, _ in wrapped]


@pytest.mark.slow
@pytest.mark.skipif(
    torch.__version__ < "2.13",
    reason="on CPUs, fully_shard fails in torch 2.6 and trains linear layers wrongly in 2.8",
)
def test_sharded_layers_train_as_whole_ones(tmp_path):
    """Two ranks with half of the batch each, and one with all of it."""
    ranks = [
        processes.Program("tests.fairseq.distributed.sharded", rank, 2, tmp_path / "store", *NAMES)
        for rank in range(2)
    ]
    for ended in [rank.wait() for rank in ranks]:
        assert ended.returncode == 0, ended.stderr[-3000:]
        assert ended.stdout.splitlines() == [f"{n} equals" for n in NAMES for _ in range(2)]
