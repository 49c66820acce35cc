"""Programs in ONNX, which onnxruntime runs without torch: model.onnx, and the tokenizer.

A program takes input_ids and attention_mask, B×T of any size up to the model's longest sequence,
with padding anywhere, and token_type_ids if the model has types. It returns logits,
last_hidden_state, B×T×C, or sentence_embedding, B×C. torch's exporter makes it from the classes
for transformers.
"""

from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from ...base.errors import CheckpointError, ConfigurationError, UsageError
from ...base.extras import import_extra
from ...base.tracing import OLDEST_EXPORTER
from ...position.tables import ConstantTable
from ..check import batch, inputs, largest_difference
from ..classes import to_transformers
from ..conversion import Conversion, Forward, Opened, register
from ..fidelity import Texts, measure
from ..graphs import TRANSLATIONS, drop_shapes, quietly
from ..integers import quantize
from ..models import ANSWERS, Converted, task_of
from ..opened import texts_and_labels
from ..output import building, write_files
from ..pooling import Pooling, WithPooling
from ..sentence_modules import compare_modules, read_sentence_model, text_notes
from ..sources import AUTO_MAP, collect
from .huggingface import Head, LowerCase, write_texts

KIND = "onnx"
FILE = "model.onnx"
INT8_FILE = "model.int8.onnx"
#: What transformers needs to read config.json.
CODE = (
    "configuration_tupe.py",
    "tupe_base_errors.py",
    "tupe_base_options.py",
    "tupe_transformer_layer_options.py",
    "tupe_position_deleted.py",
    "tupe_position_model_options.py",
)
#: Largest difference from torch, relative to the largest output.
TOLERANCE = 1e-4
#: Length of the sequences that are traced; any length that is not special would do.
TRACED = 11
#: Parameters of more bytes are stored in a file beside the program, as ONNX demands.
LARGEST = 1 << 30
PoolingKind = Annotated[
    str, "none: features, without a head; mean or cls: one embedding for each sentence"
]
Normalize = Annotated[bool, "yes: embeddings have unit length"]
Int8 = Annotated[bool, f"yes: also write {INT8_FILE}, with matrices of 8-bit integers"]
OwnTexts = Annotated[
    Path, "file with a text in each line, to compare outputs on (default: random)"
]
LeastCosine = Annotated[
    float, "least cosine of their vectors to the source's (default: 0.9999; for int8 0.98)"
]


def write(
    converted: Converted,
    out: Path,
    *,
    head: Head | None = None,
    lower_case: LowerCase | None = None,
    pooling: PoolingKind | None = None,
    normalize: Normalize = False,
    int8: Int8 = False,
    texts: OwnTexts | None = None,
    least_cosine: LeastCosine | None = None,
) -> None:
    """Write a directory with a program, and with `int8` another with 8-bit matrices.

    The program returns the logits of the head; with `pooling`, features or embeddings; by default,
    the logits of the language modeling head if it is trained, and features otherwise. Its vectors
    of texts are compared with those of the source. Logits of classes have no limit by default.

    Raises:
        UsageError: torch is too old, an option is invalid, the extra is not installed, the
            encoding cannot be exported, or a cosine is below the limit.
    """
    if torch.__version__ < OLDEST_EXPORTER:
        raise UsageError(
            f"--to onnx needs torch {OLDEST_EXPORTER} or newer, but {torch.__version__} is "
            "installed."
        )
    _check(head, pooling)
    compared = Texts(texts, least_cosine, has_default=not head)
    if pooling or normalize:
        converted.pooling = Pooling(pooling or "none", normalize)
    _follow_sentence_model(converted, head)
    for library in ("onnxruntime", "onnxscript", "transformers"):
        import_extra(library, KIND)
    outputs = _outputs(converted, head)
    model = _program(converted, head, len(outputs))
    name = converted.settings["position_encoding"]
    with building(out) as folder:
        export(model, folder / FILE, converted, outputs)
        error = error_of(folder / FILE, model, converted)
        if not error <= TOLERANCE:
            raise CheckpointError(
                f"--position-encoding is {name!r}, but outputs of its program differ from torch "
                f"by {error:.1e} of the largest."
            )
        if int8:
            quantize(folder / FILE, folder / INT8_FILE)
            error = error_of(folder / INT8_FILE, model, converted)
            converted.notes.append(
                f"{INT8_FILE}: random texts' outputs differ by {error:.1e} of the largest"
            )
        _write_config(folder, model.model.config)
        write_texts(folder, converted, lower_case)
        ids = compared.ids(converted, texts_and_labels(folder, converted)[0] if texts else None)
        for file, precision in ((FILE, "fp32"), (INT8_FILE, "int8"))[: 1 + int8]:
            pair = session(folder / file, converted), _source(model, converted)
            converted.notes.append(compared.check(file, measure(precision, *pair, ids)))


def _program(converted: Converted, head: str | None, outputs: int) -> WithPooling:
    """The model in the form that is exported, with this number of outputs."""
    from .joined import join_products

    built = to_transformers(converted, "tupe", head)
    join_products(built.base_model.encoder)
    model = WithPooling(built, converted.pooling, outputs)
    for module in model.modules():
        if isinstance(module, ConstantTable):
            module.to_floats()
    return model


def _check(head: str | None, pooling: str | None) -> None:
    """Whether a program has one output.

    Raises:
        ConfigurationError: it has two.
    """
    if head and pooling:
        raise ConfigurationError(
            f"--head is {head!r} and --pooling is {pooling!r}, but a program has one output: "
            "leave one of them out."
        )


def _follow_sentence_model(converted: Converted, head: str | None) -> None:
    """Do what the files of sentence-transformers say, or note it.

    Raises:
        UsageError: a file is damaged, or has something that a program lacks.
    """
    model = read_sentence_model(converted.files)
    pooling = converted.pooling
    if model is None or not converted.writes_features(head):
        return
    if pooling is None or pooling.kind == "none":
        longest = converted.settings["max_position_embeddings"]
        converted.notes += text_notes(model, "a program that returns features", longest)
    else:
        converted.notes += compare_modules(model, pooling.kind, pooling.normalize)
        pooling.dimension = model.dimension


def _outputs(converted: Converted, head: str | None) -> list[str]:
    """Names of the outputs."""
    if converted.pooling is not None and converted.pooling.kind != "none":
        return ["sentence_embedding"]
    if head and task_of(converted.state, head) == ANSWERS:
        return ["start_logits", "end_logits"]
    return ["last_hidden_state" if converted.writes_features(head) else "logits"]


def _write_config(folder: Path, config: Any) -> None:
    """Write config.json, and the code that transformers needs to read it."""
    config.auto_map = {"AutoConfig": AUTO_MAP["AutoConfig"]}
    config.save_pretrained(folder)
    # It does not depend on the encoding, which may be one of another package.
    code = collect("learned")
    write_files(folder, {name: code[name].encode() for name in CODE})


@torch.no_grad()
def export(model: WithPooling, path: Path, converted: Converted, outputs: list[str]) -> None:
    """Write the program of a model, which returns `outputs`.

    Raises:
        UsageError: torch cannot export the encoding for every length.
    """
    config: Any = model.model.config
    longest = config.max_position_embeddings
    rows = torch.export.Dim("batch")
    columns = torch.export.Dim("length", min=2, max=longest)
    # Encodings keep what they compute for the longest sequence.
    whole = torch.full((1, longest), 4)
    model(whole, torch.ones_like(whole))
    traced = inputs(batch(converted, min(TRACED, longest)), converted)
    traced["attention_mask"] = torch.ones_like(traced["input_ids"])
    if not config.type_vocab_size > 1:
        del traced["token_type_ids"]
    bytes_ = sum(each.numel() * each.element_size() for each in model.parameters())
    try:
        with quietly():
            shapes = {each: {0: rows, 1: columns} for each in traced}
            program = torch.export.export(model, (), traced, dynamic_shapes=shapes)
            torch.onnx.export(
                program,
                (),
                path,
                dynamo=True,
                input_names=list(traced),
                output_names=outputs,
                external_data=bytes_ > LARGEST,
                custom_translation_table=TRANSLATIONS,
            )
        drop_shapes(path)
    # The exporter raises errors of any type for operations that it does not know.
    except Exception as error:
        cause = f"--position-encoding is {config.position_encoding!r}"
        if scaling := config.position_options.get("rope_scaling"):
            cause = f"--rope-scaling is {scaling!r}"
        raise UsageError(
            f"{cause}, which torch cannot export for every length: use --to huggingface, and run "
            "the model by torch."
        ) from error


def error_of(path: Path, model: WithPooling, converted: Converted) -> float:
    """The largest difference of outputs at tokens, relative to the largest."""
    return largest_difference(session(path, converted), _source(model, converted), converted)


def _source(model: WithPooling, converted: Converted) -> Forward:
    """The outputs of the model that was exported."""
    return lambda ids: _joined(model(**inputs(ids, converted)))


def session(path: Path, converted: Converted) -> Forward:
    """A program, run by onnxruntime with ids B×T."""
    library = import_extra("onnxruntime", KIND)
    loaded = library.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [each.name for each in loaded.get_inputs()]

    def run(ids: Tensor) -> Tensor:
        values = inputs(ids, converted)
        found = loaded.run(None, {name: values[name].numpy() for name in names})
        return _joined(tuple(map(torch.from_numpy, found)))

    return run


def _joined(outputs: Tensor | tuple[Tensor, ...]) -> Tensor:
    """One tensor: first and last tokens of answers, B×T each, become B×T×2."""
    if isinstance(outputs, Tensor):
        return outputs
    return torch.stack(outputs, -1) if len(outputs) > 1 else outputs[0]


def open_program(directory: Path, converted: Converted, head: str | None) -> Opened:
    """The program in the directory."""
    run = session(directory / FILE, converted)
    return Opened(run, *texts_and_labels(directory, converted))


SUMMARY = (
    "a program for onnxruntime: logits, of masked tokens or of --head, features or embeddings"
)
register(Conversion("--to", KIND, SUMMARY, write, open_program, extra=KIND))
