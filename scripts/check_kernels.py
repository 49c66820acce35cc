"""Errors of the Triton kernels on this device, and the share of the weights that dropout drops.

    python scripts/check_kernels.py
    TRITON_INTERPRET=1 python scripts/check_kernels.py --length 20    without a GPU

Outputs and gradients of the operator are compared with float64, by term and dtype: the largest
error, in units of the largest entry. `of torch` is the same for torch's operations in that dtype.
The sequences have T, ..., 1 tokens. The share is 1 minus the mean output of equal scores and
values of 1, without the factor of dropout; torch's kernels are there for comparison.
"""

import argparse
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tupe_fairseq.kernels.triton_attention import attention

HEADS = 2
SEQUENCES = 3
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
#: Triton's interpreter multiplies bf16 as integers.
DTYPES = (torch.float32, torch.float16, torch.bfloat16)[: 3 if DEVICE == "cuda" else 2]
TERMS = ("bias", "distances")
RESULTS = ("output", "q", "k", "v", "bias or vectors")
KERNELS = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION")


def lengths(length: int) -> list[int]:
    """Tokens of each sequence, from T to 1."""
    return torch.linspace(length, 1, SEQUENCES).long().tolist()


def inputs(term: str, length: int, width: int, dtype: torch.dtype) -> list[Tensor]:
    """q, k and v, N×H×D; the bias, H×T×T, or the vectors for queries and for keys."""
    torch.manual_seed(0)
    rows = sum(lengths(length))
    q, k, v = torch.randn(3, rows, HEADS, width)
    of_bias = [torch.randn(HEADS, length, length)]
    of_distances = torch.randn(2, HEADS, 2 * length - 1, width) * width**-0.5
    made = [q, k, v, *(of_bias if term == "bias" else of_distances)]
    return [x.to(DEVICE, dtype).requires_grad_() for x in made]


def by_kernels(term: str, length: int, q: Tensor, k: Tensor, v: Tensor, *more: Tensor) -> Tensor:
    """The operator, N×H×D."""
    counts = torch.tensor(lengths(length), device=DEVICE)
    names = ("bias",) if term == "bias" else ("for_queries", "for_keys")
    added = dict(zip(names, more, strict=True))
    where = counts.cumsum(0) - counts, counts.cumsum(0), length
    return attention(q, k, v, *where, scale=q.size(-1) ** -0.5, padded=False, **added)


def by_torch(term: str, length: int, q: Tensor, k: Tensor, v: Tensor, *more: Tensor) -> Tensor:
    """The same by torch, sequence by sequence."""
    outputs = []
    for of_q, of_k, of_v in zip(*(x.split(lengths(length)) for x in (q, k, v)), strict=True):
        at = torch.arange(len(of_q), device=q.device)
        of_q, of_k, of_v = (x.transpose(0, 1) for x in (of_q, of_k, of_v))
        scores = of_q @ of_k.mT * q.size(-1) ** -0.5
        if term == "bias":
            scores = scores + more[0][:, : len(at), : len(at)]
        else:
            distance = at - at[:, None] + length - 1
            scores = scores + (of_q @ more[0].mT)[:, at[:, None], distance]
            scores = scores + (of_k @ more[1].mT)[:, at, distance]
        outputs.append((scores.softmax(-1) @ of_v).transpose(0, 1))
    return torch.cat(outputs)


def results(
    run: Callable[..., Tensor], term: str, length: int, given: list[Tensor]
) -> list[Tensor]:
    """The output and all gradients of a fixed weighted sum of it."""
    out = run(term, length, *given)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    return [out, *torch.autograd.grad(out, given, weights.to(out))]


def errors(found: list[Tensor], exact: list[Tensor]) -> list[float]:
    """The largest of each; those of vectors for queries and for keys as one."""
    pairs = zip(found, exact, strict=True)
    each = [((a.double() - b).abs().max() / b.abs().max()).item() for a, b in pairs]
    return [*each[:4], max(each[4:])]


def accuracy(length: int, width: int) -> Iterator[str]:
    """Rows of errors."""
    yield " ".join(f"{name:>15}" for name in ("term", "dtype", "by", *RESULTS))
    for term in TERMS:
        for dtype in DTYPES:
            given = inputs(term, length, width, dtype)
            wide = [x.detach().double().requires_grad_() for x in given]
            exact = results(by_torch, term, length, wide)
            for name, run in (("kernels", by_kernels), ("of torch", by_torch)):
                found = errors(results(run, term, length, given), exact)
                numbers = " ".join(f"{x:15.1e}" for x in found)
                yield f"{term:>15} {str(dtype)[6:]:>15} {name:>15} {numbers}"


def shares(length: int, width: int, p: float) -> Iterator[str]:
    """Rows of dropped shares."""
    zeros = torch.zeros(SEQUENCES, HEADS, length, width, device=DEVICE, dtype=torch.half)
    ones = torch.ones_like(zeros)
    for name in KERNELS if DEVICE == "cuda" else ():
        try:
            with sdpa_kernel(getattr(SDPBackend, name)):
                mean = F.scaled_dot_product_attention(zeros, zeros, ones, None, p).float().mean()
            yield f"{p:6} dropped by {name:20} {1 - mean.item() * (1 - p):.4f}"
        # torch refuses a kernel by an error of any type.
        except Exception as error:
            yield f"{p:6} dropped by {name:20} {str(error).splitlines()[0][:80]}"
    q, v = (x.transpose(1, 2).flatten(0, 1) for x in (zeros, ones))
    mean = attention(q, q, v, None, None, length, dropout=p, padded=False).float().mean()
    yield f"{p:6} dropped by {'triton':20} {1 - mean.item() * (1 - p):.4f}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--length", type=int, metavar="T", default=512)
    parser.add_argument("--width", type=int, metavar="D", default=64)
    args = parser.parse_args()
    for p in (0.1, 0.125):
        for row in shares(args.length, args.width, p):
            print(row, flush=True)
    # Of torch's own operations, too
    torch.backends.cuda.matmul.allow_tf32 = False
    for row in accuracy(args.length, args.width):
        print(row, flush=True)


if __name__ == "__main__":
    main()
