"""The authors' own code, if a checkout of it is given: TUPE_OFFICIAL=FOLDER.

Of github.com/guolinke/TUPE only these files are read, and run on today's torch:
fairseq/modules/{multihead_attention,transformer_sentence_encoder{,_layer}}.py and
fairseq/models/bert/model.py. The code decides what its checkpoints look like: its main branch, its
first release (classification heads of one projection) and its pull request 20 (one projection of
positions for queries and keys, a saved table of buckets) all pass.
"""

import ast
import inspect
import os
import sys
import types
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.convert import release
from tests.convert.test_tupe_official import converted, of_words
from tests.tolerances import assert_close, assert_gradients_close
from tupe_fairseq.convert.formats import fairseq

CHECKOUT = Path(os.environ.get("TUPE_OFFICIAL", "/nonexistent"))
pytestmark = pytest.mark.skipif(
    not CHECKOUT.is_dir(), reason="TUPE_OFFICIAL is not a checkout of guolinke/TUPE"
)
KINDS = {
    "tupe_r": {},
    "tupe_a": {"relative": False},
    "no_embedding_norm": {"embedding_norm": False},
    "pre_norm": {"pre_norm": True},
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_outputs_and_gradients(tmp_path, kind, monkeypatch):
    """Hidden states, logits, those of a classification head, and gradients of the logits."""
    kind = kind | layout(monkeypatch)
    encoder, head, classifier = (module.eval() for module in models(kind, monkeypatch))
    roberta, _ = converted(tmp_path, **kind)
    states, _ = encoder(release.tokens(), last_state_only=True)
    ours = roberta.model(release.tokens(), features_only=True)[0]
    logits = head(states[0])
    our_logits = roberta.model(release.tokens())[0]
    for pair in ((ours, states[0]), (our_logits, logits)):
        for actual, expected in zip(*map(of_words, pair), strict=True):
            assert_close(actual, expected)
    found = roberta.predict("sentence", release.tokens(), return_logits=True)
    assert_close(found, classifier(states[0]))
    direction = torch.randn(logits.shape) * release.tokens().ne(1)[..., None]
    (logits * direction).sum().backward()
    (our_logits * direction).sum().backward()
    found = {n: p.grad for n, p in roberta.model.named_parameters() if p.grad is not None}
    expected = {f"{release.ENCODER}{n}": p.grad for n, p in encoder.named_parameters()}
    expected |= {f"decoder.lm_head.{n}": p.grad for n, p in head.named_parameters()}
    # The head's weight is that of the words.
    own = {n: g for n, g in expected.items() if g is not None and "head.weight" not in n}
    expected = fairseq.todays_names(own, fairseq.OFFICIAL_RULES)
    assert found.keys() == expected.keys()
    assert_gradients_close(found, expected, torch.float32)


def layout(monkeypatch) -> dict:
    """Which parameters the checkout has, as arguments of `release.state`."""
    encoder = build_encoder({}, monkeypatch)
    dense = "inner_dim" in inspect.signature(release_heads()["BertClassificationHead"]).parameters
    heads = {"heads" if dense else "short_heads": ("sentence",)}
    return {"joint": hasattr(encoder, "pos_proj"), **heads}


def models(kind, monkeypatch) -> tuple[nn.Module, nn.Module, nn.Module]:
    """The release's encoder, head for masked words and classification head, with parameters."""
    encoder = build_encoder(kind, monkeypatch)
    state = release.state(**kind)
    own = {n.removeprefix(release.ENCODER): v for n, v in state.items() if "encoder" in n}
    buckets = {n: v for n, v in encoder.state_dict().items() if n == "rp_bucket"}
    encoder.load_state_dict(own | buckets)
    classes = release_heads()
    head = classes["BertLMHead"](
        release.WIDTH, len(release.SYMBOLS), "gelu", weight=encoder.embed_tokens.weight
    )
    inner = (release.WIDTH, 3, "tanh", 0.1) if "heads" in kind else (3, 0.1)
    classifier = classes["BertClassificationHead"](release.WIDTH, *inner)
    for module, prefix in ((head, "decoder.lm_head."), (classifier, "classification_heads.")):
        parts = {n.split(".", 2)[2]: v for n, v in state.items() if n.startswith(prefix)}
        module.load_state_dict(parts)
    return encoder, head, classifier


def build_encoder(kind, monkeypatch) -> nn.Module:
    return release_encoder(monkeypatch)(
        1, len(release.SYMBOLS), release.LAYERS, release.WIDTH, release.INNER, release.HEADS,
        max_seq_len=release.POSITIONS, embedding_normalize=kind.get("embedding_norm", True),
        activation_fn="gelu", rel_pos=kind.get("relative", True),
        encoder_normalize_before=kind.get("pre_norm", False),
    )  # fmt: skip


def release_heads() -> dict[str, type]:
    """The classes of the two heads alone, since their file registers models."""
    import fairseq.modules
    import torch.nn.functional as F
    from fairseq import utils

    tree = ast.parse((CHECKOUT / "fairseq" / "models" / "bert" / "model.py").read_text())
    wanted = ("BertLMHead", "BertClassificationHead")
    tree.body = [node for node in tree.body if getattr(node, "name", None) in wanted]
    names = {"torch": torch, "nn": nn, "F": F, "utils": utils}
    names["LayerNorm"] = fairseq.modules.LayerNorm
    exec(compile(tree, "model.py", "exec"), names)
    return names


def release_encoder(monkeypatch) -> type:
    """The class of the encoder, with the release's attention and layers in place of fairseq's."""
    import fairseq.modules

    shim = types.ModuleType("fairseq.modules")
    vars(shim).update(vars(fairseq.modules))
    monkeypatch.setitem(sys.modules, "fairseq.modules", shim)
    for file, name in (
        ("multihead_attention", "MultiheadAttention"),
        ("transformer_sentence_encoder_layer", "TransformerSentenceEncoderLayer"),
        ("transformer_sentence_encoder", "TransformerSentenceEncoder"),
    ):
        path = CHECKOUT / "fairseq" / "modules" / f"{file}.py"
        module = types.ModuleType(file)
        exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
        setattr(shim, name, getattr(module, name))
    return shim.TransformerSentenceEncoder
