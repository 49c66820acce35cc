"""Kernels of a training step on a GPU, and the bytes that they read and write, without a GPU.

    python scripts/count_kernels.py
    python scripts/count_kernels.py --encodings tupe_r --backends triton --padding 0.5 --lines 30

The step of BERT-Base in benchmark_training.py runs on tensors of torch's device "meta", which have
shapes and no values. An operator that launches kernels counts as one, attention too. Its bytes
are those of its arguments and results. `calls` are all operators that the host calls, also those
without a kernel, such as views. --lines lists operators by line of code, or in the backward pass
by the node of autograd.
"""

import argparse
import collections
import dataclasses
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from benchmark_training import VOCABULARY, WORKLOADS, Workload
from benchmarking.command import listed
from benchmarking.compare import Contender
from benchmarking.models import build
from benchmarking.peers import PADDING
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tupe_fairseq import UsageError
from tupe_fairseq.attention import ATTENTION_BACKENDS, Padding
from tupe_fairseq.base.errors import one_line_endings
from tupe_fairseq.position import POSITION_ENCODINGS

#: Operators without a kernel, besides views.
FREE = {"_unsafe_view", "_reshape_alias", "detach", "lift_fresh", "unbind", "split"}
ALLOCATES = ("empty", "new_empty")
#: What --batch and others change of the workload.
CHANGEABLE = ("batch", "length", "padding", "layers", "width", "heads", "ffn", "dropout")


class Answers(TorchFunctionMode):
    """Notes what the host reads of tensors, or answers with it on the device "meta"."""

    def __init__(self, known: Iterable[Any] = ()):
        super().__init__()
        self.known = list(known)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is not Tensor.tolist:
            return func(*args, **(kwargs or {}))
        if args[0].is_meta:
            return self.known.pop(0)
        self.known.append(func(*args))
        return self.known[-1]


class OnGpu(TorchFunctionMode):
    """Calls the operators that torch calls on a GPU, where it calls others on "meta"."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = kwargs or {}
        if func is F.dropout:
            p = given["p"]
            return torch.native_dropout(*args, p, True)[0] if p else args[0]
        if func is F.scaled_dot_product_attention:
            return attention(*args, **given)
        return func(*args, **given)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """FlashAttention, or with a bias the memory-efficient kernel: B×H×T×D -> B×H×T×D."""
    aten = torch.ops.aten
    if attn_mask is None:
        flash = aten._scaled_dot_product_flash_attention
        return flash(q, k, v, dropout_p, is_causal, False, scale=scale)[0]
    bias = attn_mask.expand(*q.shape[:3], k.size(2))
    efficient = aten._scaled_dot_product_efficient_attention
    return efficient(q, k, v, bias, True, dropout_p, is_causal, scale=scale)[0]


class Count(TorchDispatchMode):
    """Counts kernels and bytes by phase, operator and line."""

    def __init__(self):
        super().__init__()
        self.phase = "forward"
        self.calls = 0
        self.kernels = collections.Counter()
        self.bytes = collections.Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.calls += 1
        name = func._schema.name.split("::")[1]
        made = [each for each in tree_leaves(out) if isinstance(each, Tensor)]
        if made and not (func.is_view or name in FREE or name.startswith(ALLOCATES)):
            read = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
            key = self.phase, name, self.line()
            self.kernels[key] += 1
            self.bytes[key] += sum(each.numel() * each.element_size() for each in (*read, *made))
        return out

    def line(self) -> str:
        """Where in the package the operator is called, or the node of autograd."""
        if self.phase == "backward":
            node = torch._C._current_autograd_node()
            return node.name() if node is not None else ""
        frames = (f for f in traceback.extract_stack() if "/tupe_fairseq/" in f.filename)
        last = collections.deque(frames, 1)
        if not last:
            return ""
        file = last[0].filename.rpartition("/tupe_fairseq/")[2]
        return f"{file}:{last[0].lineno} {last[0].name}"

    def total(self, phase: str) -> int:
        """Kernels of a phase."""
        return sum(count for key, count in self.kernels.items() if key[0] == phase)


def counted(work: Workload, contender: Contender) -> Count:
    """Count a step of forward and backward pass."""
    model = build(work, contender, VOCABULARY)
    model = model.to("meta", getattr(torch, work.dtype)).train()
    tokens = work.tokens()
    with Answers() as answers:
        Padding.read(tokens == PADDING)
    tokens = tokens.to("meta")
    with Answers(answers.known), OnGpu(), Count() as count:
        features, _ = model(tokens, features_only=True)
        loss = features.square().mean()
        count.phase = "backward"
        loss.backward()
    return count


def report(work: Workload, contenders: Iterable[Contender], lines: int) -> Iterator[str]:
    """A row for each, and its lines."""
    yield f"{work}\n"
    yield f"{'encoding':14} {'backend':8} kernels  forward  backward  calls     GB"
    for each in contenders:
        count = counted(work, each)
        phases = count.total("forward"), count.total("backward")
        gigabytes = sum(count.bytes.values()) / 1e9
        row = f"{each.name:14} {each.backend:8} {sum(phases):7} {phases[0]:8} {phases[1]:9}"
        yield f"{row} {count.calls:6} {gigabytes:6.1f}"
        for key, number in count.kernels.most_common(lines):
            phase, name, line = key
            yield f"  {number:4} {count.bytes[key] / 1e9:6.2f} GB  {phase:8} {name:40} {line}"


def main(argv: list[str] | None = None) -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    default = "learned,tupe_a,tupe_r,rope"
    add("--encodings", metavar="NAMES", default=default, help="default: %(default)s")
    add("--backends", metavar="NAMES", default="triton", help="default: %(default)s")
    add("--lines", type=int, metavar="N", default=0, help="how many lines of each are listed")
    base = WORKLOADS["gpu-32x512"]
    for name in CHANGEABLE:
        value = getattr(base, name)
        add(f"--{name}", type=type(value), metavar="N", default=value, help="default: %(default)s")
    args = parser.parse_args(argv)
    work = dataclasses.replace(base, **{name: getattr(args, name) for name in CHANGEABLE})
    work.check()
    encodings = listed("--encodings", args.encodings, POSITION_ENCODINGS)
    backends = listed("--backends", args.backends, ATTENTION_BACKENDS.names())
    if "fire" in encodings:
        raise UsageError(
            "--encodings names 'fire', which reads lengths on the host: leave it out."
        )
    contenders = [Contender(name, backend) for name in encodings for backend in backends]
    for line in report(work, contenders, args.lines):
        print(line)
    return 0


if __name__ == "__main__":
    with one_line_endings():
        sys.exit(main())
