"""The committed report of the benchmark is that of the committed results."""

import shutil

from examples.study import benchmark_report
from tests import ROOT


def test_committed_report_is_that_of_the_committed_results(tmp_path):
    folder = ROOT / "examples/study/benchmark"
    shutil.copy(folder / "results.json", tmp_path)
    benchmark_report.report(tmp_path)
    assert (tmp_path / "report.md").read_text() == (folder / "report.md").read_text()
