"""Embed the texts of standard input, one line at a time, and tell how long they took.

    python server.py all-MiniLM-L6-v2 onnxruntime int8 minilm-program < texts.txt

Arguments: a model of sentence-transformers, and engine, precision and directory of `optimize`; or
the model alone, which is then not optimized.
"""

import resource
import statistics
import sys
import time

import torch
from sentence_transformers import SentenceTransformer

from tupe_fairseq.huggingface import optimize


def main(
    name: str, engine: str = "", precision: str = "fp32", directory: str | None = None
) -> None:
    """Run the server; the arguments are those of the command line."""
    model = SentenceTransformer(name, device="cpu")
    if engine:
        model = optimize(model, precision, True, engine, directory)
    model.encode("warm up")
    times = []
    largest = []
    for text in sys.stdin:
        start = time.perf_counter()
        model.encode(text)
        times.append(1000 * (time.perf_counter() - start))
        largest.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    late = statistics.quantiles(times, n=20)[-1]
    print(
        f"{len(times)} texts, {torch.get_num_threads()} threads: median "
        f"{statistics.median(times):.2f} ms, 95 %: {late:.2f} ms; largest memory after a tenth "
        f"{largest[len(largest) // 10]:.0f} MB, at the end {largest[-1]:.0f} MB"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
