"""Classify texts, fill masks or embed texts with onnxruntime.

    python scripts/convert_checkpoint.py --to onnx MODEL --head NAME --out program
    python -m examples.huggingface.serve program < sentences.txt

From standard input, one text in each line, UTF-8; lines are answered as they arrive. With
--pooling mean in place of --head, a text is answered by its embedding, in JSON. Otherwise, a tab
separates the two sentences of a pair. A second argument names the file of the program:
model.int8.onnx is smaller, and less exact. A program of one's own calls

    answers = Program("program")(["a good film .", ("one sentence", "another")])

Needs onnxruntime and tokenizers only, neither torch nor this package: the file can be copied.
"""

import argparse
import codecs
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy
from onnxruntime import InferenceSession
from tokenizers import Tokenizer, normalizers

#: Words that are given for a mask.
BEST = 5
#: Texts that are run together, and bytes that are read at a time.
BATCH = 16
PART = 1 << 16
#: DeBERTa's mask and that of others.
MASKS = ("[MASK]", "<mask>")
#: Files of sentence-transformers; it reads the first that exists.
KINDS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
SENTENCES = tuple(f"sentence_{kind}_config.json" for kind in KINDS)
#: A text or a pair of texts.
Text = str | tuple[str, str]
#: Of a text: an embedding (C), a class and its probability, the value of a regression, or the
#: likeliest words at its first mask with their probabilities, none without a mask.
Answer = numpy.ndarray | tuple[str, float] | float | list[tuple[str, float]]


class ServingError(ValueError):
    """A folder is no program that can be served, or a text cannot be read."""


class Program:
    """A program that `--to onnx` wrote, and its tokenizer.

    Texts are changed and cut as in transformers and, for the embeddings and scores of its models,
    in sentence-transformers: prompt, lower case, longest text and side that is cut.

    Args:
        folder: of the program.
        file: its name.

    Raises:
        ServingError: a file is missing, or the program has outputs for each token.
    """

    def __init__(self, folder: str | Path, file: str = "model.onnx"):
        self.folder = Path(folder)
        for name in ("config.json", "tokenizer.json", file):
            if not (self.folder / name).is_file():
                raise ServingError(
                    f"PROGRAM is {str(folder)!r}, but has no {name}: see --to onnx."
                )
        self.config = self._read("config.json")
        self.session = InferenceSession(str(self.folder / file))
        self.names = [each.name for each in self.session.get_inputs()]
        first, *others = self.session.get_outputs()
        of_tokens = len(first.shape) == 3 and first.shape[-1] != self.config["vocab_size"]
        if first.name == "last_hidden_state":
            raise ServingError(
                f"PROGRAM is {str(folder)!r}, which returns features: convert with --pooling mean."
            )
        if others or of_tokens:
            raise ServingError(
                f"PROGRAM is {str(folder)!r}, which has outputs for each token, classes or "
                "answers: they are not served here."
            )
        self.embeds = first.name == "sentence_embedding"
        self.prompt = ""
        self.tokenizer = Tokenizer.from_file(str(self.folder / "tokenizer.json"))
        self._prepare()

    def __call__(self, texts: Sequence[Text]) -> list[Answer]:
        """The answer to each text."""
        found: list[Answer] = []
        for start in range(0, len(texts), BATCH):
            inputs = self.inputs(texts[start : start + BATCH])
            (rows,) = self.session.run(None, {name: inputs[name] for name in self.names})
            found += map(self._answer, inputs["input_ids"], rows)
        return found

    def inputs(self, texts: Sequence[Text]) -> dict[str, numpy.ndarray]:
        """Ids, mask and token types of some texts, padded on the right: B×T each."""
        rows = self.tokenizer.encode_batch([self._prompted(text) for text in texts])
        parts = {"input_ids": "ids", "attention_mask": "attention_mask"}
        return {
            name: numpy.array([getattr(each, part) for each in rows], dtype=numpy.int64)
            for name, part in (*parts.items(), ("token_type_ids", "type_ids"))
        }

    def _read(self, *names: str) -> dict[str, Any]:
        """The first of these files that exists."""
        path = next((path for n in names if (path := self.folder / n).is_file()), None)
        return json.loads(path.read_text(encoding="utf-8")) if path else {}

    def _prepare(self) -> None:
        """Set what happens to texts before the program runs."""
        settings = self._read("tokenizer_config.json")
        tokenizer = self.tokenizer
        most = self.config["max_position_embeddings"]
        longest = settings.get("model_max_length") or most
        of_model = self._read("config_sentence_transformers.json")
        if self.embeds or of_model.get("model_type") == "CrossEncoder":
            sentences = self._read(*SENTENCES)
            longest = int(sentences.get("max_seq_length") or longest)
            if sentences.get("do_lower_case"):
                steps = filter(None, (normalizers.Lowercase(), tokenizer.normalizer))
                tokenizer.normalizer = normalizers.Sequence([*steps])
            prompts = of_model.get("prompts") or {}
            self.prompt = prompts.get(of_model.get("default_prompt_name")) or ""
        cut = tokenizer.truncation or {}
        side = settings.get("truncation_side") or cut.get("direction", "right")
        tokenizer.enable_truncation(int(min(longest, most)), direction=side)
        padding = self.config["pad_token_id"]
        tokenizer.enable_padding(pad_id=padding, pad_token=tokenizer.id_to_token(padding))

    def _prompted(self, text: Text) -> Text:
        if isinstance(text, str):
            return self.prompt + text
        return self.prompt + text[0], text[1]

    def _answer(self, ids: numpy.ndarray, row: numpy.ndarray) -> Answer:
        """What the outputs say of a text: ids T, and logits, T×V or of classes, or C."""
        if self.embeds:
            return row
        return self._classified(row) if "problem_type" in self.config else self._filled(ids, row)

    def _classified(self, logits: numpy.ndarray) -> tuple[str, float] | float:
        kind = self.config["problem_type"]
        if kind == "regression":
            return float(logits[0])
        several = kind == "multi_label_classification"
        probabilities = 1 / (1 + numpy.exp(-logits)) if several else softmax(logits)
        best = int(probabilities.argmax())
        # transformers leaves the names of two classes out, if they are the default ones.
        name = self.config.get("id2label", {}).get(str(best), f"LABEL_{best}")
        return name, float(probabilities[best])

    def _filled(self, ids: numpy.ndarray, logits: numpy.ndarray) -> list[tuple[str, float]]:
        added = self.tokenizer.get_added_tokens_decoder()
        special = [number for number, token in added.items() if token.special]
        # Either name may also be that of a word.
        masks = [number for number in special if added[number].content in MASKS]
        places = numpy.flatnonzero(numpy.isin(ids, masks))
        if not len(places):
            return []
        probabilities = softmax(logits[places[0]])
        probabilities[special] = 0
        best = probabilities.argsort()[::-1][:BEST]
        words = (self.tokenizer.decode([int(number)]).strip() for number in best)
        return list(zip(words, map(float, probabilities[best]), strict=True))


def softmax(logits: numpy.ndarray) -> numpy.ndarray:
    """Probabilities along the last dimension."""
    powers = numpy.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def written(answer: Answer) -> str:
    """An answer as it is printed."""
    if isinstance(answer, numpy.ndarray):
        return json.dumps([round(float(value), 6) for value in answer])
    if isinstance(answer, float):
        return f"{answer:.4f}"
    words = answer if isinstance(answer, list) else [answer]
    return ", ".join(f"{name} {share:.3f}" for name, share in words) or "(no mask)"


def arriving(file: BinaryIO) -> Iterator[list[str]]:
    """Lines in groups of at most `BATCH`, without waiting for more than there are.

    As everywhere in this package: a byte order mark is no text, and LF or CR LF end a line.

    Raises:
        ServingError: a line is not UTF-8; the lines before it were given.
    """
    number = 0
    rest = b""
    while part := file.read1(PART):
        *lines, rest = (rest + part).split(b"\n")
        for start in range(0, len(lines), BATCH):
            some = lines[start : start + BATCH]
            yield from decoded_group(some, number + 1)
            number += len(some)
    if rest:
        yield [decoded(rest, number + 1)]


def decoded_group(lines: list[bytes], first: int) -> Iterator[list[str]]:
    """The texts of lines from this number on, or of those before a line that is not UTF-8."""
    texts: list[str] = []
    try:
        for number, line in enumerate(lines, first):
            texts.append(decoded(line, number))
    except ServingError:
        if texts:
            yield texts
        raise
    yield texts


def decoded(line: bytes, number: int) -> str:
    """The text of a line."""
    if number == 1:
        line = line.removeprefix(codecs.BOM_UTF8)
    try:
        return line.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        is_utf16 = number == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        raise ServingError(
            f"standard input: line {number} is not UTF-8, byte {line[error.start]:#x} at "
            f"{error.start}: convert it, for instance by iconv -f "
            f"{'utf-16' if is_utf16 else 'latin1'} -t utf-8."
        ) from error


def paired(line: str) -> Text:
    """The text of a line, or its two, which a tab separates."""
    first, tab, second = line.partition("\t")
    return (first, second) if tab else first


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", metavar="PROGRAM", help="directory written by --to onnx")
    told = "of the program: model.onnx (default) or model.int8.onnx"
    parser.add_argument("file", metavar="FILE", nargs="?", default="model.onnx", help=told)
    args = parser.parse_args()
    # Whatever the locale.
    sys.stdout.reconfigure(encoding="utf-8")
    try:
        program = Program(args.folder, args.file)
        for lines in arriving(sys.stdin.buffer):
            texts = lines if program.embeds else list(map(paired, lines))
            for line, answer in zip(lines, program(texts), strict=True):
                print(f"{written(answer)}\t{line}")
            sys.stdout.flush()
    except ServingError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
