"""`transplant`: another position encoding for the encoder inside any model."""

import copy
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import transformers
from torch import nn

from ..base.errors import UsageError
from ..convert.classes import to_transformers
from ..convert.formats import huggingface
from ..convert.models import Converted
from ..huggingface import TupeModel
from .distillation import distil
from .recipe import Recipe

T = TypeVar("T", bound=nn.Module)
#: Exactly these, because a subclass may compute something else.
ENCODERS = (
    transformers.BertModel,
    transformers.RobertaModel,
    transformers.XLMRobertaModel,
    transformers.CamembertModel,
    transformers.DebertaV2Model,
    transformers.ModernBertModel,
    transformers.MPNetModel,
    TupeModel,
)
#: How the names of classes end that have a head which is converted with its encoder.
HEADS = (
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMultipleChoice",
)
#: Where models keep their tokenizer: sentence-transformers, GLiNER.
TOKENIZERS = ("tokenizer", "data_processor.transformer_tokenizer")


def transplant(
    model: T,
    texts: str | Path | Sequence[str],
    position_encoding: str = "tupe_r",
    *,
    tokenizer: Any = None,
    out: str | Path | None = None,
    length: int | None = None,
    max_positions: int | None = None,
    updates: int = Recipe.updates,
    lr: float = Recipe.lr,
    position_lr: float = Recipe.position_lr,
    batch_size: int = Recipe.batch_size,
    disordered: float = Recipe.disordered,
    pairs: float = Recipe.pairs,
    layers: float = Recipe.layers,
    start: str = Recipe.start,
    seed: int = Recipe.seed,
    bf16: bool = Recipe.bf16,
    **options: Any,
) -> T:
    """A copy of a model whose encoder has another position encoding, and nearly its features.

    The copy is trained, without labels, to have the features that `model` has. `model` stays as
    it is. A model of transformers becomes one of this package with the same head, such as a
    `TupeForSequenceClassification`; in any other model, the encoder alone is replaced. The copy is
    saved by its own library. Before it is loaded, import `tupe_fairseq.huggingface`.

        >>> longer = transplant(model, "texts.txt", "tupe_r", max_positions=2048)
        >>> longer.save_pretrained("longer")

    Args:
        model: an `nn.Module` with one BERT, RoBERTa, XLM-RoBERTa, CamemBERT, DeBERTa-v2,
            ModernBERT or MPNet of transformers inside, or one that has been transplanted.
        texts: a file in UTF-8 with a text in each line, or the texts; at least 1,000 different
            ones.
        position_encoding: the name of any encoding for encoders.
        tokenizer: of transformers; by default that of a `SentenceTransformer`, `CrossEncoder` or
            GLiNER.
        out: a directory for checkpoints and measures. The same call continues after an
            interruption, and a call with more updates goes on. None: nothing is written.
        length: tokens of a text in the training at most; None: 128, or fewer if `model` reads
            fewer.
        max_positions: the longest text of the copy, in tokens, which its own tokenizer then has
            as its maximum, too; None: as before.
        updates: at most; the training ends earlier if the error no longer falls.
        lr: the largest learning rate.
        position_lr: that of the parameters of the position encoding.
        batch_size: texts of an update.
        disordered: the share of texts whose words are in another order.
        pairs: the share of texts that are read as the pair of their halves.
        layers: the weight of the features of layers before the last one.
        start: "mean" keeps the mean of the positions that `model` adds to its input, "random"
            does not.
        seed: of new parameters and the order of texts.
        bf16: products of matrices are in bfloat16 in the training, which is faster on processors
            and GPUs that compute in it.
        **options: of the encoding and of every encoding, such as `attention_window`.

    Returns:
        The copy, on the device and in the dtype of the encoder in `model`. It is of the class of
        `model`, unless that is a model of transformers itself.

    Raises:
        UsageError: there is no known encoder or more than one, or an argument does not fit.
    """
    recipe = Recipe(
        position_encoding,
        options,
        length,
        max_positions,
        updates,
        lr,
        position_lr,
        batch_size,
        disordered,
        pairs,
        layers,
        start,
        seed,
        bf16,
    )
    encoder = _encoder(model)
    unit = _with_head(model, encoder)
    tokenizer = tokenizer or _tokenizer(model)
    source = _read(unit)
    first = next(encoder.parameters())
    directory = None if out is None else Path(out)
    result = distil(source, tokenizer, texts, recipe, directory, first.device)
    made = to_transformers(result.converted, "tupe", result.converted.head)
    made = made.to(first.device, first.dtype).train(unit.training)
    copied: T = copy.deepcopy(model, {id(unit): made, **_configs(model, encoder, made)})
    if max_positions is not None:
        _lengthen(copied, max_positions)
    return copied


def _encoder(model: Any) -> Any:
    """The encoder inside a model.

    Raises:
        UsageError: there is none that is known, or more than one.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"model is a {type(model).__name__}, but must be an nn.Module.")
    found = {name: each for name, each in model.named_modules() if type(each) in ENCODERS}
    if not found:
        known = ", ".join(each.__name__ for each in ENCODERS)
        raise UsageError(
            f"model is a {type(model).__name__} without a known encoder; known are: {known} "
            "(before optimize)."
        )
    if len(found) > 1:
        names = " and ".join(repr(name) for name in found)
        raise UsageError(
            f"model has {len(found)} encoders, {names}: give the part that has one of them, and "
            "put the result in its place."
        )
    return next(iter(found.values()))


def _with_head(model: nn.Module, encoder: nn.Module) -> Any:
    """The model of transformers that an encoder is in, or the encoder itself.

    Raises:
        UsageError: its head is not known.
    """
    for parent in model.modules():
        own = type(parent).__module__.startswith(("transformers.models.", "tupe_fairseq."))
        if own and parent is not encoder and encoder in parent.children():
            name = type(parent).__name__
            if not name.endswith(HEADS):
                raise UsageError(
                    f"model has a {name}, whose head cannot be kept: known heads are "
                    f"{', '.join(HEADS)}."
                )
            return parent
    return encoder


def _tokenizer(model: nn.Module) -> Any:
    """The tokenizer of a model.

    Raises:
        UsageError: it has none.
    """
    for path in TOKENIZERS:
        found: Any = model
        for name in path.split("."):
            found = getattr(found, name, None)
        if found is not None:
            return found
    raise UsageError(
        f"model is a {type(model).__name__}, in which there is no tokenizer: give tokenizer=."
    )


def _read(unit: Any) -> Converted:
    """A model of transformers in the form between formats."""
    with TemporaryDirectory() as folder:
        unit.save_pretrained(folder)
        return huggingface.read(folder)


def _configs(model: nn.Module, encoder: Any, made: Any) -> dict[int, Any]:
    """The configurations of the encoder that a model keeps beside it, and the new one for each.

    GLiNER builds the encoder that it loads by such a configuration.
    """
    kept = (getattr(module, "config", None) for module in model.modules())
    values = (value for config in kept if config is not None for value in vars(config).values())
    kind = type(encoder.config)
    return {id(value): made.config for value in values if type(value) is kind}


def _lengthen(model: Any, positions: int) -> None:
    """Let a model's own tokenizer cut texts at so many tokens."""
    for path in TOKENIZERS:
        owner, _, name = path.rpartition(".")
        tokenizer = getattr(getattr(model, owner, None) if owner else model, name, None)
        if tokenizer is not None:
            tokenizer.model_max_length = positions
    if hasattr(model, "max_seq_length"):
        model.max_seq_length = positions
