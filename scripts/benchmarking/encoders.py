"""What benchmark_serving.py measures: encoders of transformers, batches of texts, STS-B."""

import re
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tupe_fairseq import UsageError
from tupe_fairseq.base.extras import import_extra
from tupe_fairseq.base.texts import read_lines
from tupe_fairseq.convert.pooling import Pooling

from .peers import DEBERTA

#: input_ids and attention_mask, B×T, with padding on the right.
Batch = dict[str, Tensor]
#: Features B×T×C of a batch.
Run = Callable[[Batch], Tensor]
BASE = {
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
}
#: Encoders with random parameters: the class, and settings of its configuration.
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert-base": ("Bert", {**BASE, "num_hidden_layers": 12, "vocab_size": 30522}),
    **{
        f"deberta-v3-{size}": (
            "DebertaV2",
            # The released ones have 128,100 embeddings, which take memory and no time.
            {**BASE, **DEBERTA, "num_hidden_layers": layers, "vocab_size": 32000},
        )
        for size, layers in (("small", 6), ("base", 12))
    },
    "mpnet-base": (
        "MPNet",
        {**BASE, "num_hidden_layers": 12, "vocab_size": 30527, "max_position_embeddings": 514},
    ),
    # The released one takes 8,192 tokens.
    "modernbert-base": (
        "ModernBert",
        {
            **BASE,
            "intermediate_size": 1152,
            "num_hidden_layers": 22,
            "vocab_size": 50368,
            "reference_compile": False,
        },
    ),
}
SPECIAL = 2


class Encoder:
    """A model, and how texts become its tokens.

    Attributes:
        name: in results.
        model: an encoder of transformers.
        folder: where it was read from; None for a form.
    """

    def __init__(self, folder: Path | None, form: str | None, layers: int | None = None):
        """Load the model of a folder, or build that of a form, or its first layers.

        Raises:
            UsageError: no such form, or no model in the folder.
        """
        transformers = import_extra("transformers", "rivals")
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        if form is not None and form not in FORMS:
            raise UsageError(f"--form is {form!r}, but can be: {', '.join(FORMS)}.")
        self.folder = folder if form is None else None
        self.tokenizer = None
        if form is not None:
            kind, released = FORMS[form]
            settings = dict(released)
            self.name = form if layers is None else f"{form}, {layers} layers"
            settings |= {} if layers is None else {"num_hidden_layers": layers}
            torch.manual_seed(1)
            config = getattr(transformers, f"{kind}Config")(**settings)
            self.model = getattr(transformers, f"{kind}Model")(config).eval()
            return
        self.name = folder.resolve().name
        if not (folder / "config.json").is_file():
            raise UsageError(
                f"--model is {str(folder)!r}, but must be a directory of transformers, with "
                "config.json."
            )
        try:
            self.model = transformers.AutoModel.from_pretrained(folder).eval()
            if (folder / "tokenizer_config.json").exists():
                self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        except (OSError, ValueError, KeyError) as error:
            cause = str(error).partition("\n")[0]
            raise UsageError(
                f"--model is {str(folder)!r}, which cannot be read: {cause}"
            ) from error

    @property
    def longest(self) -> int:
        """Number of tokens of the longest text that the model takes."""
        config = self.model.config
        # The first position of RoBERTa and MPNet follows the index of padding.
        shifted = "roberta" in config.model_type or config.model_type == "mpnet"
        unused = config.pad_token_id + 1 if shifted else 0
        return config.max_position_embeddings - unused

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokens of each text; without a tokenizer, one for each word, by its checksum."""
        if self.tokenizer is not None:
            return self.tokenizer(list(texts), truncation=True, max_length=self.longest)[
                "input_ids"
            ]
        return [[self._token(word) for word in self._words(text)] for text in texts]

    def _words(self, text: str) -> list[str]:
        words = re.findall(r"\w+|[^\w\s]", text)[: self.longest - SPECIAL]
        return ["<s>", *words, "</s>"]

    def _token(self, word: str) -> int:
        # 0 and 1 are indices of padding.
        return 2 + zlib.crc32(word.encode()) % (self.model.config.vocab_size - 2)

    def batch(self, rows: Sequence[Sequence[int]]) -> Batch:
        """The tokens, padded to the longest row."""
        rows = [torch.tensor(row) for row in rows]
        pad = torch.nn.utils.rnn.pad_sequence
        masks = [torch.ones_like(row) for row in rows]
        padding = self.model.config.pad_token_id or 0
        return {
            "input_ids": pad(rows, batch_first=True, padding_value=padding),
            "attention_mask": pad(masks, batch_first=True),
        }

    def batches(self, tokens: list[list[int]], size: int, count: int | None = None) -> list[Batch]:
        """Batches of texts sorted by length; `count` of them, evenly spread over the lengths."""
        tokens = sorted(tokens, key=len)
        made = [tokens[first : first + size] for first in range(0, len(tokens), size)]
        if count is not None and count < len(made):
            made = [made[int((number + 0.5) * len(made) / count)] for number in range(count)]
        return [self.batch(rows) for rows in made]

    def random_batches(self, length: int, size: int, count: int) -> list[Batch]:
        """Batches of random tokens, each text of `length`."""
        if not 2 <= length <= self.longest:
            raise UsageError(
                f"--lengths holds {length}, but {self.name} takes texts of 2 to {self.longest} "
                "tokens."
            )
        generator = torch.Generator().manual_seed(1)
        vocabulary = self.model.config.vocab_size
        first = min(1000, vocabulary // 2)
        shape = (count, size, length)
        ids = torch.randint(first, vocabulary, shape, generator=generator)
        return [{"input_ids": each, "attention_mask": torch.ones_like(each)} for each in ids]


def read_texts(path: Path) -> list[str]:
    """A text from each line that is not empty.

    Raises:
        UsageError: no such file, or it has no text.
    """
    texts = [line for line in read_lines(path, f"--text is {str(path)!r}") if line.strip()]
    if not texts:
        raise UsageError(f"--text is {str(path)!r}, which holds no text.")
    return texts


def read_sts_b(folder: Path) -> tuple[list[str], list[str], list[float]]:
    """First and second sentences of the development set, and how similar people find them.

    Raises:
        UsageError: the folder has no such file.
    """
    try:
        columns, *lines = (line.split("\t") for line in read_lines(folder / "dev.tsv"))
        rows = [dict(zip(columns, line, strict=False)) for line in lines if line != [""]]
        first, second, scores = zip(
            *((row["sentence1"], row["sentence2"], float(row["score"])) for row in rows),
            strict=True,
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"--sts-b is {str(folder)!r}, but must be GLUE's folder STS-B, with dev.tsv: {error}."
        ) from error
    return list(first), list(second), list(scores)


def embeddings(encoder: Encoder, run: Run, texts: list[str], size: int = 32) -> Tensor:
    """The mean of each text's features, texts×C; texts of similar lengths run together."""
    tokens = encoder.tokens(texts)
    order = sorted(range(len(texts)), key=lambda index: len(tokens[index]))
    mean = Pooling("mean")
    means = []
    for batch in encoder.batches(tokens, size):
        means.append(mean(run(batch).float(), batch["attention_mask"]))
    found = torch.cat(means)
    return torch.empty_like(found).index_copy_(0, torch.tensor(order), found)
