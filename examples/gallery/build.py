"""Train a tiny model with each registered encoding, and write the gallery's pages.

    python -m examples.gallery.build --out examples/gallery/cards

An encoding that has a result already is not trained again. So after an interruption the same
command continues, and for a new encoding it adds one card. The folder gets gallery.md,
gallery.html, results.json, and for each encoding a folder with maps.png. matplotlib is needed
(extra `viz`).
"""

import argparse
import json
import sys
from pathlib import Path

from examples.gallery.pages import write_pages
from examples.shared import script
from examples.shared.runner import Run, arguments, runner
from tupe_fairseq.position import POSITION_ENCODINGS


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--updates", type=int, default=200, help="updates of each model")
    return arguments(parser, argv, "examples.gallery.build", trains=False)


def run_of(name: str, args: argparse.Namespace) -> Run:
    """The training of one encoding."""
    out = args.out.absolute() / name
    command = [sys.executable, "-m", "examples.gallery.train", name, "--out", out]
    command += ["--updates", args.updates]

    def result(folder: Path) -> dict:
        return json.loads((folder / "result.json").read_text(encoding="utf-8"))

    return Run(name, {"encoding": name, "updates": args.updates}, [command], result)


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    args = parse(argv)
    with runner(args, {"updates": args.updates}, write_pages) as execute:
        execute([run_of(name, args) for name in POSITION_ENCODINGS])
    print(f"gallery: {args.out / 'gallery.html'}")


if __name__ == "__main__":
    script.run(main)
