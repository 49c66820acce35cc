"""Write the tour as a notebook with its outputs.

    python -m examples.quickstart.notebook

In the folder of the repository, after the quickstart. Runs the cells of tour.py in this process,
and writes tour.ipynb beside it (nbformat 4.4). Needs no Jupyter.
"""

import base64
import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from examples.shared import script
from tupe_fairseq.base.files import replacing

TOUR = Path(__file__).with_name("tour.py")
NOTEBOOK = TOUR.with_suffix(".ipynb")
MARK = "# %% "
#: Jupyter starts in the folder of the notebook.
FOLDER = """import os

if os.path.basename(os.getcwd()) == "quickstart":
    os.chdir("../..")"""


def cells_of(tour: str) -> list[tuple[str, str]]:
    """Text and code of each cell of the tour."""
    _, *parts = tour.split(MARK)
    found = []
    for part in parts:
        title, _, code = part.partition("\n")
        # Figures are shown below their cell.
        shown = "\ndisplay(figure)" if "\nfigure = " in code else ""
        found.append((title, code.strip() + shown))
    found[0] = (found[0][0], f"{FOLDER}\n\n{found[0][1]}")
    return found


def execute(code: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell; its outputs in the notebook's form."""
    figures: list[dict[str, Any]] = []

    def display(figure: Any) -> None:
        image = io.BytesIO()
        figure.savefig(image, format="png", dpi=80, metadata={"Software": None})
        data = {"image/png": base64.b64encode(image.getvalue()).decode()}
        figures.append({"output_type": "display_data", "data": data, "metadata": {}})

    names["display"] = display
    with redirect_stdout(io.StringIO()) as printed:
        exec(code, names)
    text = printed.getvalue()
    stream = {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}
    return ([stream] if text else []) + figures


def notebook(tour: str) -> dict[str, Any]:
    """The notebook of the tour, executed."""
    names: dict[str, Any] = {"__name__": "__main__"}
    found: list[dict[str, Any]] = []
    for count, (text, code) in enumerate(cells_of(tour), start=1):
        found.append({"cell_type": "markdown", "metadata": {}, "source": [text]})
        outputs = execute(code, names)
        cell = {"cell_type": "code", "execution_count": count, "metadata": {}, "outputs": outputs}
        found.append({**cell, "source": code.splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": found, "metadata": metadata, "nbformat": 4, "nbformat_minor": 4}


def main() -> None:
    """See the module's docstring."""
    made = notebook(TOUR.read_text(encoding="utf-8"))
    with replacing(NOTEBOOK) as aside:
        aside.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"notebook: {NOTEBOOK}")


if __name__ == "__main__":
    script.run(main)
