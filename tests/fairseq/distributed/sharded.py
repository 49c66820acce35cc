"""A program: one rank of a model that torch's FSDP shards, compared with the whole model.

    python -m tests.fairseq.distributed.sharded RANK RANKS STORE NAME...

Every rank has its share of one batch. After an update, the parameters must be those of a model
that has seen all of it. Layers are units of their own, as fairseq's fsdp_wrap makes them.
"""

import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from tests.attention.cases import OPTIONS, VOCAB_SIZE, normal
from tests.tolerances import assert_trained_alike
from tupe_fairseq.position import build_position_encoding
from tupe_fairseq.transformer.config import StackConfig
from tupe_fairseq.transformer.stack import TransformerStack

LENGTH = 9
WIDTH = 16
BATCH = 4


def build(name: str, checkpointed: bool) -> TransformerStack:
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCAB_SIZE, "num_layers": 2}
    encoding = build_position_encoding(name, WIDTH, 4, LENGTH, **sizes | OPTIONS.get(name, {}))
    config = StackConfig(
        2, 32, dropout=0.0, attention_dropout=0.0, checkpoint_activations=checkpointed
    )
    return TransformerStack(encoding, config)


def update(model: TransformerStack, rows: slice) -> None:
    """One update on these rows of the batch."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = normal(BATCH, LENGTH, WIDTH, seed=1)
    mask = (torch.arange(LENGTH) >= 7).expand(BATCH, -1)
    ids = (3 * torch.arange(LENGTH) % VOCAB_SIZE).expand(BATCH, -1)
    out = model(x[rows], mask[rows], ids[rows]).masked_fill(mask[rows][:, :, None], 0)
    (out * normal(BATCH, LENGTH, WIDTH, seed=2)[rows]).sum(-1).mean().backward()
    optimizer.step()


def main(rank: int, ranks: int, store: str, names: list[str]) -> None:
    dist.init_process_group(
        "gloo", store=dist.FileStore(store, ranks), rank=rank, world_size=ranks
    )
    mesh = init_device_mesh("cpu", (ranks,))
    for name in names:
        for checkpointed in (False, True):
            whole = build(name, False)
            sharded = build(name, checkpointed)
            for layer in sharded.layers:
                fully_shard(layer, mesh=mesh)
            fully_shard(sharded, mesh=mesh)
            parts = [p.to_local().numel() for p in sharded.parameters()]
            assert sum(parts) < sum(p.numel() for p in whole.parameters())
            share = BATCH // ranks
            update(sharded, slice(rank * share, (rank + 1) * share))
            update(whole, slice(BATCH))
            found = {n: p.detach().full_tensor() for n, p in sharded.named_parameters()}
            assert_trained_alike(found, {n: p.detach() for n, p in whole.named_parameters()})
            print(f"{name} equals")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
