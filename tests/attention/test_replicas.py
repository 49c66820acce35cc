"""Replicas of nn.DataParallel, which the Trainer of transformers makes for several GPUs."""

import pytest
import torch
from torch import nn

from tests.attention.cases import EMBED_DIM, ENCODINGS, build, normal, padding_mask, run


def replica(module: nn.Module) -> nn.Module:
    """As torch.nn.parallel.replicate makes it: parameters become attributes."""
    made = module._replicate_for_data_parallel()
    for name, child in module._modules.items():
        made._modules[name] = None if child is None else replica(child)
    for name, tensor in (*module._parameters.items(), *module._buffers.items()):
        setattr(made, name, None if tensor is None else tensor.clone())
    return made


@pytest.mark.parametrize("case", ENCODINGS)
def test_replicas_compute_the_same(case):
    encoding, attention = build(case, 9)
    encoding.eval()
    x = normal(2, 9, EMBED_DIM, seed=0)
    padding = padding_mask(9, 0, 4)
    expected = run(encoding, attention, x, padding, backend="eager")
    found = run(replica(encoding), replica(attention), x, padding, backend="eager")
    torch.testing.assert_close(found, expected)
