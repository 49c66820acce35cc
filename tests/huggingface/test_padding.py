"""Where padding stands changes no logits: of every class, with every encoding."""

import pytest
import torch

from tests.huggingface.encoders import compiles_transformers
from tests.huggingface.samples import CLASSES, IN_ENCODERS, config, filled

pytest.importorskip("transformers", reason="transformers is not installed (extra hf)")

from tupe_fairseq import huggingface as hf

#: One score of each sequence, rather than of each token.
OF_SEQUENCES = (hf.TupeForSequenceClassification, hf.TupeForMultipleChoice)
ENCODERS = [hf.TupeModel, *CLASSES]
LENGTH = 8
#: Ids of two sequences.
TEXTS = [10, 11, 12, 13, 14], [17, 18, 19]
#: Columns of their tokens: padding on the right, on the left, between.
PLACES = {
    "right": ([0, 1, 2, 3, 4], [0, 1, 2]),
    "left": ([3, 4, 5, 6, 7], [5, 6, 7]),
    "between": ([0, 2, 3, 6, 7], [1, 4, 7]),
}


def batch(places: tuple[list[int], ...], filler: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask of the same tokens in these columns."""
    ids = torch.full((2, LENGTH), filler)
    mask = torch.zeros(2, LENGTH, dtype=torch.int64)
    for row, columns in enumerate(places):
        ids[row, columns] = torch.tensor(TEXTS[row])
        mask[row, columns] = 1
    return ids, mask


def small(kind, name: str, **changes):
    sizes = {"num_hidden_layers": 1, "max_position_embeddings": LENGTH, "num_labels": 3}
    return filled(kind, config(name, **sizes, **changes))


@torch.no_grad()
def outputs(model, ids: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """First outputs: of a sequence, or of its tokens in their order."""
    if isinstance(model, hf.TupeForMultipleChoice):
        # The two sequences are the choices of one question.
        ids = ids[None]
        mask = None if mask is None else mask[None]
    out = model(ids, attention_mask=mask)[0]
    if isinstance(model, OF_SEQUENCES):
        return out
    return out[(ids != 1 if mask is None else mask).bool().expand_as(ids)]


def check(model) -> None:
    """Compare with each sequence alone."""
    alone = [outputs(model, torch.tensor([text]), None) for text in TEXTS]
    expected = torch.cat(alone, 1 if isinstance(model, hf.TupeForMultipleChoice) else 0)
    for side, places in PLACES.items():
        ids, mask = batch(places, 1)
        for given in ((ids, mask), (ids, None), batch(places, 5)):
            actual = outputs(model, *given)
            torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5, msg=side)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((kind, "tupe_r") for kind in ENCODERS),
        *((hf.TupeForMaskedLM, name) for name in IN_ENCODERS),
        # Of the last layer, it reads the first tokens alone.
        *((hf.TupeForSequenceClassification, name) for name in IN_ENCODERS),
    ],
)
def test_encoders(kind, name):
    check(small(kind, name))


#: The same mask in forms that transformers takes.
FORMS = {
    "bool": lambda mask: mask.bool(),
    "float": lambda mask: mask.float(),
    "half": lambda mask: mask.bfloat16(),
    "bytes": lambda mask: mask.to(torch.uint8),
    "twos": lambda mask: 2 * mask,
    "negative": lambda mask: -mask,
    "one row for all": lambda mask: mask[:1],
    "a view of one row": lambda mask: mask[:1].expand_as(mask),
}


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ENCODERS)
def test_masks_of_any_form(kind, form, pooling):
    """Whatever is not 0 is a token, as in transformers."""
    model = small(kind, "tupe_r", classifier_pooling=pooling)
    for places, _ in PLACES.values():
        ids = torch.full((2, LENGTH), 5)
        mask = torch.zeros(2, LENGTH, dtype=torch.int64)
        ids[0, places] = torch.tensor(TEXTS[0])
        mask[:, places] = 1
        given = FORMS[form](mask)
        expected = outputs(model, ids, mask)
        found = outputs(model, ids, given)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_mean_of_a_text_without_tokens():
    """It is 0, and finite in every form of the mask."""
    model = small(hf.TupeForSequenceClassification, "tupe_r", classifier_pooling="mean")
    ids, mask = batch(PLACES["right"], 1)
    mask[1] = 0
    expected = model.classifier(torch.zeros(1, 32))
    for form in ("bool", "float", "twos", "negative"):
        found = model(ids, attention_mask=FORMS[form](mask)).logits
        torch.testing.assert_close(found[1:], expected)


@compiles_transformers
@pytest.mark.parametrize(("name", "side"), [("tupe_r", "between"), ("rope", "left")])
def test_compiled_models(name, side):
    """By graphs for any mask, with padding or without."""
    model = small(hf.TupeForMaskedLM, name)
    compiled = torch.compile(model, backend="eager")
    ids, mask = batch(PLACES[side], 1)
    for given in ((ids, mask), (ids, None), (ids.clamp(min=4), torch.ones_like(mask))):
        actual = outputs(compiled, *given)
        expected = outputs(model, *given)
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
