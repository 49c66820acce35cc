"""The ways to run an encoder on a CPU that benchmark_serving.py compares: rivals, and ours.

The backends "onnx" and "openvino" of sentence-transformers are not among them: they need
optimum-onnx 0.1, which takes no transformers 5, and optimum-intel 2.2, which takes none from 5.6
on, and run programs such as those here. openvino's static int8 needs texts to calibrate it.
"""

import copy
import importlib.metadata
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tupe_fairseq import UsageError
from tupe_fairseq.base.extras import import_extra
from tupe_fairseq.convert.graphs import quietly

from .encoders import Batch, Run
from .programs import EXTRA, Programs, arrays

REFERENCE = "transformers-fp32"
LIBRARIES = (
    "torch",
    "transformers",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "openvino",
    "nncf",
)


class Unavailable(Exception):
    """Why this machine or library does not run a way."""


def versions() -> dict[str, str | None]:
    """The versions of the libraries, None of those that are not installed."""
    installed = {
        each.metadata["Name"]: each.version for each in importlib.metadata.distributions()
    }
    return {name: installed.get(name) for name in LIBRARIES}


def by_torch(model: Any) -> Run:
    """A model of transformers, or one that replaces it."""

    @torch.inference_mode()
    def run(batch: Batch) -> Tensor:
        return model(**batch).last_hidden_state

    return run


def by_onnxruntime(path: Path, threads: int) -> Run:
    """A program."""
    library = import_extra("onnxruntime", EXTRA)
    options = library.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = library.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = {each.name for each in session.get_inputs()}

    def run(batch: Batch) -> Tensor:
        return torch.from_numpy(session.run(None, arrays(batch, names))[0])

    return run


def by_openvino(path: Path, threads: int, precision: str) -> Run:
    """A program, computed in "f32", in what openvino chooses, or only if that is "bf16"."""
    library = import_extra("openvino", EXTRA)
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    if precision == "f32":
        settings["INFERENCE_PRECISION_HINT"] = precision
    core = library.Core()
    compiled = core.compile_model(core.read_model(path), "CPU", settings)
    chosen = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
    if precision == "bf16" != chosen:
        raise Unavailable(f"openvino computes in {chosen} on this processor")
    names = {each.any_name for each in compiled.inputs}

    def run(batch: Batch) -> Tensor:
        return torch.from_numpy(compiled(arrays(batch, names))[0].copy())

    return run


def _transformers(programs: Programs, threads: int, dtype: torch.dtype) -> Run:
    model = programs.encoder.model
    return by_torch(model if dtype == torch.float32 else copy.deepcopy(model).to(dtype))


def _torch_int8(programs: Programs, threads: int) -> Run:
    from torch.ao.quantization import quantize_dynamic

    with quietly():
        return by_torch(quantize_dynamic(programs.encoder.model, {nn.Linear}, torch.qint8))


def _ours(programs: Programs, threads: int, precision: str) -> Run:
    from tupe_fairseq.huggingface import optimize

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", UserWarning)
        model = optimize(programs.encoder.model, precision=precision)
    parts = ("stay as they are", "nothing to optimize")
    if left := [m for m in (str(each.message) for each in told) if any(p in m for p in parts)]:
        raise Unavailable(left[0])
    return by_torch(model)


def _onnx(programs: Programs, threads: int, name: str, file: str = "") -> Run:
    return by_onnxruntime(getattr(programs, name) / file, threads)


def _openvino(
    programs: Programs, threads: int, precision: str = "", name: str = "exported"
) -> Run:
    import_extra("openvino", EXTRA)
    return by_openvino(getattr(programs, name), threads, precision)


#: Builders of each way, from the model's programs and the number of threads. A name ends in its
#: precision.
WAYS: dict[str, Callable[[Programs, int], Run]] = {
    REFERENCE: partial(_transformers, dtype=torch.float32),
    "transformers-bf16": partial(_transformers, dtype=torch.bfloat16),
    "torch-int8": _torch_int8,
    "onnxruntime-fp32": partial(_onnx, name="exported"),
    "onnxruntime-int8": partial(_onnx, name="exported_int8"),
    "onnxruntime-optimized-fp32": partial(_onnx, name="optimized"),
    "onnxruntime-optimized-int8": partial(_onnx, name="optimized_int8"),
    "onnxruntime-nbits-int8": partial(_onnx, name="eight_bits"),
    "onnxruntime-nbits-int4": partial(_onnx, name="four_bits"),
    "openvino-fp32": partial(_openvino, precision="f32"),
    "openvino-bf16": partial(_openvino, precision="bf16"),
    "openvino-nncf-int8": partial(_openvino, name="calibrated"),
    "ours-fp32": partial(_ours, precision="fp32"),
    "ours-bf16": partial(_ours, precision="bf16"),
    "ours-int8": partial(_ours, precision="int8"),
    "ours-onnx-fp32": partial(_onnx, name="ours", file="model.onnx"),
    "ours-onnx-int8": partial(_onnx, name="ours", file="model.int8.onnx"),
}


def build(name: str, programs: Programs, threads: int) -> Run | str:
    """A way, or why it is missing: a library is not installed, or does not take the model."""
    torch.set_num_threads(threads)
    try:
        return WAYS[name](programs, threads)
    except (UsageError, Unavailable) as error:
        return str(error)
    # Exporters, optimizers and runtimes raise errors of any type for models that they do not take.
    except Exception as error:
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
