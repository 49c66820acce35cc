"""Write API pages: every public name with its signature and docstring, as HTML.

    python scripts/api_pages.py DIRECTORY

Needs pdoc, the extra `docs`. The pages need no server: open DIRECTORY/index.html.
"""

import argparse
import logging
import sys
from pathlib import Path

# Importing fairseq would advise to install tensorboardX.
logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)

from tupe_fairseq.errors import one_line_endings  # noqa: E402
from tupe_fairseq.extras import import_extra  # noqa: E402

#: What users import from.
MODULES = (
    "tupe_fairseq",
    "tupe_fairseq.analysis",
    "tupe_fairseq.attention",
    "tupe_fairseq.checkpoints.reading",
    "tupe_fairseq.huggingface",
    "tupe_fairseq.interop.convert",
    "tupe_fairseq.plots",
    "tupe_fairseq.position",
)


def write_pages(out: Path) -> None:
    """Write a page for each of `MODULES`, and an index.

    Raises:
        UsageError: pdoc is not installed.
    """
    pdoc = import_extra("pdoc.render", "docs")
    pdoc.render.configure(docformat="google", show_source=False)
    pdoc.pdoc(*MODULES, output_directory=out)


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, metavar="DIRECTORY")
    args = parser.parse_args(argv)
    # Importing fairseq turns on the debugging output of all libraries.
    logging.getLogger().setLevel(logging.WARNING)
    with one_line_endings():
        write_pages(args.out)
    print(f"pages: {args.out / 'index.html'}", file=sys.stderr)


if __name__ == "__main__":
    main()
