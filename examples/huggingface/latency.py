"""Time of programs in ONNX over that of the same model by torch.

    python scripts/convert_checkpoint.py --to huggingface MODEL --out hf
    python scripts/convert_checkpoint.py --to onnx MODEL --int8 yes --out program
    OMP_NUM_THREADS=1 python -m examples.huggingface.latency hf program

Each round times all of them one after the other on the same random ids; medians of the rounds, in
wall time. All use OMP_NUM_THREADS threads.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import transformers
from onnxruntime import InferenceSession, SessionOptions

SHAPES = ((1, 16), (1, 128), (16, 128))
ROUNDS, LONGEST_ROUND = 15, 0.3


def program(path: Path, threads: int) -> Callable[[torch.Tensor], object]:
    """A function of ids that runs a program."""
    options = SessionOptions()
    options.intra_op_num_threads = threads
    session = InferenceSession(str(path), options)

    def run(ids: torch.Tensor) -> object:
        given = {"input_ids": ids.numpy(), "attention_mask": torch.ones_like(ids).numpy()}
        return session.run(None, given)

    return run


def seconds(run: Callable[[torch.Tensor], object], ids: torch.Tensor) -> float:
    """Time of one call, of as many as fit into a round."""
    start, calls = time.perf_counter(), 0
    while not calls or time.perf_counter() - start < LONGEST_ROUND:
        run(ids)
        calls += 1
    return (time.perf_counter() - start) / calls


def arguments() -> tuple[Path, Path]:
    """The directories of the command line: of the model, and of the programs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path, metavar="MODEL", help="written by --to huggingface")
    parser.add_argument("program", type=Path, metavar="PROGRAM", help="written by --to onnx")
    args = parser.parse_args()
    if not (args.model / "config.json").is_file():
        parser.error(f"MODEL is '{args.model}', but has no config.json: see --to huggingface.")
    if not list(args.program.glob("*.onnx")):
        parser.error(f"PROGRAM is '{args.program}', but has no *.onnx: see --to onnx.")
    return args.model, args.program


@torch.inference_mode()
def main() -> None:
    """See the module's docstring."""
    torch_folder, folder = arguments()
    threads = int(os.environ.get("OMP_NUM_THREADS", 1))
    torch.set_num_threads(threads)
    config = transformers.AutoConfig.from_pretrained(torch_folder, trust_remote_code=True)
    kind = config.architectures[0].replace("Tupe", "AutoModel").replace("Roberta", "AutoModel")
    auto = getattr(transformers, kind)
    model = auto.from_pretrained(torch_folder, trust_remote_code=True).eval()
    runs = {"torch": lambda ids: model(ids, attention_mask=torch.ones_like(ids))}
    for file in sorted(folder.glob("*.onnx")):
        runs[file.name] = program(file, threads)
    for rows, length in SHAPES:
        if length > config.max_position_embeddings:
            print(f"{rows} x {length}: longer than the model's longest sequence")
            continue
        ids = torch.randint(4, config.vocab_size, (rows, length))
        times: dict[str, list[float]] = {name: [] for name in runs}
        for run in runs.values():
            run(ids)
        for _ in range(ROUNDS):
            for name, run in runs.items():
                times[name].append(seconds(run, ids))
        base = statistics.median(times["torch"])
        told = [f"torch {1000 * base:.2f} ms"]
        for name in list(runs)[1:]:
            ratios = [a / b for a, b in zip(times[name], times["torch"], strict=True)]
            low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
            told.append(f"{name} {middle:.2f} x ({low:.2f} to {high:.2f})")
        print(f"{rows} x {length}: {', '.join(told)}, {threads} threads", flush=True)


if __name__ == "__main__":
    main()
