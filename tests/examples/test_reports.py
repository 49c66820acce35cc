"""The committed reports of examples/study are those of the committed results."""

import shutil

import pytest

from examples.study import benchmark_report, length_report, length_tuning, long_inputs_report
from tests import ROOT

COMMITTED = {
    "benchmark": benchmark_report,
    "length": length_report,
    "length/at_128": length_report,
    "length_tuning": length_tuning,
    "long_inputs": long_inputs_report,
}


@pytest.mark.parametrize(("name", "written"), COMMITTED.items())
def test_committed_report_is_that_of_the_committed_results(name, written, tmp_path):
    folder = ROOT / "examples/study" / name
    for file in folder.glob("*.json"):
        shutil.copy(file, tmp_path)
    written.report(tmp_path)
    assert (tmp_path / "report.md").read_text() == (folder / "report.md").read_text()
