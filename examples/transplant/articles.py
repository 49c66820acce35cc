"""The texts of results/long_texts.md, from the output of WikiExtractor.

    python -m examples.transplant.articles ARCHIVE.tar.xz DIRECTORY

Every fourth article is left out of the training. DIRECTORY gets `articles.json`, the titles and
paragraphs of these; of the others, `paragraphs.txt`, those of 60 to 400 words, and `long.txt`, the
articles of at least 400 words. Both have a text in each line.
"""

import argparse
import html
import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

from examples.shared import script

ARTICLE = re.compile(r'<doc id="\d+" url="[^"]*" title="([^"]*)">\n(.*?)</doc>', re.DOTALL)
#: One of so many articles is left out.
PART = 4
#: Words of a paragraph, and of a long article at least.
SHORTEST, LONGEST = 60, 400


def read_articles(archive: Path) -> Iterator[tuple[str, list[str]]]:
    """Titles and paragraphs, in the order of the files' names."""
    with tarfile.open(archive) as files:
        for member in sorted(files.getmembers(), key=lambda each: each.name):
            file = files.extractfile(member)
            text = "" if file is None else file.read().decode()
            for title, body in ARTICLE.findall(text):
                lines = list(filter(None, map(str.strip, body.split("\n"))))
                # The first line is the title.
                yield html.unescape(title), lines[1:]


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("archive", type=Path, metavar="ARCHIVE.tar.xz")
    parser.add_argument("out", type=Path, metavar="DIRECTORY")
    args = parser.parse_args(argv)
    articles = list(read_articles(args.archive))
    others = [each for number, each in enumerate(articles) if number % PART]
    paragraphs = [
        paragraph
        for _, own in others
        for paragraph in own
        if SHORTEST <= len(paragraph.split()) <= LONGEST
    ]
    joined = [" ".join(own) for _, own in others]
    long = [text for text in joined if len(text.split()) >= LONGEST]
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "articles.json").write_text(json.dumps(articles[::PART]), encoding="utf-8")
    for name, texts in (("paragraphs.txt", paragraphs), ("long.txt", long)):
        (args.out / name).write_text("\n".join(texts) + "\n", encoding="utf-8")
    print(f"{len(articles)} articles, {len(paragraphs)} paragraphs, {len(long)} long articles")


if __name__ == "__main__":
    script.run(main)
