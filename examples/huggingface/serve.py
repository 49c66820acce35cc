"""Classify texts, fill masks or embed texts with onnxruntime, from standard input: one per line.

    python scripts/convert_checkpoint.py --to onnx MODEL --head NAME --out program
    python -m examples.huggingface.serve program < sentences.txt

With --pooling mean in place of --head, a text is answered by its embedding, in JSON. A tab
separates the two sentences of a pair. Needs onnxruntime and tokenizers only, neither torch nor
fairseq. A second argument names the file of the program: model.int8.onnx is smaller, and less
exact.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy
from onnxruntime import InferenceSession
from tokenizers import Tokenizer

#: Words that are printed for a mask.
BEST = 5
#: Files of a model and its tokenizer, and the setting there that may lower the longest text.
LIMITS = {
    "sentence_bert_config.json": "max_seq_length",
    "tokenizer_config.json": "model_max_length",
}
#: DeBERTa's mask and that of others.
MASKS = ("[MASK]", "<mask>")


def softmax(logits: numpy.ndarray) -> numpy.ndarray:
    """Probabilities along the last dimension."""
    powers = numpy.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def batch(tokenizer: Tokenizer, texts: list[str]) -> dict[str, numpy.ndarray]:
    """Ids, mask and token types of some texts, padded on the right: B×T each."""
    pairs = (text.split("\t", 1) for text in texts)
    rows = tokenizer.encode_batch([tuple(pair) if len(pair) == 2 else pair[0] for pair in pairs])
    parts = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
    return {
        name: numpy.array([getattr(each, part) for each in rows], dtype=numpy.int64)
        for name, part in parts.items()
    }


def filled(tokenizer: Tokenizer, ids: numpy.ndarray, logits: numpy.ndarray) -> str:
    """The likeliest words at the first mask of a text: ids T, logits T×V."""
    added = tokenizer.get_added_tokens_decoder()
    special = [number for number, token in added.items() if token.special]
    # Either name may also be that of a word.
    masks = [number for number in special if added[number].content in MASKS]
    places = numpy.flatnonzero(numpy.isin(ids, masks))
    if not len(places):
        return "(no mask)"
    probabilities = softmax(logits[places[0]])
    probabilities[special] = 0
    best = probabilities.argsort()[::-1][:BEST]
    return ", ".join(f"{tokenizer.decode([int(i)]).strip()} {probabilities[i]:.3f}" for i in best)


def classified(config: dict, logits: numpy.ndarray) -> str:
    """The likeliest class of a text, or the value of a regression: logits of classes."""
    if config["problem_type"] == "regression":
        return f"{logits[0]:.4f}"
    several = config["problem_type"] == "multi_label_classification"
    probabilities = 1 / (1 + numpy.exp(-logits)) if several else softmax(logits)
    best = int(probabilities.argmax())
    # transformers leaves the names of two classes out, if they are the default ones.
    name = config.get("id2label", {}).get(str(best), f"LABEL_{best}")
    return f"{name} {probabilities[best]:.3f}"


def longest(folder: str, config: dict) -> int:
    """The number of tokens at which texts are cut."""
    limits = [config["max_position_embeddings"]]
    for name, setting in LIMITS.items():
        path = Path(folder, name)
        settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        limits.append(settings.get(setting) or limits[0])
    return min(limits)


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", metavar="PROGRAM", help="directory written by --to onnx")
    told = "of the program: model.onnx (default) or model.int8.onnx"
    parser.add_argument("file", metavar="FILE", nargs="?", default="model.onnx", help=told)
    args = parser.parse_args()
    for name in ("config.json", "tokenizer.json", args.file):
        if not Path(args.folder, name).is_file():
            parser.error(f"PROGRAM is {args.folder!r}, but has no {name}: see --to onnx.")
    return args


def main() -> None:
    """See the module's docstring."""
    args = arguments()
    folder = args.folder
    config = json.loads(Path(folder, "config.json").read_text(encoding="utf-8"))
    tokenizer = Tokenizer.from_file(str(Path(folder, "tokenizer.json")))
    padding = config["pad_token_id"]
    tokenizer.enable_padding(pad_id=padding, pad_token=tokenizer.id_to_token(padding))
    tokenizer.enable_truncation(longest(folder, config))
    session = InferenceSession(str(Path(folder, args.file)))
    names = [each.name for each in session.get_inputs()]
    first, *others = session.get_outputs()
    output = first.name
    if output == "last_hidden_state":
        sys.exit(
            f"error: PROGRAM is {folder!r}, which returns features: convert with --pooling mean."
        )
    if others or (len(first.shape) == 3 and first.shape[-1] != config["vocab_size"]):
        sys.exit(
            f"error: PROGRAM is {folder!r}, which has outputs for each token, classes or answers: "
            "they are not served here."
        )
    texts = [line.rstrip("\n") for line in sys.stdin]
    for start in range(0, len(texts), 16):
        some = texts[start : start + 16]
        inputs = batch(tokenizer, some)
        (rows,) = session.run(None, {name: inputs[name] for name in names})
        for text, ids, row in zip(some, inputs["input_ids"], rows, strict=True):
            if output == "sentence_embedding":
                answer = json.dumps([round(float(value), 6) for value in row])
            elif "problem_type" in config:
                answer = classified(config, row)
            else:
                answer = filled(tokenizer, ids, row)
            print(f"{answer}\t{text}")


if __name__ == "__main__":
    main()
