"""The figure of the benchmarks' results."""

import json

from tests import ROOT, processes


def test_points_are_the_medians(script, measure, tmp_path):
    flags = "--workloads 4x512,half-padding,long-1x16384 --encodings tupe_r,deberta"
    results, _ = measure("training", f"{flags} --peers=")
    plot = script("plot_speed")
    (tmp_path / "results.json").write_text(json.dumps(results))
    (axes,) = plot.draw(plot.read([tmp_path / "results.json"])).axes
    assert axes.get_title() == results["device"]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    # The third workload has no stock RoBERTa.
    assert labels == ["training, 2×16, width 16", "training, 2×16, 50 % padding, width 16"]
    points = {
        (line.get_ydata()[0], line.get_xdata()[0])
        for line in axes.lines
        if line.get_marker() in ("o", "s") and len(line.get_xdata())
    }
    rows = [row for table in results["tables"][:2] for row in table["rows"][1:3]]
    medians = [row["quartiles_of_ratios"]["stock"][1] for row in rows]
    assert points == set(zip([0, 0, 1, 1], medians, strict=True))
    plot.main([str(tmp_path / "results.json"), f"--out={tmp_path / 'speed.png'}"])
    written = (tmp_path / "speed.png").read_bytes()
    assert b"python scripts/plot_speed.py results.json --out=speed.png" in written


def test_another_file_is_told(tmp_path):
    (tmp_path / "other.json").write_text("[]")
    out = tmp_path / "speed.png"
    done = processes.run(ROOT / "scripts/plot_speed.py", tmp_path / "other.json", "--out", out)
    assert done.returncode == 1
    assert "is no result of benchmark_training.py" in done.stderr.splitlines()[-1]
    assert not out.exists()
