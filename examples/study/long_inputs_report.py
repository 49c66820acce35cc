"""The report of long_inputs.py.

    python -m examples.study.long_inputs_report DIRECTORY

Reads DIRECTORY/results.json; writes report.md.
"""

from pathlib import Path
from typing import Any

from examples.shared import script
from examples.shared.markdown import spread, table
from examples.shared.results import missing, read_results, rows, write_report

#: In the order of the table.
WAYS = ("truncated", "toeplitz", "hierarchical", "from scratch")


def report(out: Path) -> None:
    """Write the report of the results so far."""
    results = read_results(out)
    lines = ["# Articles longer than the pre-training", ""]
    for data in rows(results, part="data"):
        lines += [*data_lines(data, results["plan"]), *accuracy_table(results)]
        absent = [e for e in missing(results) if e["part"] != "data"]
        names = (f"`{e['part']}` ({e['model']}, seed {e['seed']})" for e in absent)
        lines += ["", f"Planned and not run: {', '.join(names) or 'nothing'}.", ""]
    write_report(out, results, lines)


def data_lines(data: dict[str, Any], plan: dict[str, int]) -> list[str]:
    """What the task is."""
    train, valid = (data["splits"][name] for name in ("train", "valid"))
    longer = [data["longer"][str(n)] for n in (plan["trained"], plan["longest"])]
    return [
        f"News articles of the BBC in {len(data['sections'])} sections: {train:,} to train, "
        f"{valid:,} held out. The median article has {data['median']:,} tokens; {longer[0]:.0f} % "
        f"are longer than {plan['trained']} tokens and {longer[1]:.0f} % than {plan['longest']}. "
        f"The most frequent section is right for {data['constant']:.1f} % of those held out.",
        "",
    ]


def accuracy_table(results: dict[str, Any]) -> list[str]:
    """Accuracy of each way: median and range over models and seeds."""
    lines = []
    for way in WAYS:
        found = rows(results, part=way)
        if not found:
            continue
        seconds = [row["seconds"] for row in found if row["seconds"]]
        lines.append(
            [
                f"`{way}`" if way in ("toeplitz", "hierarchical") else way,
                found[0]["tokens"],
                len(found),
                spread((row["accuracy"] for row in found), "{:.1f}"),
                spread(seconds, "{:.2f}"),
            ]
        )
    updates, lr = (
        next((r["updates"], r["lr"]) for w in WAYS for r in rows(results, part=w))
        if (lines)
        else (0, 0)
    )
    return [
        f"Accuracy in percent on the held-out articles after {updates:,} updates of 16 articles, "
        f"learning rate {lr:g}: median and range over pre-trained models and seeds. No checkpoint "
        "and no setting was selected. Seconds: processor time of an update.",
        "",
        *table(["way", "tokens", "runs", "accuracy", "seconds"], lines),
    ]


if __name__ == "__main__":
    script.run_report(report)
