"""DeBERTa-v2 of transformers there and back, and as our class with its code."""

import json
from pathlib import Path

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
from examples.glue.tokenizer import Tokenizer  # noqa: E402
from tests.convert import pieces  # noqa: E402
from tests.convert.samples import change_config, refused, run  # noqa: E402
from tests.huggingface.deberta import NEEDS_LEGACY, RELEASED, batch, theirs_of  # noqa: E402
from tests.tolerances import assert_close  # noqa: E402
from tupe_fairseq import TupeRobertaModel  # noqa: E402

TASKS = (
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
)
HEADS = {
    "ForSequenceClassification": "sentence_classification_head",
    "ForTokenClassification": "token_classification_head",
    "ForQuestionAnswering": "question_answering_head",
}
OTHER = {
    "position_biased_input": True,
    "type_vocab_size": 2,
    "pos_att_type": ["p2c"],
    "max_relative_positions": 9,
    "legacy": NEEDS_LEGACY,
    "hidden_act": "relu",
}
TEXT = [line for line in Path(__file__).with_name("pieces.py").read_text().splitlines() if line]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A sentencepiece unigram model with the special symbols of DeBERTa-v3."""
    folder = tmp_path_factory.mktemp("tokenizer")
    special = {"pad": "[PAD]", "bos": "[CLS]", "eos": "[SEP]", "unk": "[UNK]"}
    settings = {f"{name}_id": i for i, name in enumerate(special)}
    settings |= {f"{name}_piece": piece for name, piece in special.items()}
    pieces.train(folder, TEXT, 120, model_type="unigram", **settings)
    (folder / "sentencepiece.bpe.model").rename(folder / "spm.model")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "DebertaV2Tokenizer"}')
    (folder / "config.json").write_text('{"model_type": "deberta-v2"}')
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.fixture
def saved(tokenizer, tmp_path):
    """Write a model of a task with these options, and its tokenizer."""

    def save(task: str, **options) -> Path:
        sizes = {"vocab_size": len(tokenizer) + 3, "num_labels": 2 if "Q" in task else 3}
        theirs_of(task, **sizes, **options).save_pretrained(tmp_path / "theirs")
        tokenizer.save_pretrained(tmp_path / "theirs")
        return tmp_path / "theirs"

    return save


def loaded(task: str, folder: Path, **how) -> torch.nn.Module:
    auto = getattr(transformers, f"Auto{task}" if task == "Model" else f"AutoModel{task}")
    return auto.from_pretrained(folder, **how).eval()


def outputs(model: torch.nn.Module, given: dict) -> list[torch.Tensor]:
    """All outputs at tokens."""
    found = model(**given).to_tuple()
    mask = given["attention_mask"].bool()
    return [x[mask] if x.shape[:2] == mask.shape else x for x in found]


@pytest.mark.parametrize(
    ("task", "options"),
    [*((task, RELEASED) for task in TASKS), (TASKS[0], OTHER), (TASKS[2], OTHER)],
    ids=[*TASKS, "other-options", "other-options-of-tokens"],
)
def test_there_and_back_and_as_our_class(saved, task, options):
    source = saved(task, **options)
    here, back, ours = (source.with_name(name) for name in ("here", "back", "ours"))
    run("--from", "huggingface", source, here, "--check")
    head = ("--head", HEADS[task]) if task in HEADS else ()
    run("--to", "huggingface", here, back, "--classes", "deberta-v2", *head)
    run("--to", "huggingface", here, ours, *head)
    theirs = loaded(task, source)
    again = loaded(task, back)
    assert type(again) is type(theirs)
    state = theirs.state_dict()
    assert again.state_dict().keys() == state.keys()
    for name, value in again.state_dict().items():
        assert torch.equal(value, state[name]), name
    converted = loaded(task, ours, trust_remote_code=True)
    given = batch(20, 0, 7)
    if options.get("type_vocab_size"):
        given["token_type_ids"] = torch.arange(20).expand(2, -1) % 2
    for found, expected in zip(outputs(converted, given), outputs(theirs, given), strict=True):
        assert_close(found, expected)


@pytest.mark.parametrize("recorded", [None, True])
@pytest.mark.skipif(NEEDS_LEGACY, reason="transformers 4 computes other logits")
def test_a_head_of_the_released_form(saved, recorded):
    """Its config.json does not name the form, or is that of another model."""
    source = saved("ForMaskedLM", **RELEASED, legacy=False)
    expected = loaded("ForMaskedLM", source)
    config = json.loads((source / "config.json").read_text())
    del config["legacy"]
    config |= {} if recorded is None else {"legacy": recorded}
    (source / "config.json").write_text(json.dumps(config))
    here, back, ours = (source.with_name(name) for name in ("here", "back", "ours"))
    run("--from", "huggingface", source, here, "--check")
    run("--to", "huggingface", here, back, "--classes", "deberta-v2", "--check")
    run("--to", "huggingface", here, ours, "--check")
    given = batch(20, 0, 7)
    for folder in (back, ours):
        again = loaded("ForMaskedLM", folder, trust_remote_code=True)
        for one, other in zip(outputs(again, given), outputs(expected, given), strict=True):
            assert_close(one, other)


def test_texts_have_the_ids_of_transformers(saved, tokenizer):
    """In fairseq's pipeline, and of the tokenizers that are written."""
    source = saved("ForMaskedLM", **RELEASED)
    here, back, ours = (source.with_name(name) for name in ("here", "back", "ours"))
    run("--from", "huggingface", source, here)
    run("--to", "huggingface", here, back, "--classes", "deberta-v2")
    run("--to", "huggingface", here, ours)
    hub = TupeRobertaModel.from_pretrained(here)
    others = [transformers.AutoTokenizer.from_pretrained(folder) for folder in (back, ours)]
    # fairseq's ids of [CLS] and [PAD] are 0 and 1, DeBERTa's 1 and 0.
    order = [1, 0, *range(2, len(hub.task.source_dictionary))]
    odd = [
        "  two  spaces ",
        "a\u00a0b",
        "\ufb01 \u338f",
        "tab\tline\n",
        "[MASK] [CLS] <s>",
        "e\u0301",
        "",
    ]
    for text in (*TEXT, *odd):
        expected = tokenizer(text)["input_ids"]
        assert [order[i] for i in hub.encode(text)] == expected, text
        assert all(other(text)["input_ids"] == expected for other in others), text
    for_glue = Tokenizer(here)
    assert not for_glue.lowercase
    assert torch.equal(for_glue.encode(TEXT[0]), hub.encode(TEXT[0])[1:-1].int())
    for_glue.copy_to(source)
    assert (source / "tokenizer.json").read_text() == (here / "tokenizer.json").read_text()
    pair = hub.encode("a model", "of pieces", no_separator=True)
    assert [order[i] for i in pair] == tokenizer("a model", "of pieces")["input_ids"]
    assert hub.decode(hub.encode("a model of pieces")) == "a model of pieces"
    for text, _, word in hub.fill_mask("a <mask> of", topk=20):
        assert text == f"a{word} of", "a word begins with a space, as its token with ▁"
    assert any(word.startswith(" ") for _, _, word in hub.fill_mask("a <mask> of", topk=20))


@pytest.mark.parametrize("encoding", ["learned", "tupe_r"])
@pytest.mark.parametrize("options", [RELEASED, OTHER], ids=["released", "other-options"])
def test_warm_start(saved, options, encoding):
    """Words and layers are copied; all positions are left out by name, and their options too."""
    source = saved("ForMaskedLM", **options)
    out = source.with_name("out")
    lines = run("--from", "huggingface", source, out, "--position-encoding", encoding)
    model = TupeRobertaModel.from_pretrained(out).model
    assert model.args.position_encoding == encoding
    state = model.state_dict()
    theirs = loaded("ForMaskedLM", source).state_dict()
    key = "deberta.encoder.layer.1.attention.self.key_proj"
    ours = "layers.1.self_attn.k_proj"
    stack = "encoder.sentence_encoder."
    assert torch.equal(state[f"{stack}{ours}.weight"], theirs[f"{key}.weight"])
    types = theirs.get("deberta.embeddings.token_type_embeddings.weight")
    assert types is None or torch.equal(state[f"{stack}embed_token_types.weight"], types)
    positions = "embed_positions."
    terms = "layers.*.self_attn.layer_terms."
    parts = [f"{positions}weight"]
    if options is RELEASED:
        parts += [f"{positions}norm.weight", f"{positions}norm.bias"]
    else:
        parts += [f"{positions}absolute_input"]
        parts += [f"{terms}pos_q_proj.weight", f"{terms}pos_q_proj.bias"]
    told = {part for line in lines if "left out: " in line for part in line[10:].split(", ")}
    assert set(parts) <= told
    assert not any("deberta" in part for part in told)


def test_own_encoding_by_name_is_no_warm_start(saved):
    source = saved("ForMaskedLM", **RELEASED)
    flags = ("--position-encoding", "deberta", "--check")
    lines = run("--from", "huggingface", source, source.with_name("out"), *flags)
    assert lines[-1].startswith("logits")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"conv_kernel_size": 3}, "3; it must be 0"),
        ({"relative_attention": False}, "unsupported relative_attention"),
        ({"embedding_size": 12}, "unsupported embedding_size"),
        ({"hidden_act": "silu"}, "silu"),
        ({"position_buckets": 3000}, "(32, 24), but (6000, 24) by config.json"),
        ({"num_attention_heads": 5}, "The hidden size (24) is not a multiple"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"num_hidden_layers": None}, "num_hidden_layers"),
    ],
)
def test_unsupported_and_damaged(saved, changes, expected):
    source = saved("ForMaskedLM", **RELEASED)
    change_config(source, changes)
    with refused(expected):
        run("--from", "huggingface", source, source.with_name("here"))


def test_models_without_a_counterpart(saved):
    source = saved("ForMaskedLM", **RELEASED)
    here = source.with_name("here")
    run("--from", "huggingface", source, here)
    checkpoint = torch.load(here / "model.pt", weights_only=False)
    checkpoint["cfg"]["model"].deberta_released = False
    torch.save(checkpoint, here / "model.pt")
    with refused("supports deberta_released True only", "use --classes tupe"):
        run("--to", "huggingface", here, here.with_name("back"), "--classes", "deberta-v2")
