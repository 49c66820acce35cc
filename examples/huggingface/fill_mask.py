"""Load a converted model with transformers and fill a mask.

    python scripts/convert_checkpoint.py --to huggingface .quickstart/models/pretrained --out hf
    python -m examples.huggingface.fill_mask hf "a <mask> movie ."

The directory holds the model's code, so this script also runs where only torch and transformers
are installed.
"""

import argparse
import sys
from pathlib import Path

import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer


@torch.no_grad()
def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", metavar="DIRECTORY", help="written by --to huggingface")
    parser.add_argument("text", metavar="TEXT", help="text with a mask of the model")
    args = parser.parse_args()
    directory, text = args.directory, args.text
    if not Path(directory, "config.json").is_file():
        parser.error(f"DIRECTORY is {directory!r}, but has no config.json: see --to huggingface.")
    # transformers 5 asks here too, although the tokenizer has no code.
    tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=True)
    model = AutoModelForMaskedLM.from_pretrained(directory, trust_remote_code=True).eval()
    batch = tokenizer(text, return_tensors="pt")
    place = batch["input_ids"][0] == tokenizer.mask_token_id
    if not place.any():
        sys.exit(f"error: TEXT is {text!r}, but has no {tokenizer.mask_token}.")
    # 1×T×V -> V
    probabilities = model(**batch).logits[0, place].softmax(-1)[0]
    probabilities[tokenizer.all_special_ids] = 0
    for probability, token in zip(*probabilities.topk(5), strict=True):
        word = tokenizer.decode([int(token)]).strip()
        print(f"{probability:.3f}  {text.replace(tokenizer.mask_token, word)}")


if __name__ == "__main__":
    main()
