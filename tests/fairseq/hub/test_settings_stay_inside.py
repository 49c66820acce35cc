"""The settings of a checkpoint open no connection, and no file outside of its folder.

A local server counts requests, and an audit hook of Python notes connections and opened files.
"""

import copy
import http.server
import shutil
import sys
import threading
from argparse import Namespace
from contextlib import contextmanager

import pytest
import torch

from tests import toy_data
from tests.covering import in_turn
from tests.fairseq_commands import finetune, generate, train_translation
from tupe_fairseq import TupeRobertaModel, TupeTransformerLM, TupeTransformerModel, UsageError
from tupe_fairseq.convert.command import convert
from tupe_fairseq.fairseq.checkpoints.reading import read_checkpoint

#: What was opened or connected to, while a test watches.
_seen: list[str] = []
_watching = threading.Event()


def _note(event: str, arguments: tuple) -> None:
    if _watching.is_set() and event in ("open", "socket.connect", "socket.getaddrinfo"):
        _seen.append(str(arguments[0] if event == "open" else arguments))


# A hook cannot be removed.
sys.addaudithook(_note)


@contextmanager
def watched():
    """Yields a list, which afterwards holds what was opened and connected to in the block."""
    _seen.clear()
    _watching.set()
    try:
        yield _seen
    finally:
        _watching.clear()


@pytest.fixture(scope="module")
def server():
    """The address of a server, and its requests."""
    requests = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{served.server_port}", requests
    served.shutdown()
    served.server_close()


@pytest.fixture(scope="module")
def outside(tmp_path_factory, toy_masked_lm_data, toy_translation_data):
    """A folder with all that a setting could name."""
    folder = tmp_path_factory.mktemp("outside") / "OUTSIDE"
    shutil.copytree(toy_masked_lm_data, folder)
    toy_data.write_sentencepiece(folder)
    for language in ("en", "de"):
        shutil.copy(toy_translation_data / f"dict.{language}.txt", folder)
    (folder / "__init__.py").write_text("raise SystemExit('the code ran')\n")
    (folder / "words.txt").write_text("1 32\nw1 " + "0.5 " * 32 + "\n")
    (folder / "codes").write_text("#version: 0.2\nw 1</w>\n")
    (folder / "encoder.json").write_text('{"w": 0}')
    (folder / "vocab.bpe").write_text("#version: 0.2\n")
    return folder


@pytest.fixture(scope="module")
def folders(
    toy_checkpoint,
    toy_language_model,
    toy_masked_lm_data,
    toy_sentence_data,
    toy_translation_data,
    tmp_path_factory,
):
    """Directories of all kinds of models, complete but for a tokenizer."""
    made = tmp_path_factory.mktemp("folders")
    tuned = finetune(toy_sentence_data["single"], made / "runs/f", "--num-classes", 2)
    translator = train_translation(toy_translation_data, made / "runs/t", "--max-update", 1)
    for name, checkpoint, data in (
        ("masked", toy_checkpoint, toy_masked_lm_data),
        ("tuned", tuned, toy_sentence_data["single"]),
        ("translator", translator, toy_translation_data),
        ("causal", toy_language_model, toy_masked_lm_data),
    ):
        shutil.copytree(data, made / name)
        shutil.copy(checkpoint, made / name / "model.pt")
    return made


MODELS = {
    "masked": TupeRobertaModel,
    "tuned": TupeRobertaModel,
    "translator": TupeTransformerModel,
    "causal": TupeTransformerLM,
}


def bpe(**settings):
    return lambda cfg: cfg.update(bpe=settings)


def task(**settings):
    return lambda cfg: cfg["task"].update(settings)


def tasks_as_arguments(**settings):
    """As fairseq records the settings of its oldest tasks."""

    def change(cfg):
        cfg["task"] = Namespace(**{**cfg["task"], "task": cfg["task"]["_name"], **settings})

    return change


#: Changes of `cfg`; URL and FOLDER are replaced.
CHANGES = {
    "gpt2": bpe(_name="gpt2", gpt2_encoder_json="URL/a", gpt2_vocab_bpe="URL/b"),
    "gpt2, by default": bpe(_name="gpt2"),
    "gpt2, files": bpe(
        _name="gpt2", gpt2_encoder_json="FOLDER/encoder.json", gpt2_vocab_bpe="FOLDER/vocab.bpe"
    ),
    "sentencepiece": bpe(_name="sentencepiece", sentencepiece_model="URL/c"),
    "sentencepiece, file": bpe(
        _name="sentencepiece", sentencepiece_model="FOLDER/sentencepiece.bpe.model"
    ),
    "subword_nmt": bpe(_name="subword_nmt", bpe_codes="URL/d"),
    "tokenizer_json": bpe(_name="tokenizer_json", tokenizer_json="FOLDER/tokenizer.json"),
    "unknown words": lambda cfg: cfg["generation"].update(replace_unk="FOLDER/words.txt"),
    "data": task(data="FOLDER"),
    "data of the net": task(data="URL/data"),
    "arguments": tasks_as_arguments(data="FOLDER", eval_bleu=True, eval_bleu_detok="nltk"),
    "BLEU": task(eval_bleu=True, eval_bleu_detok="nltk", eval_bleu_args="{"),
    "code": lambda cfg: cfg["common"].update(user_dir="FOLDER"),
    "embeddings": lambda cfg: cfg["model"].update(
        encoder_embed_path="FOLDER/words.txt", decoder_embed_path="FOLDER/words.txt"
    ),
}


def replaced(value, words):
    """Nested settings with these words replaced."""
    if isinstance(value, Namespace):
        return Namespace(**replaced(vars(value), words))
    if isinstance(value, dict):
        return {key: replaced(each, words) for key, each in value.items()}
    for word, text in words.items():
        value = value.replace(word, text) if isinstance(value, str) else value
    return value


def plain(settings):
    """A tree of settings as dicts."""
    if isinstance(settings, Namespace):
        return dict(vars(settings))
    items = settings.items() if hasattr(settings, "items") else ()
    return {
        k: plain(v) if hasattr(v, "items") or isinstance(v, Namespace) else v for k, v in items
    }


def rewritten(folder, out, change, words, as_args=False):
    """A copy of a directory whose checkpoint has other settings."""
    shutil.copytree(folder, out)
    state = copy.copy(read_checkpoint(out / "model.pt"))
    cfg = plain(state["cfg"])
    change(cfg)
    cfg = replaced(cfg, words)
    # What the command line records.
    cfg["model"] = Namespace(**cfg["model"])
    state["cfg"] = cfg
    if as_args:
        bpe = cfg["bpe"] or {}
        flat = {
            **vars(cfg["model"]),
            **bpe,
            "_name": None,
            "bpe": bpe.get("_name"),
            "data": cfg["task"]["data"],
        }
        state |= {"cfg": None, "args": Namespace(**flat)}
    (out / "model.pt").unlink()
    torch.save(state, out / "model.pt")
    return out


def assert_inside(seen, requests, outside):
    assert not requests
    assert not [each for each in seen if "OUTSIDE" in each or "127.0.0.1" in each]
    assert not [each for each in seen if each.startswith("(") and "fbaipublicfiles" in each]


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        *((what, "translator") for what in CHANGES),
        *in_turn(CHANGES, [kind for kind in MODELS if kind != "translator"]),
    ],
)
def test_hub(folders, server, outside, tmp_path, kind, what):
    url, requests = server
    words = {"URL": url, "FOLDER": str(outside)}
    folder = rewritten(folders / kind, tmp_path / "model", CHANGES[what], words)
    with watched() as seen:
        hub = MODELS[kind].from_pretrained(folder)
    assert_inside(seen, requests, outside)
    assert hub.bpe is None
    assert (hub.task.cfg or hub.task.args).data == str(folder)


@pytest.mark.parametrize("what", ["gpt2", "sentencepiece, file", "data"])
def test_hub_of_old_checkpoints(folders, server, outside, tmp_path, what):
    """Until 2020 fairseq recorded all settings in one table."""
    url, requests = server
    words = {"URL": url, "FOLDER": str(outside)}
    change = CHANGES[what]
    folder = rewritten(folders / "masked", tmp_path / "model", change, words, as_args=True)
    with watched() as seen:
        assert TupeRobertaModel.from_pretrained(folder).bpe is None
    assert_inside(seen, requests, outside)


def test_what_the_caller_names_is_read(folders, outside):
    model = str(outside / "sentencepiece.bpe.model")
    for kind, how in (("masked", {}), ("translator", {})):
        hub = MODELS[kind].from_pretrained(
            folders / kind, bpe="sentencepiece", sentencepiece_model=model, **how
        )
        assert hub.bpe.encode("w1 w2")
    hub = MODELS["masked"].from_pretrained(folders / "masked", data_name_or_path=outside)
    assert hub.bpe.encode("w1 w2")


@pytest.mark.parametrize(("kind", "missing"), [("masked", "dict.txt"), ("causal", "dict.txt")])
def test_dictionaries_of_the_training_are_named_but_not_read(
    folders, outside, tmp_path, kind, missing
):
    folder = rewritten(
        folders / kind, tmp_path / "model", CHANGES["data"], {"FOLDER": str(outside)}
    )
    (folder / missing).unlink()
    with watched() as seen, pytest.raises(UsageError, match=f"data_name_or_path.*{outside}"):
        MODELS[kind].from_pretrained(folder)
    assert_inside(seen, (), outside)


def test_languages_are_no_paths(folders, outside, tmp_path):
    (folder := tmp_path / "model").mkdir()
    out = rewritten(
        folders / "translator",
        folder / "x",
        task(source_lang=f"/../../../{outside.name}/en"),
        {},
    )
    (out / "dict.").mkdir()
    with pytest.raises(UsageError, match="its settings name the language"):
        TupeTransformerModel.from_pretrained(out)


@pytest.mark.parametrize("what", CHANGES)
def test_conversion(folders, server, outside, tmp_path, what):
    pytest.importorskip("transformers", reason="transformers is not installed")
    url, requests = server
    words = {"URL": url, "FOLDER": str(outside)}
    folder = rewritten(folders / "masked", tmp_path / "model", CHANGES[what], words)
    with watched() as seen:
        convert(["--to", "huggingface", str(folder), "--out", str(tmp_path / "out"), "--check"])
    assert_inside(seen, requests, outside)


@pytest.mark.parametrize("what", CHANGES)
def test_generate(folders, server, outside, toy_translation_data, tmp_path, what):
    """fairseq-generate takes the model's settings alone from the checkpoint."""
    url, requests = server
    words = {"URL": url, "FOLDER": str(outside)}
    folder = rewritten(folders / "translator", tmp_path / "model", CHANGES[what], words)
    with watched() as seen:
        assert generate(toy_translation_data, folder / "model.pt", "--max-len-b", 2)
    assert_inside(seen, requests, outside)
