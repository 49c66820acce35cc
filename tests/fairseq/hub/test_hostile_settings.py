"""Settings in untrusted checkpoints: fairseq evaluates some of some models as Python."""

import copy
import shutil
from argparse import Namespace

import pytest
import torch

from tests.convert import release
from tupe_fairseq import TupeRobertaModel, TupeTransformerLM, TupeTransformerModel, UsageError
from tupe_fairseq.convert.command import convert


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A directory for the hub, and the contents of its checkpoint."""
    folder = tmp_path_factory.mktemp("whole")
    checkpoint = release.write(folder / "release")
    convert(["--from", "tupe-official", str(checkpoint), "--out", str(folder / "model")])
    return folder / "model", torch.load(folder / "model" / "model.pt", weights_only=True)


def changed(state, model=None, task=None):
    """A copy of a checkpoint with other settings."""
    state = copy.deepcopy(state)
    state["cfg"]["model"] = model or state["cfg"]["model"]
    state["cfg"]["task"] = task or state["cfg"]["task"]
    return state


def as_arguments(state, **settings):
    """As fairseq recorded settings until 2020."""
    common = {"criterion": "masked_lm", "optimizer": "adam", "lr_scheduler": "fixed"}
    settings = {**common, "data": ".", "tokens_per_sample": 8, **settings}
    return {**state, "cfg": None, "args": Namespace(**settings)}


def several_languages(code, **names):
    names = names or {"_name": "multilingual_translation"}
    sides = {"left_pad_source": code, "left_pad_target": "True"}
    langs = dict.fromkeys(("encoder_langtok", "decoder_langtok", "source_lang", "target_lang"))
    return {**names, **sides, **langs, "lang_pairs": "a-b", "data": "."}


#: fairseq would evaluate the code in each of these.
WAYS = {
    "model": lambda s, c: changed(s, {"_name": "wav2vec2", "conv_feature_layers": c}),
    "architecture": lambda s, c: changed(s, {"arch": "wav2vec2", "conv_feature_layers": c}),
    "namespace": lambda s, c: changed(s, Namespace(arch="fconv_lm", decoder_layers=c)),
    "nested": lambda s, c: changed(s, {"wav2vec2": {"conv_feature_layers": c}}),
    "old": lambda s, c: as_arguments(s, arch="fconv_lm", task="masked_lm", decoder_layers=c),
    "task": lambda s, c: changed(s, task=several_languages(c)),
    "task, twice": lambda s, c: changed(
        s, task=several_languages(c, _name="masked_lm", task="multilingual_translation")
    ),
    "old task": lambda s, c: as_arguments(
        s, arch="tupe_roberta", **several_languages(c, task="multilingual_translation")
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("model", "dictionary"),
    [(TupeRobertaModel, "dict.txt"), (TupeTransformerLM, "input0/dict.txt")],
)
def test_settings_are_not_evaluated(whole, tmp_path, way, dictionary, model):
    trace = tmp_path / "it-ran"
    directory, state = whole
    (tmp_path / "input0").mkdir()
    shutil.copy(directory / "dict.txt", tmp_path / dictionary)
    code = f"__import__('os').system('touch {trace}')"
    torch.save(WAYS[way](state, code), tmp_path / "model.pt")
    with pytest.raises(UsageError, match=r"model.pt cannot be loaded: its settings name "):
        model.from_pretrained(tmp_path)
    assert not trace.exists()


def test_settings_of_our_own_models_are_not_evaluated(whole, tmp_path):
    """fairseq's Transformers evaluate --adaptive-softmax-cutoff."""
    trace = tmp_path / "it-ran"
    directory, state = whole
    code = f"__import__('os').system('touch {trace}')"
    for name, model in (
        ("tupe_transformer", TupeTransformerModel),
        ("tupe_transformer_lm", TupeTransformerLM),
    ):
        task = {"_name": "language_modeling", "tokens_per_sample": 8, "data": "."}
        if name == "tupe_transformer":
            task = {"_name": "translation", "source_lang": "a", "target_lang": "b", "data": "."}
        sizes = {"decoder_embed_dim": 8, "decoder_ffn_embed_dim": 8, "decoder_attention_heads": 2}
        settings = {"_name": name, "adaptive_softmax_cutoff": code, **sizes}
        torch.save(changed(state, settings, task), tmp_path / "model.pt")
        for words in ("dict.txt", "dict.a.txt", "dict.b.txt"):
            shutil.copy(directory / "dict.txt", tmp_path / words)
        with pytest.raises(UsageError, match=r"--adaptive-softmax-cutoff is .*__import__"):
            model.from_pretrained(tmp_path)
        assert not trace.exists()


def test_each_class_loads_its_own(whole):
    with pytest.raises(UsageError, match="name the model 'tupe_roberta'"):
        TupeTransformerLM.from_pretrained(whole[0])


#: Checkpoints with invalid entries.
INVALID = {
    "no settings": {"cfg": None},
    "invalid arguments": {"args": 5},
    "a list of settings": {"cfg": [1]},
    "an invalid model": {"cfg": {"model": 3, "task": {"_name": "masked_lm"}}},
    "a model without a name": {"cfg": {"model": {}, "task": {"_name": "masked_lm"}}},
    "an invalid task": {"cfg": {"model": {"_name": "tupe_roberta"}, "task": 4}},
    "an invalid name": {"cfg": {"model": {"_name": [1]}, "task": {"_name": "masked_lm"}}},
    "invalid data": {
        "cfg": {"model": {"_name": "tupe_roberta"}, "task": {"_name": "masked_lm", "data": 3}}
    },
    "history": {"optimizer_history": 3},
    "parameters": {"model": 7},
}


@pytest.mark.parametrize("what", INVALID)
def test_invalid_checkpoints_are_refused_in_one_line(whole, tmp_path, what):
    directory, state = whole
    path = tmp_path / "model.pt"
    torch.save({**state, **INVALID[what]}, path)
    shutil.copy(directory / "dict.txt", tmp_path)
    out = ["--out", str(tmp_path / "out")]
    for load in (
        lambda: TupeRobertaModel.from_pretrained(tmp_path),
        lambda: TupeTransformerLM.from_pretrained(tmp_path),
        lambda: convert(["--from", "tupe-official", str(path), *out]),
        lambda: convert(["--from", "fairseq-roberta", str(path), *out]),
        lambda: convert(["--to", "huggingface", str(tmp_path), *out]),
    ):
        with pytest.raises(UsageError) as error:
            load()
        assert "\n" not in str(error.value)
        assert not (tmp_path / "out").exists()
