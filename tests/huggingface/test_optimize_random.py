"""Random encoders, batches and arguments through `optimize`, against transformers."""

import random
from contextlib import nullcontext

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from tests.huggingface.encoders import IS_OLD, build, is_optimized  # noqa: E402
from tupe_fairseq.huggingface import optimize  # noqa: E402

NAMES = ("bert", "roberta", "v3", "v2", "own_projections", "modernbert_biases", "mpnet")
ACTS = ("gelu", "gelu_new", "relu", "silu", "tanh")
#: Relative errors of vectors, and those of gradients.
BOUNDS = {"exact": (1e-6, 1e-5), "fp32": (3e-5, 1e-3), "half": (0.15, 0.5), "int8": (0.3, 0)}


def drawn_model(draw: random.Random):
    """A model in training or evaluation, without dropout."""
    name = draw.choice(NAMES)
    heads, width = draw.choice([(1, 8), (2, 6), (3, 4), (4, 16), (6, 32)])
    act = "hidden_activation" if name.startswith("modern") else "hidden_act"
    changes = {act: draw.choice(ACTS), "hidden_size": heads * width, "num_attention_heads": heads}
    changes["num_hidden_layers"] = draw.choice([1, 2])
    changes["intermediate_size"] = draw.choice([8, 37, 64])
    head = draw.choice(["Model", "Model", "ForTokenClassification", "ForQuestionAnswering"])
    model = build(name, head, draw.randrange(99), **changes, num_labels=2)
    if draw.random() < 0.5:
        model.set_attn_implementation("eager")
    return model


def drawn_batch(draw: random.Random, model):
    """Ids or vectors, their mask in some dtype, and where tokens are."""
    rows, length = draw.choice([1, 2, 5]), draw.choice([1, 3, 20])
    side = draw.choice(["right", "right", "left", "scattered", "none"])
    shown = torch.ones(rows, length, dtype=torch.bool)
    for row in shown if side != "none" else ():
        count = draw.randint(1, length)
        hidden = {"right": range(count, length), "left": range(length - count)}.get(
            side, draw.sample(range(length), length - count)
        )
        row[list(hidden)] = False
    pad = model.config.pad_token_id or 0
    ids = torch.randint(4, model.config.vocab_size, shown.shape).masked_fill(~shown, pad)
    inputs = {"input_ids": ids}
    if draw.random() < 0.2:
        inputs = {"inputs_embeds": model.get_input_embeddings()(ids).detach()}
    dtype = draw.choice([torch.int64, torch.int64, torch.bool, torch.float32])
    return {**inputs, "attention_mask": shown.to(dtype)}, shown


def tensors(out, shown):
    """Where there are tokens, all that a model returns; a softmax of answers reads padding."""
    for name, value in out.items():
        for each in value if isinstance(value, tuple) else (value,):
            if name == "pooler_output":
                each = each[shown[:, 0]]
            elif name == "attentions":
                each = each * shown[:, None, :, None]
            elif not name.endswith("_logits"):
                each = each[shown]
            yield name, each


def near(ours, theirs, bound):
    """Whether a tensor has the dtype of another, and its values within a relative error."""
    assert ours.dtype == theirs.dtype
    error = (ours.double() - theirs.double()).norm()
    assert error <= bound * theirs.double().norm() + 1e-6 * max(theirs.numel(), 1) ** 0.5


@pytest.mark.skipif(IS_OLD, reason="transformers 4 is installed, which names other defaults")
@pytest.mark.parametrize("seed", range(60))
def test_outputs_and_gradients(seed):
    draw = random.Random(seed)
    model = drawn_model(draw)
    precision = draw.choice(["exact", "fp32", "fp32", "half", "autocast", "bf16", "int8"])
    model.to({"exact": torch.float64, "half": torch.bfloat16}.get(precision, torch.float32))
    inputs, shown = drawn_batch(draw, model)
    learns = precision in BOUNDS and precision != "int8" and draw.random() < 0.5
    for option in ("output_hidden_states", "output_attentions"):
        if draw.random() < 0.2:
            inputs[option] = True
    fast = optimize(model, precision if precision in ("bf16", "int8") else "fp32")
    assert is_optimized(fast)
    bound, steep = BOUNDS.get(precision, BOUNDS["half"])
    found = []
    for each in (model, fast):
        each.zero_grad()
        half = torch.autocast("cpu", torch.bfloat16) if precision == "autocast" else nullcontext()
        with torch.set_grad_enabled(learns), half:
            out = list(tensors(each(**inputs), shown))
        if learns:
            sum(value.square().sum() for _, value in out).backward()
        gradients = ((n, p.grad) for n, p in each.named_parameters() if p.grad is not None)
        found.append((out, {name: gradient.clone() for name, gradient in gradients}))
    (theirs, slopes), (ours, found_slopes) = found
    for (name, there), (same, here) in zip(theirs, ours, strict=True):
        assert name == same
        near(here, there, bound)
    assert slopes.keys() == found_slopes.keys()
    largest = max((each.norm() for each in slopes.values()), default=0)
    for name, slope in slopes.items():
        # Relative to the largest of all: that of a bias of keys is 0, but for rounding.
        assert (found_slopes[name] - slope).norm() <= steep * max(slope.norm(), 0.05 * largest)
