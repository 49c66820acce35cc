"""Tiny tokenizers of BERT's and RoBERTa's kinds, and models with them."""

from pathlib import Path

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from tests.convert.samples import masked_lm
from tupe_fairseq.convert.dictionaries import dictionary_of
from tupe_fairseq.convert.directory import write

BERT = ("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]")
ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
TEXT = [
    "a cat sat on the mat",
    "walking, the cats ran",
    "unknown √ words[1]",
    "",
    "the [MASK] sat",
]


def bert(vocabulary: list[str]) -> tokenizers.Tokenizer:
    """WordPiece, in lower case, with BERT's special tokens in their usual order."""
    made = tokenizers.Tokenizer(
        models.WordPiece({t: i for i, t in enumerate(vocabulary)}, unk_token="[UNK]")
    )
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, vocabulary.index(name)) for name in ("[CLS]", "[SEP]")],
    )
    # As released: fairseq's pipeline has no padding and does not truncate.
    made.enable_padding(pad_token="[PAD]", length=40)
    made.enable_truncation(40)
    return made


def roberta() -> tokenizers.Tokenizer:
    """Byte-pair encoding of bytes with RoBERTa's special tokens, the mask at the end."""
    letters = pre_tokenizers.ByteLevel.alphabet()
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *sorted(letters), "Ġc", "at", "Ġcat", "<mask>"]
    merges = [("Ġ", "c"), ("a", "t"), ("Ġc", "at")]
    made = tokenizers.Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([*ROBERTA])
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return made


WORDS = [*"acmnorstuwhelikdg,[]1", "cat", "sat", "on", "the", "mat", "walk", "##ing", "##s", "ran"]
WORDS += ["words", "unknown", "[unused0]"]
#: Special tokens not at the beginning, as in released models.
VOCABULARY = ["[PAD]", *WORDS[:5], "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS[5:]]
MADE = {"bert": lambda: bert(VOCABULARY), "roberta": roberta}


def symbols_of(tokenizer, rows: int) -> list[str]:
    """dict.txt: ids of tokenizer.json, but the special tokens; `rows` are the model's."""
    names = BERT if tokenizer.token_to_id("[SEP]") is not None else ROBERTA
    *first, mask = (tokenizer.token_to_id(name) for name in names)
    return ["<mask>" if i == mask else str(i) for i in range(rows) if i not in first]


def directory(folder: Path, tokenizer, types: int = 0, more: int = 3) -> Path:
    """A model whose embeddings have more rows than there are tokens, and its tokenizer."""
    dictionary = dictionary_of(symbols_of(tokenizer, tokenizer.get_vocab_size() + more))
    _, converted = masked_lm("learned", 3, dictionary, type_vocab_size=types)
    write(converted, folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder
