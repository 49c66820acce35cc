"""Checkpoints of the authors' code: outputs, gradients, dictionary, refusals."""

import pytest
import torch

from tests.convert import release
from tests.convert.samples import refused, run
from tests.reference import tupe_release
from tests.tolerances import assert_close, assert_gradients_close
from tupe_fairseq import TupeRobertaModel
from tupe_fairseq.convert.formats import fairseq

KINDS = {
    "tupe_r": {},
    "tupe_a": {"relative": False},
    "no_embedding_norm": {"embedding_norm": False},
    "pre_norm": {"pre_norm": True, "embedding_norm": False},
    "joint_projections": {"joint": True},
}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def converted(tmp_path, *flags, **kind):
    checkpoint = release.write(tmp_path / "release", **kind)
    before = {path: path.read_bytes() for path in checkpoint.parent.iterdir()}
    report = run("--from", "tupe-official", checkpoint, tmp_path / "ours", *flags)
    assert {path: path.read_bytes() for path in checkpoint.parent.iterdir()} == before
    return TupeRobertaModel.from_pretrained(tmp_path / "ours"), report


def of_words(batch):
    """A padded batch as a list of its sentences without padding."""
    return [row[ids.ne(1)] for row, ids in zip(batch, release.tokens(), strict=True)]


@every_kind
def test_outputs_equal_the_equations(tmp_path, kind):
    roberta, report = converted(tmp_path, "--check", **kind)
    assert report[-1].startswith("not compared: the authors' code is not installed")
    assert_equations(roberta, release.state(**kind))


def assert_equations(roberta, state):
    """Compare with the reference in float64 on the release's parameters."""
    state = {name: value.double() for name, value in state.items()}
    hidden, logits = tupe_release.hidden_and_logits(state, release.HEADS, release.tokens())
    with torch.no_grad():
        ours = roberta.model(release.tokens(), features_only=True)[0]
        ours_logits = roberta.model(release.tokens())[0]
    for actual, expected in zip(of_words(ours), hidden, strict=True):
        assert_close(actual, expected)
    for actual, expected in zip(of_words(ours_logits), logits, strict=True):
        assert_close(actual, expected)


def test_half_precision(tmp_path):
    """Checkpoints of a training with --fp16; models are loaded in fp32."""
    halves = {name: value.half() for name, value in release.state().items()}
    run("--from", "tupe-official", release.write(tmp_path / "r", halves), tmp_path / "ours")
    assert_equations(TupeRobertaModel.from_pretrained(tmp_path / "ours"), halves)


@pytest.mark.parametrize("kind", [KINDS["tupe_r"], KINDS["joint_projections"]], ids=["", "joint"])
def test_gradients_equal_the_equations(tmp_path, kind):
    roberta, _ = converted(tmp_path, **kind)
    torch.manual_seed(0)
    directions = [torch.randn(11, 28), torch.randn(6, 28), torch.randn(1, 28)]
    loss = sum(
        (x * d).sum()
        for x, d in zip(of_words(roberta.model(release.tokens())[0]), directions, strict=True)
    )
    loss.backward()
    state = {n: v.double().requires_grad_() for n, v in release.state(**kind).items()}
    state["decoder.lm_head.weight"] = state[f"{release.ENCODER}embed_tokens.weight"]
    _, logits = tupe_release.hidden_and_logits(state, release.HEADS, release.tokens())
    sum((x * d.double()).sum() for x, d in zip(logits, directions, strict=True)).backward()
    found = {n: p.grad for n, p in roberta.model.named_parameters() if p.grad is not None}
    expected = fairseq.todays_names(
        {name: value.grad for name, value in state.items()}, fairseq.OFFICIAL_RULES
    )
    # The tied head is not a separate parameter.
    del expected["encoder.lm_head.weight"]
    assert found.keys() == expected.keys()
    assert_gradients_close(found, expected, torch.float32)


def test_dictionary_keeps_its_ids(tmp_path):
    roberta, _ = converted(tmp_path)
    assert roberta.task.source_dictionary.symbols == release.SYMBOLS
    assert roberta.task.mask_idx == len(release.SYMBOLS) - 1


def test_repeated_words_keep_both_ids(tmp_path):
    checkpoint = release.write(tmp_path / "release")
    lines = ["<url>", *release.WORDS[1:]]
    (tmp_path / "release" / "dict.txt").write_text("".join(f"{word} 3\n" for word in lines))
    run("--from", "tupe-official", checkpoint, tmp_path / "ours")
    dictionary = TupeRobertaModel.from_pretrained(tmp_path / "ours").task.source_dictionary
    assert dictionary.symbols[4:9] == ["<file>", "<email>", "<url>", "<url>", "w1"]
    assert dictionary.index("<url>") == 7


@pytest.mark.parametrize("heads", ["heads", "short_heads"])
def test_heads(tmp_path, heads):
    """Short heads, of the first release, have no dense projection."""
    kind = {heads: ("sentence",)}
    roberta, report = converted(tmp_path, **kind)
    told = "sentence: the missing dense projection is the identity here"
    assert (told in report) == (heads == "short_heads")
    state = {n.rpartition("sentence.")[2]: v for n, v in release.state(**kind).items()}
    x = roberta.extract_features(release.tokens()[:1])[0, 0]
    if heads == "heads":
        x = torch.tanh(state["dense.weight"] @ x + state["dense.bias"])
    expected = state["out_proj.weight"] @ x + state["out_proj.bias"]
    found = roberta.predict("sentence", release.tokens()[:1], return_logits=True)
    assert_close(found[0], expected)


def test_saved_buckets_are_left_out(tmp_path):
    """The table that pull request 20 saves follows from the settings."""
    state = release.state() | {f"{release.ENCODER}rp_bucket": torch.zeros(12, 12)}
    checkpoint = release.write(tmp_path / "release", state)
    assert fairseq.read_official(checkpoint).settings["position_encoding"] == "tupe_r"


def without(name):
    return {n: v for n, v in release.state().items() if not n.endswith(name)}


@pytest.mark.parametrize(
    ("parameters", "parts"),
    [
        (without("layers.1.fc2.bias"), ["1 missing", "layers.1.fc2.bias"]),
        (release.state() | {"decoder.more": torch.zeros(2)}, ["1 unknown", "encoder.more"]),
        (
            release.state() | {f"{release.ENCODER}pos_ln.bias": torch.zeros(3)},
            ["1 of another shape", "layer_norm.bias (3,) instead of (16,)"],
        ),
        (
            release.state()
            | {f"{release.ENCODER}pos.weight": torch.zeros(1).expand(10**6, 10**6)},
            ["embed_positions.weight (1000000, 1000000) instead of"],
        ),
        (without("pos.weight"), ["tupe-official", "embed_positions.weight"]),
        (without("embed_tokens.weight"), ["embed_tokens.weight"]),
        (
            without("relative_attention_bias.weight"),
            ["1 missing", "relative_bias"],
        ),
        (without("emb_layer_norm.weight"), ["1 unknown", "layernorm_embedding.bias"]),
        (
            release.state(heads=("a",), short_heads=("b",)),
            ["lacks classification_heads.b.dense.weight", "remove the parameters of this head"],
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_parameters_that_do_not_fit(tmp_path, parameters, parts):
    checkpoint = release.write(tmp_path / "release", parameters)
    before = checkpoint.read_bytes()
    with refused(*parts):
        run("--from", "tupe-official", checkpoint, tmp_path / "ours")
    assert [path.name for path in tmp_path.iterdir()] == ["release"]
    assert checkpoint.read_bytes() == before


def test_a_folder_as_source(tmp_path):
    checkpoint = release.write(tmp_path / "release")
    checkpoint.rename(checkpoint.with_name("checkpoint_best.pt"))
    run("--from", "tupe-official", checkpoint.parent, tmp_path / "ours")
    assert TupeRobertaModel.from_pretrained(tmp_path / "ours").model.max_positions() == 12
