"""Sequences that are attended to as if they were alone: equal bits in every batch."""

import pytest
import torch
from torch import Tensor

from tupe_fairseq.attention import LayerPlan, Layout, Padding, TupeMultiheadAttention
from tupe_fairseq.kernels.quantized import QuantizedLinear
from tupe_fairseq.position import build_position_encoding

EMBED_DIM = 48
NUM_HEADS = 4
LENGTHS = (300, 1, 130, 64, 9, 129, 5, 2, 65, 31)


class Encoder:
    """One attention, whose products do not depend on the batch either."""

    def __init__(self, name: str, window: int | None):
        torch.manual_seed(1)
        self.encoding = build_position_encoding(name, EMBED_DIM, NUM_HEADS, 320).eval()
        terms = self.encoding.build_layer_terms()
        self.attention = TupeMultiheadAttention(EMBED_DIM, NUM_HEADS, layer_terms=terms).eval()
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            setattr(self.attention, part, QuantizedLinear(getattr(self.attention, part)))
        self.plan = LayerPlan.of(self.encoding, terms, window)

    @torch.no_grad()
    def outputs(self, sentences: list[Tensor]) -> list[Tensor]:
        batch = torch.nn.utils.rnn.pad_sequence(sentences, batch_first=True)
        lengths = torch.tensor([len(each) for each in sentences])
        hidden = torch.arange(batch.size(1)) >= lengths[:, None]
        layout = Layout.of(Padding.read(hidden), *hidden.shape, alone=True)
        x = layout.pack(batch)
        prepared = self.plan.prepare(self.encoding, x, layout, "blocked")
        out = layout.unpack(self.attention(x, prepared))
        return [row[:length] for row, length in zip(out, lengths, strict=True)]


@pytest.mark.parametrize("window", [None, 8])
@pytest.mark.parametrize("name", ["none", "rope", "deberta", "shaw", "alibi"])
def test_a_sequence_has_the_same_bits_in_every_batch(name, window, way):
    encoder = Encoder(name, window)
    sentences = [torch.randn(length, EMBED_DIM) for length in LENGTHS]
    alone = [encoder.outputs([each])[0] for each in sentences]
    for order in (range(len(LENGTHS)), (6, 4, 9), (2, 5), (3, 8, 1, 7), (0, 0)):
        together = encoder.outputs([sentences[i] for i in order])
        assert all(map(torch.equal, together, (alone[i] for i in order)))
