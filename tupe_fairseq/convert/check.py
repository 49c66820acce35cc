"""Comparison of a converted model with the model at the other end: outputs, texts and classes."""

import torch
from torch import Tensor

from ..base.errors import CheckpointError
from .conversion import Forward, Opened
from .models import Converted
from .tokenizer_files import TEXTS


class DifferenceError(CheckpointError):
    """A converted model is not what its source is."""


#: Largest difference of outputs in fp32, relative to the largest.
TOLERANCE = 1e-5
#: A larger one may be this many times that of the source from itself in fp64.
ROUNDING = 3


def separator(converted: Converted) -> int:
    """The id after which token types change: `</s>`, or any other than padding."""
    end = converted.settings["eos_token_id"]
    padding = converted.settings["pad_token_id"]
    return int(padding == 0) if end is None else end


def batch(converted: Converted, length: int) -> Tensor:
    """Random ids of three sentences, 3×T: full length, half of it and two tokens, padded.

    The first has the separator in its middle, after which token types change.
    """
    generator = torch.Generator().manual_seed(0)
    settings = converted.settings
    padding = settings["pad_token_id"]
    end = separator(converted)
    others = [number for number in range(settings["vocab_size"]) if number not in (padding, end)]
    tokens = torch.tensor(others)[torch.randint(len(others), (3, length), generator=generator)]
    tokens[0, length // 2] = end
    for row, stop in ((1, length // 2), (2, min(2, length))):
        tokens[row, max(stop, 1) :] = padding
    return tokens


def inputs(tokens: Tensor, converted: Converted) -> dict[str, Tensor]:
    """Ids, mask and token types for a model of transformers, B×T each.

    As in fairseq's model, the type is 0 up to the first separator, then 1 if the model has it.
    """
    ends = tokens.eq(separator(converted))
    types = (ends.cumsum(1) - ends.long()).clamp(max=int(converted.has_types))
    return {
        "input_ids": tokens,
        "attention_mask": tokens.ne(converted.settings["pad_token_id"]).long(),
        "token_type_ids": types,
    }


@torch.no_grad()
def outputs_at_tokens(forward: Forward, converted: Converted) -> Tensor:
    """Outputs for random texts of several lengths, without those at padding; in fp64."""
    found = []
    longest = converted.settings["max_position_embeddings"]
    for length in (2, 7, 17, 128):
        tokens = batch(converted, min(length, longest))
        outputs = forward(tokens).double()
        visible = tokens.ne(converted.settings["pad_token_id"])
        found.append((outputs[visible] if outputs.dim() == 3 else outputs).flatten())
    return torch.cat(found)


def relative(one: Tensor, other: Tensor) -> float:
    """The largest difference, relative to the largest of the other."""
    return ((one - other).abs().max() / other.abs().max().clamp(min=1e-9)).item()


def largest_difference(actual: Forward, expected: Forward, converted: Converted) -> float:
    """Of the outputs of two models, relative to the largest."""
    return relative(*(outputs_at_tokens(each, converted) for each in (actual, expected)))


def check(
    ends: tuple[Opened | None, Opened | None],
    converted: Converted,
    head: str | None,
    lower_case: bool,
) -> list[str]:
    """Compare two models: ids of some texts, names of classes, and outputs but at padding.

    With a classification `head`, the logits of that head are compared, and features or their
    embeddings where none is written. With `lower_case`, the second model lowercases texts.

    Returns:
        Lines of a report.

    Raises:
        DifferenceError: something differs.
    """
    before, after = ends
    report = _compare_texts(before, after, lower_case)
    # A source may have names of another number of classes, which are those of no head.
    labels = [end.labels for end in ends if end and len(end.labels) == len(converted.labels)]
    if head and len(labels) == 2 and all(labels):
        if labels[0] != labels[1]:
            raise DifferenceError(f"names of classes are {labels[1]}, but must be {labels[0]}.")
        report.append(f"names of classes: {', '.join(labels[0])}")
    if before is None or after is None or converted.not_comparable:
        return [*report, f"not compared: {converted.not_comparable}"]
    pooling = converted.pooling
    name = "logits of the head" if head else "logits"
    name = "features" if converted.writes_features(head) else name
    name = "embeddings" if pooling is not None and pooling.kind != "none" else name
    return [*report, f"{name}: {_compare_outputs(before, after, converted, name)}"]


def _compare_outputs(before: Opened, after: Opened, converted: Converted, name: str) -> str:
    """The largest difference of outputs.

    A model may amplify rounding errors. If the difference is too large, it is therefore compared
    with that of the source from itself in fp64.
    """

    def expected(ids: Tensor) -> Tensor:
        if converted.pooling is None:
            return before.outputs(ids)
        return converted.pooling(before.outputs(ids), ids.ne(converted.settings["pad_token_id"]))

    outputs = [outputs_at_tokens(each, converted) for each in (after.outputs, expected)]
    difference = relative(*outputs)
    line = f"largest difference {difference:.1e} of the largest"
    if difference <= TOLERANCE:
        return line
    if before.model is not None:
        before.model.double()
        exact = outputs_at_tokens(expected, converted)
        error, rounding = (relative(each, exact) for each in outputs)
        if error <= ROUNDING * rounding:
            return f"{line}, as in the source by rounding ({rounding:.1e})"
    # Also for NaN.
    raise DifferenceError(
        f"outputs of the converted model differ from its source: {name}: {line}."
    )


def _compare_texts(before: Opened | None, after: Opened | None, lower_case: bool) -> list[str]:
    """The parts of both tokenizers where neither is fairseq's, and the ids of some texts."""
    encode = before.encode if before else None
    encode_after = after.encode if after else None
    if before is None or after is None or encode is None or encode_after is None:
        return ["ids of texts are not compared: one side has no tokenizer"]
    common = before.tokenizer.keys() & after.tokenizer.keys()
    for part in sorted(common):
        if before.tokenizer[part] != after.tokenizer[part]:
            raise DifferenceError(
                f"the tokenizer of the converted model differs from its source: {part}."
            )
    for texts in TEXTS:
        expected = encode(tuple(text.lower() for text in texts) if lower_case else texts)
        ids = encode_after(texts)
        if ids != expected:
            raise DifferenceError(f"the tokenizer gives {texts} the ids {ids}, not {expected}.")
    same = [f"tokenizers: equal in {', '.join(sorted(common))}"] if common else []
    return [*same, f"ids of {len(TEXTS)} texts: equal"]
