"""Encoders of transformers that onnxruntime computes: `optimize(model, engine="onnxruntime")`.

The program is that of `--to onnx` with features. It stands behind the encoder's own `forward`, so
that heads, sentence-transformers and pipelines use it as the encoder.
"""

import json
import os
import tempfile
import threading
import weakref
from pathlib import Path
from shutil import rmtree
from typing import Any

import torch
from torch import Tensor, nn

from ..base.errors import DataError, UsageError
from ..base.extras import import_extra
from .formats import huggingface, onnx
from .graphs import quietly
from .integers import quantize

FILES = {"fp32": onnx.FILE, "int8": onnx.INT8_FILE}
#: What may be given to `forward` besides ids, mask and types: it changes no features.
IGNORED = ("return_dict", "use_cache", "num_items_in_batch")
#: Classes of encoders that run a program, by those of transformers.
CLASSES: dict[type, type] = {}
_one_at_a_time = threading.Lock()
_programs: "weakref.WeakSet[Program]" = weakref.WeakSet()
#: What a forked process has from the one before.
_inherited: list[Any] = []


class Program:
    """A program on disk, which each process loads for itself when it first runs it.

    Args:
        path: of the program.
        temporary: whether to remove its folder when it is not used any more.
    """

    def __init__(self, path: Path, temporary: bool):
        self.path = path
        self.temporary = temporary
        self.loaded: Any = None
        _programs.add(self)
        if temporary:
            weakref.finalize(self, _remove, path.parent, os.getpid())

    def run(self, inputs: dict[str, Tensor]) -> Tensor:
        """Features, B×T×C, of inputs that may be more than the program has."""
        if self.loaded is None:
            with _one_at_a_time:
                if self.loaded is None:
                    self.loaded = self._load()
        session = self.loaded
        values = {each.name: inputs[each.name].cpu().numpy() for each in session.get_inputs()}
        return torch.from_numpy(session.run(None, values)[0])

    def _load(self) -> Any:
        library = import_extra("onnxruntime", onnx.KIND)
        options = library.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        providers = ["CPUExecutionProvider"]
        return library.InferenceSession(str(self.path), options, providers=providers)

    def __deepcopy__(self, memo: Any) -> "Program":
        return self

    def __getstate__(self) -> dict[str, Any]:
        """The files of a temporary folder, which may not be there when they are read again."""
        files = {}
        if self.temporary:
            files = {
                each.name: each.read_bytes() for each in self.path.parent.glob("model*.onnx*")
            }
        return {"path": self.path, "temporary": self.temporary, "files": files}

    def __setstate__(self, state: dict[str, Any]) -> None:
        path = state["path"]
        if state["temporary"]:
            path = Path(tempfile.mkdtemp(prefix="tupe_fairseq.")) / path.name
            for name, contents in state["files"].items():
                (path.parent / name).write_bytes(contents)
        self.__init__(path, state["temporary"])  # type: ignore[misc]


def _forget() -> None:
    """Let programs be loaded again in a forked process, which has no threads of onnxruntime.

    What was loaded is kept: removing it would wait for these threads, or for others that have
    their memory now.
    """
    for each in _programs:
        _inherited.append(each.loaded)
        each.loaded = None


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget)


def _remove(folder: Path, process: int) -> None:
    """Remove a folder, but not in a process that was forked."""
    if os.getpid() == process:
        rmtree(folder, ignore_errors=True)


class RunsProgram(nn.Module):
    """The part that encoders with a program share."""

    config: Any
    pooler: Any
    program: Program
    #: Tokens of the longest text.
    longest: int
    #: Whether a head reads features at padding, which the program does not compute.
    reads_padding: bool

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **more: Any,
    ) -> Any:
        """As the class of transformers, for inference; features at padding are 0.

        Raises:
            UsageError: gradients are enabled, or something is asked for that the program lacks.
        """
        self._check(input_ids, attention_mask, more)
        assert input_ids is not None
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        inputs = {"input_ids": input_ids, "attention_mask": mask.long(), "token_type_ids": types}
        last = self.program.run(inputs)
        hidden = mask == 0
        if hidden.any():
            if self.reads_padding:
                raise UsageError("ForQuestionAnswering reads padding, which programs do not have.")
            if (hidden[:, :-1] & ~hidden[:, 1:]).any():
                raise DataError("attention_mask has padding before a token: pad on the right.")
            last[hidden] = 0
        weight = next(self.parameters())
        return self._output(last.to(weight.device, weight.dtype), more.get("return_dict"))

    def _output(self, last: Tensor, wanted: bool | None) -> Any:
        outputs = import_extra("transformers", "hf").modeling_outputs
        if hasattr(self, "pooler"):
            pooled = None if self.pooler is None else self.pooler(last)
            output = outputs.BaseModelOutputWithPoolingAndCrossAttentions(last, pooled)
        else:
            output = outputs.BaseModelOutput(last)
        return output if (self.config.return_dict if wanted is None else wanted) else output[:]

    def _check(self, ids: Tensor | None, mask: Any, more: dict[str, Any]) -> None:
        if torch.is_grad_enabled():
            raise UsageError(
                "engine 'onnxruntime' computes no gradients: call the model in torch.no_grad()."
            )
        asked = {name: more.get(name) for name in more if name not in IGNORED}
        for name in ("output_hidden_states", "output_attentions"):
            if asked.get(name) is None:
                asked[name] = getattr(self.config, name, None)
        names = [name for name, value in asked.items() if value is not None and value is not False]
        if names or ids is None:
            raise UsageError(
                f"engine 'onnxruntime' does not serve {names[0] if names else 'inputs_embeds'}: "
                "use the model that was given to optimize."
            )
        if mask is not None and mask.shape != ids.shape:
            raise DataError(
                f"attention_mask has the shape {tuple(mask.shape)}, but must have "
                f"{tuple(ids.shape)} with engine 'onnxruntime'."
            )
        if ids.size(1) > self.longest:
            raise DataError(
                f"input_ids have {ids.size(1)} tokens, but the program takes {self.longest}."
            )

    def __reduce_ex__(self, protocol: Any) -> Any:
        """How pickle makes an encoder again, whose class has no place in this module."""
        return _empty, (type(self).__bases__[1],), self.__dict__


def install(
    encoder: Any, kind: Any, reads_padding: bool, precision: str, directory: str | Path | None
) -> str:
    """Let an encoder run its program, which is made if the directory has none.

    Args:
        encoder: of transformers.
        kind: whose `parts` the program computes; they are dropped.
        reads_padding: whether a head reads features at padding.
        precision: "fp32" or "int8".
        directory: of the program; None: a temporary one.

    Returns:
        Why the encoder stays as it is, or an empty string.

    Raises:
        UsageError: a library is not installed, or the directory has another model's program.
    """
    from ..huggingface.optimized import SelfAttention

    for library in ("onnxruntime", "onnx", "onnxscript"):
        import_extra(library, onnx.KIND)
    if any(isinstance(module, SelfAttention) for module in encoder.modules()):
        return "it has been optimized already, for engine 'torch'"
    temporary = directory is None
    folder = Path(directory or tempfile.mkdtemp(prefix="tupe_fairseq."))
    try:
        longest = _write(encoder, folder, precision)
    except UsageError as error:
        if not temporary:
            raise
        rmtree(folder, ignore_errors=True)
        return str(error).rstrip(".")
    program = Program(folder / FILES[precision], temporary)
    for name in kind.parts:
        setattr(encoder, name, nn.Module())
    encoder.program = program
    encoder.longest = longest
    encoder.reads_padding = reads_padding
    encoder.register_state_dict_pre_hook(_refuse)
    encoder.__class__ = _class_of(type(encoder))
    return ""


def _refuse(encoder: Any, *_: Any) -> None:
    """Raise a UsageError; a hook called before the state dict is built."""
    raise UsageError(
        "a model with engine 'onnxruntime' cannot be saved: save the model that was given to "
        "optimize."
    )


def _write(encoder: Any, folder: Path, precision: str) -> int:
    """Write the program, if it is not there; return the longest text that it takes."""
    file = folder / onnx.FILE
    if not file.exists():
        with tempfile.TemporaryDirectory() as source, quietly():
            encoder.save_pretrained(source)
            converted = huggingface.read(source)
            int8 = precision == "int8"
            # `optimize` compares, with its own limit.
            onnx.write(converted, folder, pooling="none", int8=int8, least_cosine=0)
    elif not (folder / FILES[precision]).exists():
        quantize(file, folder / onnx.INT8_FILE)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return int(config["max_position_embeddings"])


def _class_of(kind: type) -> type:
    """The class of encoders that run a program, of this name; models are pickled by it."""
    if kind not in CLASSES:
        CLASSES[kind] = type(kind.__name__, (RunsProgram, kind), {"__module__": __name__})
    return CLASSES[kind]


def _empty(kind: type) -> Any:
    """An encoder without parts."""
    made: Any = _class_of(kind)
    return made.__new__(made)
