"""Tiny models with parameters large enough for each to matter, here and in transformers."""

import json
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from fairseq.data import Dictionary

from tests.tolerances import assert_close
from tupe_fairseq import UsageError
from tupe_fairseq.base.tracing import OLDEST_EXPORTER
from tupe_fairseq.convert.command import convert
from tupe_fairseq.convert.dictionaries import dictionary_for, dictionary_of
from tupe_fairseq.convert.directory import neutral
from tupe_fairseq.convert.fairseq_models import build, to_fairseq
from tupe_fairseq.convert.models import HEAD, Converted
from tupe_fairseq.convert.settings import from_config

writes_onnx = pytest.mark.skipif(
    torch.__version__ < OLDEST_EXPORTER, reason=f"--to onnx needs torch {OLDEST_EXPORTER}"
)
WORDS = dictionary_of(f"w{i}" for i in range(40))
NOWHERE = Path("/nowhere")
TEXT = ["the cat sat on the mat .", "a bird saw it , and the cat saw a bird"]
SIZES = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "vocab_size": 60,
    "num_attention_heads": 4,
    "max_position_embeddings": 40,
    "layer_norm_eps": 1e-5,
}


@torch.no_grad()
def perturbed(model: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """The model with other parameters, in eval mode."""
    torch.manual_seed(seed)
    for parameter in model.parameters():
        parameter.add_(0.2 * torch.randn(parameter.shape))
    return model.eval()


def masked_lm(
    encoding: str,
    labels: int = 0,
    dictionary: Dictionary = WORDS,
    folder: Path = NOWHERE,
    **changes,
):
    """A `tupe_roberta`, with a classification head if there are labels, and its conversion.

    The folder may hold a tokenizer.
    """
    settings = {
        "encoder_layers": 2,
        "encoder_embed_dim": 32,
        "encoder_ffn_embed_dim": 48,
        "encoder_attention_heads": 4,
        "max_positions": 24,
        "position_encoding": encoding,
        "layernorm_embedding": True,
        "encoder_normalize_before": False,
        "dropout": 0.1,
        "attention_dropout": 0.1,
        "activation_dropout": 0.0,
        "pooler_dropout": 0.2,
        "activation_fn": "gelu",
        "pooler_activation_fn": "tanh",
        "untie_weights_roberta": False,
    } | changes
    torch.manual_seed(0)
    built = build(settings, dictionary, {})
    if labels:
        built.register_classification_head(HEAD, labels)
    perturbed(built)
    return built, converted(settings, built, dictionary, folder)


def converted(settings, built, dictionary, folder=NOWHERE) -> Converted:
    """The form between formats of a model of fairseq."""
    paths = folder / "dict.txt", folder / "model.pt"
    return neutral(settings, built.state_dict(), dictionary, *paths)


def rebuilt(converted: Converted) -> torch.nn.Module:
    """The model of fairseq with the settings and parameters of a conversion."""
    dictionary, _ = dictionary_for(converted)
    built = build(from_config(converted.settings), dictionary, {})
    state = built.state_dict() | to_fairseq(converted.state)
    built.load_state_dict(state)
    return built


def ids() -> torch.Tensor:
    """Two texts of 20 and 9 tokens."""
    made = torch.randint(4, 44, (2, 20), generator=torch.Generator().manual_seed(0))
    made[:, 0] = 0
    made[1, 9:] = 1
    return made


def assert_same_tokens(actual, expected, tokens: torch.Tensor) -> None:
    """Compare outputs except at padding."""
    seen = tokens.ne(1)
    for one, other in zip(actual, expected, strict=True):
        assert_close(one[seen], other[seen])


def assert_same_state(back: Converted, state: dict[str, torch.Tensor]) -> None:
    """Compare parameters bit for bit."""
    assert back.state.keys() == state.keys()
    for key, value in state.items():
        assert torch.equal(back.state[key], value), key


def change_config(folder: Path, changes: dict) -> None:
    """Write other values into config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def bert(folder: Path, kind: str = "ForMaskedLM", **changes) -> Path:
    """A directory of BERT with its tokenizer, whose special symbols are among the tokens."""
    import tokenizers
    import transformers

    model = getattr(transformers, f"Bert{kind}")(transformers.BertConfig(**SIZES | changes))
    perturbed(model, 1).save_pretrained(folder)
    tokens = sorted({token for line in TEXT for token in line.split()} - {"a"})
    tokens = ["[PAD]", "a", "##s", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *tokens]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    wordpiece = tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(wordpiece)
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")],
    )
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return folder


def roberta(folder: Path, kind: str = "ForMaskedLM", **changes) -> Path:
    """A directory of RoBERTa with its tokenizer."""
    import tokenizers
    import transformers

    config = SIZES | {"vocab_size": 290, "type_vocab_size": 1} | changes
    model = getattr(transformers, f"Roberta{kind}")(transformers.RobertaConfig(**config))
    perturbed(model, 1).save_pretrained(folder)
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer.train_from_iterator(TEXT * 9, vocab_size=280, special_tokens=special)
    around = tokenizers.processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), add_prefix_space=False
    )
    tokenizer._tokenizer.post_processor = around
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "RobertaTokenizer"}')
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def run(direction: str, kind: str, source: Path, out: Path, *flags: object) -> list[str]:
    """Convert by the command; returns the lines that it prints."""
    words = (direction, kind, source, "--out", out, *flags)
    return convert([str(word) for word in words])


@contextmanager
def refused(*parts: str):
    """Expects an error whose message is one line with these parts."""
    with pytest.raises(UsageError) as error:
        yield error
    assert all(part in str(error.value) for part in parts), str(error.value)
    assert "\n" not in str(error.value)
