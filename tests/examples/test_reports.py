"""The committed report of the benchmark is that of the committed results."""

import shutil

from examples.study import benchmark_report
from tests import ROOT


def test_committed_report_is_that_of_the_committed_results(tmp_path):
    """Without its hypotheses, which the code of the tag v0.3.0 has judged."""
    folder = ROOT / "examples/study/benchmark"
    shutil.copy(folder / "results.json", tmp_path)
    benchmark_report.report(tmp_path)
    title, _, rest = (folder / "report.md").read_text().partition("## Hypotheses")
    _, first_figure, rest = rest.partition("![")
    assert (tmp_path / "report.md").read_text() == title + first_figure + rest
