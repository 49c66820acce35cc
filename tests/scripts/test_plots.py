"""The heat maps, through the script that draws them."""

import re
import shutil
import sys
from pathlib import Path

import pytest
import torch

from scripts.drawing.plots import color_limits, draw_positional_correlations, save_png
from tests.fairseq_commands import pretrain
from tupe_fairseq import UsageError
from tupe_fairseq.base.errors import TRACEBACK

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def plot(script):
    """The program: a function of its arguments."""
    return script("plot_positional_correlations").main


@pytest.fixture(scope="module")
def model_of(toy_masked_lm_data, tmp_path_factory):
    """Trains a model of an encoding on demand; returns its directory."""
    made = {}

    def directory(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name)
            flags = ("--position-encoding", name, "--max-update", 2)
            pretrain(toy_masked_lm_data, made[name], *flags)
            shutil.copy(toy_masked_lm_data / "dict.txt", made[name])
        return str(made[name])

    return directory


@pytest.mark.parametrize("encoding", ["tupe_r", "t5", "learned", "shaw"])
def test_draws(plot, model_of, tmp_path, encoding):
    out = tmp_path / "heads.png"
    model = model_of(encoding)
    plot([model, f"--out={out}", "--length", "20"])
    content = out.read_bytes()
    assert content.startswith(PNG)
    made = f"plot_positional_correlations.py {Path(model).name} --out=heads.png --length 20"
    assert made.encode() in content
    assert [file.name for file in tmp_path.iterdir()] == ["heads.png"]


@pytest.mark.parametrize(
    ("encoding", "arguments", "part"),
    [
        ("none", ["--out", "x.png"], "there is nothing to draw"),
        ("shaw", ["--out", "x.png", "--layer", "9"], "invalid layer 9"),
        ("tupe_r", ["--out", "x.png", "--length", "65"], "invalid length 65"),
        ("tupe_r", ["--out", "x.png", "--checkpoint-file", "best.pt"], "holds no best.pt"),
        ("tupe_r", ["--out", "x.jpg"], "it must end in .png"),
        ("tupe_r", ["--out", "nowhere/x.png"], "no such folder"),
    ],
)
def test_errors_are_one_line(plot, model_of, tmp_path, monkeypatch, encoding, arguments, part):
    directory = model_of(encoding)
    monkeypatch.chdir(tmp_path)
    # What Python prints on stderr, with status 1.
    with pytest.raises(SystemExit, match=rf"^error: .*{re.escape(part)}.*$"):
        plot([directory, *arguments])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("asked", ["", "1"])
def test_missing_matplotlib_is_named(plot, model_of, tmp_path, monkeypatch, capsys, asked):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setenv(TRACEBACK, asked)
    with pytest.raises(SystemExit, match=r"pip install 'tupe_fairseq\[viz\]'"):
        plot([model_of("t5"), "--out", str(tmp_path / "x.png")])
    assert ("Traceback" in capsys.readouterr().err) is bool(asked)


@pytest.mark.parametrize("heads", [1, 3, 5, 9, 12])
def test_every_head_has_its_map(heads):
    figure = draw_positional_correlations(torch.randn(heads, 5, 5), "random", "a command")
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles == [f"head {head + 1}" for head in range(heads)]


def test_existing_directory_is_not_replaced(tmp_path):
    out = tmp_path / "x.png"
    out.mkdir()
    figure = draw_positional_correlations(torch.zeros(1, 4, 4), "zeros")
    with pytest.raises(UsageError, match="cannot write"):
        save_png(figure, out)
    assert [file.name for file in tmp_path.iterdir()] == ["x.png"]


def test_range_of_colours_ignores_cls():
    """The values of [CLS] are much larger than the others."""
    correlations = torch.randn(30, 30)
    correlations[0] = 1000
    correlations[:, 0] = -1000
    low, high = color_limits(correlations)
    assert -10 < low < high < 10


@pytest.mark.parametrize("length", [1, 2, 3])
def test_range_of_colours_of_a_constant(length):
    assert color_limits(torch.zeros(length, length)) == (-1, 1)


def test_each_map_has_a_range_of_colours():
    maps = torch.stack([torch.linspace(0, 1, 36), torch.linspace(-5, 3, 36)]).view(2, 6, 6)
    figure = draw_positional_correlations(maps, "t", names=["a", "b"])
    limits = [axes.images[0].get_clim() for axes in figure.axes if axes.images]
    assert limits == [color_limits(values) for values in maps]
