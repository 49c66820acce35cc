"""The pages of the gallery: Markdown, and HTML that needs no server and no network."""

import html
from pathlib import Path
from typing import Any

from examples.gallery.card import Card, card
from examples.shared.markdown import table
from examples.shared.results import read_results, rows
from tupe_fairseq.base.files import replacing
from tupe_fairseq.position import POSITION_ENCODINGS

TITLE = "Position encodings"
INTRO = (
    "A card for each value of `--position-encoding`, written from the code by `python -m "
    "examples.gallery.build`. Each figure shows one head, with queries in rows and keys in "
    "columns, before and after a short training of a tiny model. The task needs positions: "
    "predict the token three positions to the left. The accuracy shows whether a model has "
    "learned this task, not which encoding is better; `none` can only count the tokens. "
    "Parameters: what the encoding adds to a model of BERT-Base's size. Cost: what is stored for "
    "T tokens. Beyond the trained length: what can be computed, not how well."
)
TEMPLATE = Path(__file__).with_name("page.html")


def write_pages(out: Path) -> None:
    """Write gallery.md and gallery.html into a folder with results.json."""
    runs = {row["encoding"]: row for row in rows(read_results(out))}
    cards = [card(name) for name in POSITION_ENCODINGS]
    pages = {"gallery.md": markdown_page, "gallery.html": html_page}
    for name, page in pages.items():
        with replacing(out / name) as aside:
            aside.write_text(page(cards, runs), encoding="utf-8")


def caption(result: dict[str, Any]) -> str:
    """What the figure of an encoding shows."""
    right = f"Accuracy {100 * result['right']:.0f} % after {result['updates']} updates"
    if "map" not in result:
        return f"Nothing is added, so there is no figure. {right}."
    learned = "" if result["changed"] else " Training does not change it."
    return f"{result['map'].capitalize()}: {result['meaning']}.{learned} {right}."


def flag_of(of: Card) -> str:
    """The flag that selects the encoding."""
    return f"--position-encoding {of.name}"


def option_rows(of: Card) -> list[tuple[str, str, str]]:
    """Flag, default and meaning of each option."""
    rows = [(each.flag, each.default, each.help) for each in of.options]
    return [(flag, "-" if value is None else str(value), said) for flag, value, said in rows]


def markdown_page(cards: list[Card], runs: dict[str, Any]) -> str:
    """The page in Markdown."""
    names = " · ".join(f"[`{each.name}`](#{each.name})" for each in cards)
    chosen = "[gallery.html](gallery.html) shows chosen encodings side by side."
    lines = [f"# {TITLE}", "", INTRO, "", chosen, "", names, ""]
    for each in cards:
        lines += [f"## {each.name}", "", *_markdown_card(each, runs.get(each.name))]
    return "\n".join(lines)


def _markdown_card(of: Card, result: dict[str, Any] | None) -> list[str]:
    lines = ["```text", of.title, *(f"\n{part}" for part in of.equation), "```", ""]
    if result and "map" in result:
        lines += [f"![{caption(result)}]({of.name}/maps.png)", ""]
    lines += [caption(result), ""] if result else []
    facts = [("Flag", f"`{flag_of(of)}`"), *of.facts.items()]
    lines += [*table(("", ""), facts), ""]
    if of.options:
        rows = [(f"`{flag}`", value, said) for flag, value, said in option_rows(of)]
        lines += [*table(("option", "default", "meaning"), rows), ""]
    return lines


def html_page(cards: list[Card], runs: dict[str, Any]) -> str:
    """The page in HTML; `page.html` has its styles and its script."""
    chips = [
        f'<label><input type="checkbox" value="{each.name}">{each.name}</label>' for each in cards
    ]
    parts = {
        "TITLE": TITLE,
        "INTRO": _code(INTRO),
        "CHIPS": "\n".join(chips),
        "CARDS": "\n".join(_html_card(each, runs.get(each.name)) for each in cards),
    }
    page = TEMPLATE.read_text(encoding="utf-8")
    for name, text in parts.items():
        page = page.replace(f"<!-- {name} -->", text)
    return page


def _code(text: str) -> str:
    """Escaped, with `code` as an element."""
    parts = html.escape(text).split("`")
    parts[1::2] = [f"<code>{part}</code>" for part in parts[1::2]]
    return "".join(parts)


def _html_card(of: Card, result: dict[str, Any] | None) -> str:
    lines = [f'<article id="{of.name}">', f"<h2>{of.name}</h2>"]
    lines[-1] = f'<header>{lines[-1]}<p class="title">{_code(of.title)}</p></header>'
    lines += ["<div>", *(f'<p class="text">{_code(part)}</p>' for part in of.equation), "</div>"]
    said = html.escape(caption(result)) if result else ""
    image = f'<img src="{of.name}/maps.png" alt="{said}" loading="lazy">'
    image = image if result and "map" in result else ""
    lines += [f"<figure>{image}<figcaption>{said}</figcaption></figure>"]
    facts = [("Flag", f"`{flag_of(of)}`"), *of.facts.items()]
    rows = [f"<dt>{name}</dt><dd>{_code(said)}</dd>" for name, said in facts]
    lines += ["<dl>", *rows, "</dl>"]
    options = [
        f"<dt><code>{flag}</code> {html.escape(value)}</dt><dd>{html.escape(said)}</dd>"
        for flag, value, said in option_rows(of)
    ]
    lines.append("<footer>")
    if options:
        lines += _folded("Options and defaults", ["<dl>", *options, "</dl>"])
    if of.notes:
        lines += _folded("Notes", [f'<p class="text">{_code(part)}</p>' for part in of.notes])
    return "\n".join([*lines, "</footer>", "</article>"])


def _folded(summary: str, lines: list[str]) -> list[str]:
    return ["<details>", f"<summary>{summary}</summary>", *lines, "</details>"]
