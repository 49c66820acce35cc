"""Convert models: the authors' TUPE, stock RoBERTa, Hugging Face, and TUPE without fairseq.

    python scripts/convert_checkpoint.py --from tupe-official   CHECKPOINT --out DIRECTORY
    python scripts/convert_checkpoint.py --from fairseq-roberta CHECKPOINT --out DIRECTORY
    python scripts/convert_checkpoint.py --to huggingface       DIRECTORY  --out DIRECTORY
    python scripts/convert_checkpoint.py --to standalone        DIRECTORY  --out DIRECTORY

--check compares the outputs of both models. The source stays as it is; the output appears whole
or not at all. All options: --help.
"""

from __future__ import annotations

import logging
import sys
import warnings

from tupe_fairseq import UsageError
from tupe_fairseq.interop.convert import convert


def main(argv: list[str] | None = None) -> None:
    """See the module's text."""
    # fairseq turns every library's debugging output on, and its ways with hydra make that warn.
    logging.getLogger().setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="hydra|fairseq")
    print("\n".join(convert(argv)))


if __name__ == "__main__":
    try:
        main()
    except (UsageError, OSError) as error:
        sys.exit(f"error: {error}")
