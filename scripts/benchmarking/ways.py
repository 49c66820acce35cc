"""The ways to run an encoder on a CPU that benchmark_serving.py compares: rivals, and ours.

The backends "onnx" and "openvino" of sentence-transformers are not among them: they need
optimum-onnx 0.1, which takes no transformers 5, and optimum-intel 2.2, which takes none from 5.6
on, and run programs such as those here. openvino's static int8 needs texts to calibrate it.
"""

import copy
import importlib.metadata
import warnings
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tupe_fairseq import UsageError
from tupe_fairseq.base.extras import import_extra
from tupe_fairseq.convert.graphs import quietly

from .encoders import Batch, Encoder, Run

EXTRA = "rivals"
REFERENCE = "transformers-fp32"
LIBRARIES = ("torch", "transformers", "onnx", "onnxruntime", "onnxscript", "openvino")
#: Inputs of programs.
NAMES = ["input_ids", "attention_mask"]


class Unavailable(Exception):
    """Why this machine or library does not run a way."""


def versions() -> dict[str, str | None]:
    """The versions of the libraries, None of those that are not installed."""
    installed = {
        each.metadata["Name"]: each.version for each in importlib.metadata.distributions()
    }
    return {name: installed.get(name) for name in LIBRARIES}


class Features(nn.Module):
    """A model of transformers that returns its features alone, as exported."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """B×T to B×T×C."""
        return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


class Programs:
    """The ONNX files of a model, each made when it is first read.

    Attributes:
        encoder: whose.
        folder: an empty one, for the files.
        fused: operators that the optimizer has fused, and how often.
    """

    def __init__(self, encoder: Encoder, folder: Path):
        self.encoder = encoder
        self.folder = folder
        self.fused: dict[str, int] = {}

    @cached_property
    def exported(self) -> Path:
        """The model of transformers by torch's exporter."""
        rows = torch.export.Dim("batch")
        length = torch.export.Dim("length", min=2, max=self.encoder.longest)
        shapes = {name: {0: rows, 1: length} for name in NAMES}
        return self._export("exported", self.encoder.model, dynamo=True, dynamic_shapes=shapes)

    @cached_property
    def optimized(self) -> Path:
        """By onnxruntime's optimizer of transformers, from the graph in which it fuses most."""
        import_extra("onnxruntime", EXTRA)
        from onnxruntime.transformers.optimizer import optimize_model

        config = self.encoder.model.config
        with quietly():
            made = optimize_model(
                str(self._unfused),
                model_type="bert",
                num_heads=config.num_attention_heads,
                hidden_size=config.hidden_size,
            )
            fused = made.get_fused_operator_statistics()
            made.save_model_to_file(path := str(self.folder / "optimized.onnx"))
        self.fused = {name: n for name, n in fused.items() if n}
        return Path(path)

    @property
    def _unfused(self) -> Path:
        """Of torch's two exporters, only the older one writes attention that is recognized.

        It writes the lengths of the example into DeBERTa, whose graph is the newer one's.
        """
        model = self.encoder.model
        if model.config.model_type.startswith("deberta"):
            return self.exported
        config = copy.deepcopy(model.config)
        config._attn_implementation = "eager"
        eager = type(model)(config).eval()
        eager.load_state_dict(model.state_dict())
        axes = {name: {0: "batch", 1: "length"} for name in NAMES}
        return self._export("eager", eager, dynamo=False, dynamic_axes=axes, opset_version=17)

    @torch.no_grad()
    def _export(self, name: str, model: Any, **options: Any) -> Path:
        for library in ("onnxruntime", "onnxscript"):
            import_extra(library, EXTRA)
        example = self.encoder.batch([range(4, 15), range(4, 11)])
        path = self.folder / f"{name}.onnx"
        named = {"input_names": NAMES, "output_names": ["last_hidden_state"]}
        with quietly():
            torch.onnx.export(
                Features(model), (), path, kwargs=example, external_data=False, **named, **options
            )
        return path

    @cached_property
    def exported_int8(self) -> Path:
        """`exported` with 8-bit matrices."""
        return self._quantize(self.exported, ["MatMul"])

    @cached_property
    def optimized_int8(self) -> Path:
        """`optimized` with 8-bit matrices."""
        return self._quantize(self.optimized, ["MatMul", "Attention"])

    def _quantize(self, path: Path, operators: list[str]) -> Path:
        """As `--to onnx --int8 yes` does."""
        from onnxruntime.quantization import quantize_dynamic

        out = path.with_suffix(".int8.onnx")
        settings = {"op_types_to_quantize": operators, "per_channel": True, "reduce_range": True}
        # Shapes and types behind fused operators are not inferred; all of them are floats.
        with quietly():
            quantize_dynamic(path, out, **settings, extra_options={"DefaultTensorType": 1})
        return out

    @cached_property
    def ours(self) -> Path:
        """The folder that convert_checkpoint.py writes."""
        from tupe_fairseq.convert.command import convert

        source = self.encoder.folder
        out = self.folder / "ours"
        if source is None:
            self.encoder.model.save_pretrained(source := self.folder / "source")
        words = ["--from", "huggingface", str(source), "--to", "onnx", "--out", str(out)]
        with quietly():
            convert([*words, "--pooling", "none", "--int8", "yes"])
        return out


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
        return torch.from_numpy(session.run(None, _arrays(batch, names))[0])

    return run


def by_openvino(path: Path, threads: int, precision: str | None) -> Run:
    """A program, computed in "f32", or in what openvino chooses for this processor."""
    library = import_extra("openvino", EXTRA)
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    if precision is not None:
        settings["INFERENCE_PRECISION_HINT"] = precision
    core = library.Core()
    compiled = core.compile_model(core.read_model(path), "CPU", settings)
    chosen = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
    if precision is None and chosen != "bf16":
        raise Unavailable(f"openvino computes in {chosen} on this processor")
    names = {each.any_name for each in compiled.inputs}

    def run(batch: Batch) -> Tensor:
        return torch.from_numpy(compiled(_arrays(batch, names))[0].copy())

    return run


def _arrays(batch: Batch, names: set[str]) -> dict[str, Any]:
    values = batch | {"token_type_ids": torch.zeros_like(batch["input_ids"])}
    return {name: value.numpy() for name, value in values.items() if name in names}


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
    if left := [str(each.message) for each in told if "stay as they are" in str(each.message)]:
        raise Unavailable(left[0])
    return by_torch(model)


def _onnx(programs: Programs, threads: int, name: str, file: str = "") -> Run:
    return by_onnxruntime(getattr(programs, name) / file, threads)


def _openvino(programs: Programs, threads: int, precision: str | None) -> Run:
    import_extra("openvino", EXTRA)
    return by_openvino(programs.exported, threads, precision)


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
    "openvino-fp32": partial(_openvino, precision="f32"),
    "openvino-bf16": partial(_openvino, precision=None),
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
