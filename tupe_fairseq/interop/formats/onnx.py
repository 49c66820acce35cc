"""Programs in ONNX, which onnxruntime runs without torch: model.onnx, and the tokenizer.

A program takes input_ids and attention_mask, B×T of any size up to the model's longest sequence,
with padding on the right, and returns logits. torch's exporter makes it from the classes for
transformers.
"""

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from ...errors import CheckpointError, ConfigurationError, UsageError
from ...extras import import_extra
from ...position.tables import ConstantTable
from ...tracing import OLDEST_EXPORTER
from ..check import batch, largest_difference
from ..classes import to_transformers
from ..conversion import Conversion, Forward, register
from ..directory import building
from ..families import MASKED
from ..models import ANSWERS, Converted, task_of
from .huggingface import Head, LowerCase, write_texts

KIND = "onnx"
FILE, INT8_FILE = "model.onnx", "model.int8.onnx"
INPUTS = ("input_ids", "attention_mask")
#: Largest difference from torch, relative to the largest logit.
TOLERANCE = 1e-4
#: Length of the sequences that are traced; any length that is not special would do.
TRACED = 11
#: Parameters of more bytes are stored in a file beside the program, as ONNX demands.
LARGEST = 1 << 30
Int8 = Annotated[bool, f"yes: also write {INT8_FILE}, with matrices of 8-bit integers"]


def write(
    converted: Converted,
    out: Path,
    *,
    head: Head | None = None,
    lower_case: LowerCase = False,
    int8: Int8 = False,
) -> None:
    """Write a directory with a program, and with `int8` another with 8-bit matrices.

    Raises:
        UsageError: torch is too old, an option is invalid, the extra is not installed, or the
            encoding cannot be exported.
    """
    if torch.__version__ < OLDEST_EXPORTER:
        raise UsageError(
            f"--to onnx needs torch {OLDEST_EXPORTER} or newer, but {torch.__version__} is "
            "installed."
        )
    if converted.family is not MASKED:
        raise ConfigurationError(
            f"the model is a {converted.family.model}, which --to onnx does not take: use "
            "--to huggingface."
        )
    if head and task_of(converted.state, head) == ANSWERS:
        raise ConfigurationError(
            f"--head is {head!r}, which has two outputs, but a program of --to onnx has one: use "
            "--to huggingface."
        )
    for library in ("onnxruntime", "onnxscript", "transformers"):
        import_extra(library, KIND)
    model = to_transformers(converted, "tupe", head)
    for module in model.modules():
        if isinstance(module, ConstantTable):
            module.to_floats()
    name = converted.settings["position_encoding"]
    with building(out) as folder:
        export(model, folder / FILE, name)
        error = error_of(folder / FILE, model)
        if not error <= TOLERANCE:
            raise CheckpointError(
                f"--position-encoding is {name!r}, whose program gives other outputs than torch: "
                f"they differ by {error:.1e} of the largest logit."
            )
        if int8:
            quantize(folder / FILE, folder / INT8_FILE)
            error = error_of(folder / INT8_FILE, model)
            converted.notes.append(
                f"{INT8_FILE}: random texts' logits differ by {error:.1e} of the largest"
            )
        model.config.save_pretrained(folder)
        write_texts(folder, converted, lower_case)


@torch.no_grad()
def export(model: Any, path: Path, name: str) -> None:
    """Write the program of a model.

    Raises:
        UsageError: torch cannot export the encoding for every length.
    """
    longest = model.config.max_position_embeddings
    rows, columns = torch.export.Dim("batch"), torch.export.Dim("length", min=2, max=longest)
    # Encodings keep what they compute for the longest sequence.
    model(torch.full((1, longest), 4))
    ids = batch(model.config.vocab_size, min(TRACED, longest))
    bytes_ = sum(each.numel() * each.element_size() for each in model.parameters())
    try:
        with _quietly():
            program = torch.export.export(
                model,
                (ids, torch.ones_like(ids)),
                {"return_dict": False},
                dynamic_shapes={
                    **{each: {0: rows, 1: columns} for each in INPUTS},
                    "return_dict": None,
                },
            )
            torch.onnx.export(
                program,
                (),
                path,
                dynamo=True,
                input_names=INPUTS,
                output_names=["logits"],
                external_data=bytes_ > LARGEST,
            )
    # The exporter raises errors of any type for operations that it does not know.
    except Exception as error:
        raise UsageError(
            f"--position-encoding is {name!r}, which torch cannot export for every length: use "
            "--to huggingface, and run the model by torch."
        ) from error


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the exporter's progress and its warnings about torch's own code."""
    level, nowhere = logging.root.manager.disable, io.StringIO()
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(nowhere), redirect_stderr(nowhere):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def quantize(path: Path, out: Path) -> None:
    """Write the program with 8-bit matrices; activations are quantized when it runs."""
    from onnxruntime import quantization

    with _quietly():
        quantization.quantize_dynamic(
            path,
            out,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            # Weights of 7 bits: with 8, products overflow on processors without VNNI.
            reduce_range=True,
        )


def error_of(path: Path, model: Any) -> float:
    """The largest difference of logits at tokens, relative to the largest logit."""

    def expected(ids: Tensor) -> Tensor:
        return model(ids, ids.ne(1).long()).logits

    config = model.config
    sizes = config.vocab_size, config.max_position_embeddings
    return largest_difference(session(path), expected, *sizes)


def session(path: Path) -> Any:
    """A function of ids B×T that runs a program; ids of 1 are padding unless a mask is given."""
    library = import_extra("onnxruntime", KIND)
    loaded = library.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def run(ids: Tensor, mask: Tensor | None = None) -> Tensor:
        mask = ids.ne(1) if mask is None else mask
        given = (ids.numpy(), mask.long().numpy())
        return torch.from_numpy(loaded.run(None, dict(zip(INPUTS, given, strict=True)))[0])

    return run


def outputs(directory: Path, converted: Converted, head: str | None) -> Forward:
    """The program in the directory, run by onnxruntime, for ids of fairseq."""
    run = session(directory / FILE)
    if not converted.order:
        return run
    order = torch.tensor(converted.order)

    def reordered(tokens: Tensor) -> Tensor:
        logits = run(order[tokens], tokens.ne(1))
        return logits if head else logits[..., order]

    return reordered


SUMMARY = "a program for onnxruntime, of a masked language model or with --head of a classifier"
register(Conversion("--to", KIND, SUMMARY, write, outputs, extra=KIND))
