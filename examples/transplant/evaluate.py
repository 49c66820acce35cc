"""Compare the result of a transplant with its source on sentences of STS-B.

    python -m examples.transplant.evaluate SOURCE OUT GLUE_DIR

OUT is what `python -m examples.transplant` has written. OUT/evaluation.json gets the measures of
`Order` for shuffled words and for two swapped words. `sts_b` is the rank correlation of the cosine
of mean features with the similarities that people gave, in percent, and `sts_b_of_source` that of
SOURCE.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch.nn.functional as F
import transformers
from scipy.stats import spearmanr

from examples.glue.readers import read_split
from examples.glue.tasks import TASKS
from examples.shared import script
from tupe_fairseq import UsageError
from tupe_fairseq.base.files import replacing
from tupe_fairseq.convert.formats import huggingface
from tupe_fairseq.transplant.encoders import Encoder
from tupe_fairseq.transplant.fidelity import Order, vectors
from tupe_fairseq.transplant.texts import Tokens, shuffled, swapped

from .files import read_source

NAME = "evaluation.json"
#: Sentences whose order is changed, and tokens of a sentence.
SENTENCES = 300
LENGTH = 128


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("source", type=Path, metavar="SOURCE", help="the released encoder")
    parser.add_argument("out", type=Path, metavar="OUT", help="of examples.transplant")
    parser.add_argument("glue", type=Path, metavar="GLUE_DIR", help="GLUE's download")
    return parser.parse_args(argv)


def evaluate(args: argparse.Namespace) -> dict[str, Any]:
    """What evaluation.json contains."""
    task = TASKS["STS-B"]
    read = read_split(args.glue, task, task.splits[1])
    if read is None:
        raise UsageError(f"GLUE_DIR is {str(args.glue)!r}, but lacks STS-B.")
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.source)
    read_by = [read_source(args.source), huggingface.read(args.out / "transformers")]
    longest = min(each.settings["max_position_embeddings"] for each in read_by)
    tokens = Tokens(tokenizer, min(LENGTH, longest))
    source, made = (Encoder(each).eval() for each in read_by)
    firsts = [sentences[0] for sentences, _ in read.examples]
    spread = firsts[:: max(1, len(firsts) // SENTENCES)][:SENTENCES]
    found = {
        name: Order(source, tokens, spread, change)(made)
        for name, change in (("shuffled", shuffled), ("swapped", swapped))
    }
    scores = {
        name: correlation(encoder, tokens, read.examples)
        for name, encoder in (("sts_b", made), ("sts_b_of_source", source))
    }
    return found | scores


def correlation(encoder: Encoder, tokens: Tokens, examples: list[Any]) -> float:
    """Of similarities in the encoder with those that people gave, in percent."""
    pairs = zip(*(sentences for sentences, _ in examples), strict=True)
    cosines = F.cosine_similarity(*(vectors(encoder, tokens, texts) for texts in pairs))
    return 100 * float(spearmanr(cosines, [float(label) for _, label in examples]).statistic)


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    args = arguments(argv)
    found = evaluate(args)
    with replacing(args.out / NAME) as aside:
        aside.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found))


if __name__ == "__main__":
    script.run(main)
