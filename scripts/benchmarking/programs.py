"""The files of programs that benchmark_serving.py compares, by exporters and quantizers."""

import copy
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tupe_fairseq.base.extras import import_extra
from tupe_fairseq.convert.graphs import quietly

from .encoders import Batch, Encoder

EXTRA = "rivals"
#: Inputs of programs.
NAMES = ["input_ids", "attention_mask"]
#: Numbers that have a scale together in `MatMulNBits`; products of 8-bit integers.
BLOCK = 32
INTEGERS = 4


class Features(nn.Module):
    """A model of transformers that returns its features alone, as exported."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """B×T to B×T×C."""
        return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


class Programs:
    """The files of a model, each made when it is first read, unless it is there.

    Attributes:
        encoder: whose.
        folder: for the files.
        samples: single texts, with which quantizers choose scales.
        fused: operators that the optimizer has fused now, and how often.
    """

    def __init__(self, encoder: Encoder, folder: Path, samples: Callable[[], list[Batch]]):
        self.encoder = encoder
        self.folder = folder
        self.samples = samples
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
        path = self.folder / "optimized.onnx"
        if path.exists():
            return path
        with quietly():
            made = optimize_model(
                str(self._unfused),
                model_type="bert",
                num_heads=config.num_attention_heads,
                hidden_size=config.hidden_size,
            )
            fused = made.get_fused_operator_statistics()
            made.save_model_to_file(str(path))
        self.fused = {name: n for name, n in fused.items() if n}
        return path

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
        if path.exists():
            return path
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
        """By onnxruntime, with scales of inputs for a whole batch."""
        from onnxruntime.quantization import quantize_dynamic

        out = path.with_suffix(".int8.onnx")
        if out.exists():
            return out
        settings = {"op_types_to_quantize": operators, "per_channel": True, "reduce_range": True}
        # Shapes and types behind fused operators are not inferred; all of them are floats.
        with quietly():
            quantize_dynamic(path, out, **settings, extra_options={"DefaultTensorType": 1})
        return out

    @cached_property
    def eight_bits(self) -> Path:
        """`exported` with weights of 8 bits in blocks."""
        return self._blocks(8)

    @cached_property
    def four_bits(self) -> Path:
        """`exported` with weights of 4 bits in blocks."""
        return self._blocks(4)

    def _blocks(self, bits: int) -> Path:
        out = self.folder / f"exported.blocks{bits}.onnx"
        if out.exists():
            return out
        path = str(self.exported)
        import onnx
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        settings = {"block_size": BLOCK, "is_symmetric": True, "accuracy_level": INTEGERS}
        with quietly():
            made = MatMulNBitsQuantizer(onnx.load(path), bits=bits, **settings)
            made.process()
            made.model.save_model_to_file(str(out))
        return out

    @cached_property
    def calibrated(self) -> Path:
        """`exported` with 8-bit weights and inputs, whose scales nncf has chosen on samples.

        The settings are those of sentence-transformers' export_static_quantized_openvino_model,
        which needs a transformers before 5.6; but samples are not padded to 384 tokens.
        """
        library = import_extra("openvino", EXTRA)
        nncf = import_extra("nncf", EXTRA)
        out = self.folder / "calibrated.xml"
        if out.exists():
            return out
        model = library.Core().read_model(self.exported)
        names = {each.any_name for each in model.inputs}
        samples = nncf.Dataset([arrays(batch, names) for batch in self.samples()])
        settings = {
            "preset": nncf.QuantizationPreset.MIXED,
            "model_type": nncf.ModelType.TRANSFORMER,
            "subset_size": len(self.samples()),
            "fast_bias_correction": True,
            "advanced_parameters": nncf.AdvancedQuantizationParameters(
                overflow_fix=nncf.OverflowFix.DISABLE
            ),
        }
        with quietly():
            library.save_model(nncf.quantize(model, samples, **settings), out)
        return out

    @cached_property
    def ours(self) -> Path:
        """The folder that convert_checkpoint.py writes."""
        from tupe_fairseq.convert.command import convert

        source = self.encoder.folder
        out = self.folder / "ours"
        if out.exists():
            return out
        if source is None:
            self.encoder.model.save_pretrained(source := self.folder / "source")
        words = ["--from", "huggingface", str(source), "--to", "onnx", "--out", str(out)]
        with quietly():
            convert([*words, "--pooling", "none", "--int8", "yes"])
        return out


def arrays(batch: Batch, names: set[str]) -> dict[str, Any]:
    """The inputs of a program."""
    values = batch | {"token_type_ids": torch.zeros_like(batch["input_ids"])}
    return {name: value.numpy() for name, value in values.items() if name in names}
