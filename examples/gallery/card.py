"""What a card says about an encoding, read from its class and from an instance.

No sentence here belongs to one encoding: the equation is the docstring, and everything else
follows from the hooks that the encoding overrides and from what they return.
"""

import functools
import inspect
from collections.abc import Iterator
from typing import NamedTuple

import torch

from tupe_fairseq import ConfigurationError, PositionEncoding, build_position_encoding
from tupe_fairseq.attention import ATTENTION_BACKENDS, LayerPlan
from tupe_fairseq.base.options import Option
from tupe_fairseq.position import POSITION_ENCODINGS, LayerTerms
from tupe_fairseq.position.bias import AttentionBias

#: Width, heads, positions, vocabulary and layers of BERT-Base.
BASE = 768, 12, 512, 32769, 12
#: The same of the model whose hooks are read.
SMALL = 64, 4, 32, 16, 2
#: More positions than any text has.
FAR = 2**18 + 1
#: A first paragraph that is shorter is an equation, whose symbols the second one explains.
SHORT = 150
#: A shorter line of a docstring ends where its author wanted it to.
FULL_LINE = 60


class Card(NamedTuple):
    """The text of a card.

    Attributes:
        name: value of --position-encoding.
        source: path of the module in the package.
        title: first line of the docstring: the paper, and the idea.
        equation: paragraphs that are always visible.
        notes: the other paragraphs, and what the class says.
        facts: what is known about it, by heading.
        options: its flags.
    """

    name: str
    source: str
    title: str
    equation: list[str]
    notes: list[str]
    facts: dict[str, str]
    options: tuple[Option, ...]


@functools.cache
def card(name: str) -> Card:
    """The card of a registered encoding."""
    cls = POSITION_ENCODINGS[name]
    module = inspect.getmodule(cls)
    assert module is not None
    title, *paragraphs = paragraphs_of(module)
    own = paragraphs_of(cls)
    if not paragraphs:
        paragraphs = own
        own = []
    encoding = _build(name, *SMALL)
    seen = encoding.at(0)
    terms = seen.build_layer_terms()
    facts = {
        "Enters at": ", ".join(_enters(encoding, seen, terms)) or "-",
        "Parameters": _parameters(name),
        "Cost": cost_of(encoding),
        "Backends": ", ".join(_backends(seen, terms)),
        "Beyond the trained length": _beyond(name, encoding),
    }
    if cls.causal_only:
        facts["Models"] = "decoders only"
    source = f"{module.__name__.replace('.', '/')}.py"
    visible = 2 if len(paragraphs[0]) < SHORT else 1
    equation = paragraphs[:visible]
    notes = [*paragraphs[visible:], *own]
    return Card(name, source, title, equation, notes, facts, cls.options())


def paragraphs_of(documented: object) -> list[str]:
    """The paragraphs of a docstring; a line is as long as its author meant it to be."""
    found = []
    for paragraph in (inspect.getdoc(documented) or "").split("\n\n"):
        text = ""
        for line in paragraph.splitlines():
            last = text.rsplit("\n", 1)[-1]
            # Aligned equations and indented lines are not running text.
            runs_on = len(last) > FULL_LINE and "  " not in last + line
            text += (" " if runs_on else "\n") + line if text else line
        found.append(text)
    return found


def _build(
    name: str, width: int, heads: int, positions: int, vocabulary: int, layers: int
) -> PositionEncoding:
    sides = not POSITION_ENCODINGS[name].causal_only
    sizes = {"vocab_size": vocabulary, "num_layers": layers}
    return build_position_encoding(name, width, heads, positions, sides, **sizes)


@torch.no_grad()
def _enters(
    encoding: PositionEncoding, seen: PositionEncoding, terms: LayerTerms | None
) -> Iterator[str]:
    """What positions change, in the words of the table of encodings."""
    if _changes_input(encoding):
        yield "input"
    if _rotates(seen, terms):
        yield "query, key"
    if seen.uses("attention_bias") or _adds(terms):
        yield "score"
    if terms is not None and terms.has_values:
        yield "value"


def _changes_input(encoding: PositionEncoding) -> bool:
    """Some override `embed` for an option only, so what counts is what it does."""
    x = torch.randn(1, 10, encoding.shape.embed_dim)
    return not encoding.embed(x, torch.arange(10)[None]).equal(x)


def _rotates(seen: PositionEncoding, terms: LayerTerms | None) -> bool:
    return seen.uses("rotate") or (terms is not None and terms.uses("rotate"))


def _adds(terms: LayerTerms | None) -> bool:
    """Whether the terms of a layer add to the scores."""
    return terms is not None and terms.uses("relative")


@torch.no_grad()
def cost_of(encoding: PositionEncoding) -> str:
    """What is computed, and how much of it is stored for T tokens."""
    return "; ".join(_costs(encoding)) or "nothing"


def _costs(encoding: PositionEncoding) -> Iterator[str]:
    seen = encoding.at(0)
    terms = seen.build_layer_terms()
    if _changes_input(encoding):
        yield "vectors at the input, O(T)"
    if _rotates(seen, terms):
        yield "changes of queries and keys in each layer, O(T)"
    bias = seen.attention_bias(10, 10)
    if bias is not None:
        often = "once for all layers" if encoding.at(0) is encoding.at(1) else "for each layer"
        yield f"{_stored(bias)}, {often}"
    if _adds(terms):
        yield "products with vectors by distance in each layer, O(T)"


def _stored(bias: AttentionBias) -> str:
    """The parts of a bias."""
    parts = []
    if bias.queries is not None:
        parts.append("a vector for each query and key")
    if bias.by_distance is not None:
        parts.append("a number for each distance")
    if bias.cells is not None:
        parts.append("a number for each query and key")
    size = "O(T)" if bias.cells is None else "O(T²)"
    return f"in each head {' and '.join(parts)}, {size}"


def _parameters(name: str) -> str:
    """What the encoding adds to a model of BERT-Base's size."""
    encoding = _build(name, *BASE)
    terms = encoding.at(0).build_layer_terms()
    own = sum(parameter.numel() for parameter in encoding.parameters())
    layer = sum(p.numel() for p in terms.parameters()) if terms is not None else 0
    return f"{own + BASE[-1] * layer:,}"


def _backends(seen: PositionEncoding, terms: LayerTerms | None) -> list[str]:
    """The backends that compute its attention, in an encoder unless it is for decoders only."""
    features = LayerPlan.of(seen, terms).needs
    return [name for name, one in ATTENTION_BACKENDS.items() if not one.unsupported(features)]


def _beyond(name: str, encoding: PositionEncoding) -> str:
    """How a trained model reads longer texts."""
    if encoding.position_tables():
        said = "`--extend-positions hierarchical`, for further training"
        if encoding.continues_by_distance:
            said += "; `--extend-positions toeplitz`, without training"
        return said
    try:
        _build(name, 16, 2, FAR, 16, 1)
    except ConfigurationError as error:
        # What follows "but" is the limit; the length before it is ours.
        return f"limited by an option: {str(error).rpartition('but ')[2]}"
    return "any length"
