"""What the Triton kernels of attention are compiled to, without a GPU.

    python scripts/compile_kernels.py [--gpus 90 80] [--tiles forward:128x64:8:3 ...]

Needs triton, whose wheel has the assembler. A row for each kernel and size of vectors: registers
of a thread, instructions that spill them, shared memory, and instructions that a thread executes
per cell of the scores, in the loop over whole tiles. Dropout is on, the bias is trained;
--distances has DeBERTa's terms in its place.
"""

import argparse
import collections
import itertools
import re
import subprocess
import tempfile
from pathlib import Path

import triton
import triton.backends.nvidia as nvidia
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tupe_fairseq.kernels import triton_kernels
from tupe_fairseq.kernels.triton_launch import HALF, LARGE, SUM, Tiles

PROGRAMS = Path(nvidia.__file__).parent / "bin"
TYPES = {
    **dict.fromkeys(("q", "k", "v", "bias", "out", "d_out", "dk", "dv", "ds", "dq"), "*bf16"),
    **dict.fromkeys(("lse", "delta"), "*fp32"),
    **dict.fromkeys(("scale", "rescale", "log_rescale"), "fp32"),
    "d_bias": "*bf16",
    "random": "*i32",
    "starts": "*i32",
    "ends": "*i32",
}
#: What DeBERTa has and TUPE has not.
DISTANCES = ("by_query", "by_key")
TYPES |= dict.fromkeys(DISTANCES, "*bf16")
SUMMED = ("bias_sum", SUM)
#: Divisible by 16, as Triton finds at a launch with 512 tokens.
ALIGNED = {"q_row", "k_row", "v_row", "bias_head", "bias_row", "ds_row", "table_row"}
ALIGNED |= {"rows_of_all", "longest"}


def compiled(name: str, gpu: int, tile: Tiles, width: int, distances: bool):
    """The compiled kernel, for vectors of this width."""
    kernel = getattr(triton_kernels, name)
    constants = {"BM": tile.BM, "BN": tile.BN}
    constants |= {"WIDTH": width, "D": width, "hidden": None}
    constants |= {"bias": None} if distances else dict.fromkeys(DISTANCES)
    names = kernel.arg_names
    constants = {name: value for name, value in constants.items() if name in names}
    signature = {each: TYPES.get(each, "i32") for each in names}
    signature |= dict.fromkeys(constants, "constexpr")
    # Of numbers by distance, the kernels get the address of distance 0.
    aligned = [
        each
        for each in names
        if (signature[each][0] == "*" or each in ALIGNED) and each not in DISTANCES
    ]
    source = ASTSource(
        kernel,
        signature,
        {(names.index(each),): value for each, value in constants.items()},
        {(names.index(each),): [["tt.divisibility", 16]] for each in aligned},
    )
    options = {"num_warps": tile.num_warps, "num_stages": tile.num_stages}
    return triton.compile(source, target=GPUTarget("cuda", gpu, 32), options=options)


def disassembled(cubin: bytes) -> tuple[int, str]:
    """Registers of a thread, and the instructions."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        commands = ([PROGRAMS / "cuobjdump", "-res-usage"], [PROGRAMS / "nvdisasm", "-c"])
        usage, text = (
            subprocess.run([*each, file.name], capture_output=True, text=True, check=True).stdout
            for each in commands
        )
    return int(re.search(r"REG:(\d+)", usage)[1]), text


def loops(text: str) -> list[int]:
    """Instructions of each loop, in the order of their ends."""
    begins = {}
    count = 0
    found = []
    for line in text.splitlines():
        if label := re.match(r"(\.L_\w+):", line):
            begins[label[1]] = count
        elif re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+", line):
            count += 1
            jump = re.search(r"\bBRA\b.*`\((\.L_\w+)\)", line)
            if jump and jump[1] in begins:
                found.append(count - begins[jump[1]])
    return found


def row(name: str, gpu: int, tile: Tiles, width: int, distances: bool) -> str:
    """A row of the table."""
    made = compiled(name, gpu, tile, width, distances)
    registers, text = disassembled(made.asm["cubin"])
    instructions = collections.Counter(re.findall(r"\b(STL|LDL|HGMMA|HMMA)\b", text))
    spills = instructions["STL"] + instructions["LDL"]
    of_loops = [n for n in loops(text) if n > 1] or [0]
    per_cell = of_loops[0] * tile.num_warps * 32 / (tile.BM * tile.BN)
    return (
        f"{name:12} {gpu:3} {width:5} {tile.BM:4}x{tile.BN:<4} {tile.num_warps:5} "
        f"{tile.num_stages:6} {registers:9} {spills:6} {made.metadata.shared / 1024:9.1f} "
        f"{per_cell:8.1f}  {of_loops}"
    )


def parsed(text: str) -> tuple[str, Tiles]:
    """A kernel and its tiles from KERNEL:QUERIESxKEYS:WARPS:STAGES."""
    name, *numbers = re.split("[:x]", text)
    return name, Tiles(*map(int, numbers))


def chosen(gpu: int, width: int) -> list[tuple[str, Tiles]]:
    """The kernels and tiles of the package."""
    kind = gpu // 10 in LARGE, width > 64
    return [(n, tile) for (n, *each), tile in HALF.items() if tuple(each) == kind] + [SUMMED]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, nargs="+", default=[90, 80])
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--distances", action="store_true", help="DeBERTa's terms, and no bias")
    parser.add_argument("--tiles", type=parsed, nargs="+", help="KERNEL:QUERIESxKEYS:WARPS:STAGES")
    arguments = parser.parse_args()
    print(
        "kernel       gpu width  tile     warps stages registers spills shared KB per cell  loops"
    )
    for gpu, width in itertools.product(arguments.gpus, arguments.widths):
        for name, tile in arguments.tiles or chosen(gpu, width):
            print(row(name, gpu, tile, width, arguments.distances), flush=True)


if __name__ == "__main__":
    main()
