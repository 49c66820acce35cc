"""Settings of sentence-transformers that change a text or its vector are applied, or said."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from examples.huggingface import serve
from tests.convert.samples import TEXT, bert, refused, roberta, run, writes_onnx
from tests.convert.test_sentence_transformers import MODULES, add_sentence_files
from tests.covering import covering, in_turn
from tupe_fairseq.convert.sentence_modules import compare_modules, read_sentence_model

for library in ("onnxruntime", "onnxscript"):
    pytest.importorskip(library, reason=f"{library} is not installed (extra onnx)")
library = pytest.importorskip(
    "sentence_transformers", reason="sentence-transformers is not installed"
)

BERT = "sentence_bert_config.json"
MODEL = "config_sentence_transformers.json"
POOLING = "1_Pooling/config.json"
TEXTS = [*TEXT, "The CAT sat .", TEXT[1] * 9, "", "a\tBird"]
NORMALIZE = {"idx": 2, "name": "2", "path": "", "type": "sentence_transformers.models.Normalize"}
#: Changes of files by their names, and the flags of a program. The longest text of the tokenizer
#: is 7; None: the file is not there.
CASES = {
    "texts": (
        {
            BERT: {"do_lower_case": True},
            MODEL: {"prompts": {"q": "A Bird "}, "default_prompt_name": "q"},
        },
        ("--pooling", "mean"),
    ),
    "vectors": (
        {
            MODEL: {"truncate_dim": 7},
            POOLING: {
                "pooling_mode_mean_tokens": False,
                "pooling_mode_cls_token": True,
                "include_prompt": False,
            },
            "modules.json": [*MODULES, NORMALIZE],
        },
        ("--pooling", "cls", "--normalize", "yes"),
    ),
    "cut": ({"tokenizer_config.json": {"truncation_side": "left"}}, ("--pooling", "mean")),
    "other name": (
        {
            BERT: None,
            "sentence_roberta_config.json": {"max_seq_length": 11, "do_lower_case": True},
        },
        ("--pooling", "mean"),
    ),
    "of the tokenizer": ({BERT: {"max_seq_length": None}}, ("--pooling", "mean")),
}


def change(folder: Path, files: dict) -> None:
    """Add to files of JSON, or write or remove them."""
    for name, changes in files.items():
        path = folder / name
        if changes is None:
            path.unlink()
            continue
        known = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(known | changes if isinstance(changes, dict) else changes))


def cased(folder: Path) -> None:
    """Let the tokenizer of a BERT read capital letters, which it does not know."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["normalizer"]["lowercase"] = False
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    change(folder, {"tokenizer_config.json": {"do_lower_case": False}})


def sentence_model(folder: Path, files: dict, write=bert) -> Path:
    """A cased model, cut at 9 tokens, with these changes."""
    write(folder, "Model")
    if write is bert:
        cased(folder)
    change(folder, {"tokenizer_config.json": {"model_max_length": 7}})
    add_sentence_files(folder, 9)
    change(folder, files)
    return folder


def loaded(folder: Path):
    return library.SentenceTransformer(str(folder), trust_remote_code=True, device="cpu")


def saved_again(folder: Path, out: Path) -> Path:
    """With the files that the installed version of sentence-transformers writes."""
    loaded(folder).save(str(out))
    return out


#: What is said of programs other than the example.
SAID = "examples.huggingface.serve {}, as sentence-transformers does; other programs must too"
LOWERS = SAID.format("lowercases texts")
TOLD = {
    "texts": {LOWERS, SAID.format("puts 'A Bird ' before each text")},
    "vectors": {"embeddings have their first 7 values (truncate_dim)"},
    "cut": set(),
    "other name": {LOWERS},
    "of the tokenizer": set(),
}


@writes_onnx
@pytest.mark.slow
@pytest.mark.parametrize(("case", "again"), in_turn(CASES, (False, True)))
def test_served(case, again, tmp_path):
    """As sentence-transformers embeds texts, each of which these settings change.

    Files of sentence-transformers 2 to 5 or, again, of 6.
    """
    files, flags = CASES[case]
    source = sentence_model(tmp_path / "source", files)
    source = saved_again(source, tmp_path / "again") if again else source
    flags = ("--to", "onnx", "--check", *flags)
    lines = run("--from", "huggingface", source, tmp_path / "out", *flags)
    assert TOLD[case] <= {*lines}
    expected = loaded(source).encode(TEXTS)
    found = serve.Program(tmp_path / "out")(TEXTS)
    np.testing.assert_allclose(np.array(found), expected, atol=2e-5)


@pytest.mark.parametrize("case", CASES)
def test_each_setting_matters(case, tmp_path):
    """To the vectors of sentence-transformers."""
    plain = sentence_model(tmp_path / "plain", {BERT: {"max_seq_length": 39}})
    changed = sentence_model(tmp_path / "changed", CASES[case][0])
    one, other = (loaded(each).encode(TEXTS) for each in (plain, changed))
    assert one.shape != other.shape or abs(one - other).max() > 0.1


@pytest.mark.parametrize(
    ("case", "again", "write"), covering(CASES, (False, True), (bert, roberta))
)
def test_carried_through_fairseq(case, again, write, tmp_path):
    """And back into sentence-transformers."""
    source = sentence_model(tmp_path / "source", CASES[case][0], write)
    source = saved_again(source, tmp_path / "again") if again else source
    run("--from", "huggingface", source, tmp_path / "here")
    run("--to", "huggingface", tmp_path / "here", tmp_path / "back")
    expected, found = (loaded(each).encode(TEXTS) for each in (source, tmp_path / "back"))
    np.testing.assert_allclose(found, expected, atol=2e-5)


LOWER = "sentence-transformers lowercases texts, but {} does not"
PROMPT = "sentence-transformers puts 'A Bird ' before each text, but {} does not"
CUT = "sentence-transformers cuts texts at {} tokens, but {} does not"


@pytest.mark.parametrize(
    ("flags", "here"),
    [
        ((), "the hub"),
        pytest.param(
            ("--to", "onnx", "--pooling", "none"),
            "a program that returns features",
            marks=writes_onnx,
        ),
        (("--to", "huggingface"), None),
    ],
)
def test_said_where_texts_are_not_changed(flags, here, tmp_path):
    """transformers has never changed them either."""
    source = sentence_model(tmp_path / "source", CASES["texts"][0])
    lines = run("--from", "huggingface", source, tmp_path / "out", *flags)
    told = [line for line in lines if line.startswith("sentence-transformers")]
    expected = [LOWER.format(here), PROMPT.format(here), CUT.format(9, here)] if here else []
    assert told == expected


@writes_onnx
@pytest.mark.parametrize("kind", ["CrossEncoder", "SentenceTransformer"])
def test_scores_of_pairs(kind, tmp_path):
    """Texts are changed for a CrossEncoder's own scores; not for those of another model's head."""
    bert(source := tmp_path / "source", "ForSequenceClassification", num_labels=1)
    cased(source)
    settings = {"do_lower_case": True, "max_seq_length": 9, "module_output_name": "scores"}
    settings |= {"transformer_task": "sequence-classification"}
    prompts = {"prompts": {"q": "A Bird "}, "default_prompt_name": "q", "model_type": kind}
    change(source, {"modules.json": MODULES[:1], BERT: settings, MODEL: prompts})
    run("--from", "huggingface", source, tmp_path / "out", "--to", "onnx", "--check")
    pairs = [("The CAT", "a Bird"), (TEXTS[0], TEXTS[3]), ("a mat", "")]
    model = library.CrossEncoder(str(source), device="cpu")
    expected = model.predict(pairs, activation_fn=torch.nn.Identity())
    np.testing.assert_allclose(serve.Program(tmp_path / "out")(pairs), expected, atol=2e-5)


def module(name: str, path: str = "2") -> dict:
    return {"idx": 2, "name": "2", "path": path, "type": name}


@writes_onnx
@pytest.mark.parametrize(
    ("files", "part"),
    [
        (
            {"modules.json": [*MODULES, module("sentence_transformers.models.Dense")]},
            "also has Dense",
        ),
        ({"modules.json": [*MODULES, module("mine.Pooling")]}, "also has mine.Pooling"),
        ({"modules.json": [MODULES[0], NORMALIZE, MODULES[1]]}, "another order of modules"),
        ({"modules.json": [*MODULES, MODULES[1]]}, "another order of modules"),
        (
            {POOLING: {"include_prompt": False}, **CASES["texts"][0]},
            r"a prompt that is not pooled (include_prompt)",
        ),
        ({BERT: {"tokenizer_args": {"model_max_length": 5}}}, "also has tokenizer_args"),
        ({BERT: {"processing_kwargs": {"text": {"max_length": 5}}}}, "also has processing_kwargs"),
        (
            {
                BERT: {
                    "modality_config": {
                        "text": {"method": "forward", "method_output_name": "pooler_output"}
                    }
                }
            },
            "also has modality_config",
        ),
    ],
)
def test_refused_in_a_program(files, part, tmp_path):
    """What would give other vectors."""
    source = sentence_model(tmp_path / "source", files)
    with refused("--pooling is 'mean', but modules.json ", part, "use --pooling none"):
        run("--from", "huggingface", source, tmp_path / "out", "--to", "onnx", "--pooling", "mean")


@pytest.mark.parametrize("name", ["modules.json", BERT, MODEL, POOLING])
def test_damaged_files(name, tmp_path):
    source = sentence_model(tmp_path / "source", {MODEL: {}})
    (source / name).write_bytes(b'{"a": ')
    with refused(f"{name} cannot be read"):
        run("--from", "huggingface", source, tmp_path / "out")


@pytest.mark.parametrize(
    ("files", "part"),
    [
        ({POOLING: None}, "modules.json needs 1_Pooling/config.json, but there is no such file"),
        ({MODEL: {"prompts": ["q"]}}, "a setting beside modules.json has an invalid value"),
        ({BERT: {"max_seq_length": "nine"}}, "a setting beside modules.json has an invalid value"),
    ],
)
def test_missing_files_and_other_values(files, part, tmp_path):
    source = sentence_model(tmp_path / "source", files)
    with refused(part):
        run("--from", "huggingface", source, tmp_path / "out")


OLD = (
    "cls_token",
    "max_tokens",
    "mean_tokens",
    "mean_sqrt_len_tokens",
    "weightedmean_tokens",
    "lasttoken",
)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        *({f"pooling_mode_{kind}": kind == chosen for kind in OLD} for chosen in OLD),
        {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
        {"pooling_mode_lasttoken": True, "pooling_mode_max_tokens": True},
        {"pooling_mode": "cls", "pooling_mode_mean_tokens": True},
        {"pooling_mode": ["mean"]},
        {"pooling_mode": ["mean", "cls"]},
    ],
)
def test_kinds_of_pooling(settings, tmp_path):
    """As sentence-transformers reads them."""
    from sentence_transformers.sentence_transformer.modules import Pooling

    contents = json.dumps({"embedding_dimension": 24} | settings)
    (tmp_path / "config.json").write_text(contents)
    modes = Pooling.load(str(tmp_path)).pooling_mode
    # Also with a path that is not the shortest.
    modules = json.dumps(MODULES).replace("1_Pooling", "./1_Pooling/").encode()
    files = {"modules.json": modules, POOLING: contents.encode()}
    model = read_sentence_model(files)
    assert model.modes == ((modes,) if isinstance(modes, str) else tuple(modes))
    for kind in ("mean", "cls"):
        other = (
            f"modules.json has the pooling {' and '.join(model.modes)}, but this program {kind}"
        )
        told = [] if model.modes == (kind,) else [other]
        assert compare_modules(model, kind, normalize=False) == told
