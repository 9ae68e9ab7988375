"""The programs in examples/ run, and are short."""

import re
import runpy
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

EXAMPLES = Path(__file__).parents[2] / "examples"


def printed_by(name, folder, monkeypatch, capsys, *more):
    program = EXAMPLES / name
    assert len(program.read_text().splitlines()) < 40
    monkeypatch.setattr(sys, "argv", [name, str(folder), *more])
    runpy.run_path(str(program), run_name="__main__")
    return capsys.readouterr().out


def test_months_of_deliveries(tmp_path, monkeypatch, capsys):
    out = printed_by("months_of_deliveries.py", tmp_path / "model", monkeypatch, capsys)
    assert "june: version 6" in out
    assert float(re.search(r"competing: ([\d.]+)", out)[1]) > 0.75


def test_unlearn_a_class(tmp_path, monkeypatch, capsys):
    out = printed_by("unlearn_a_class.py", tmp_path / "model", monkeypatch, capsys)
    before, after = re.findall(r"(\d+) threes in the folder", out)
    assert int(before) > 100
    assert int(after) == 0
    assert "after: classes [0, 1, 2, 4]" in out


def test_server_that_learns(tmp_path, monkeypatch, capsys):
    pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = str(one.getsockname()[1])
    out = printed_by("server_that_learns.py", tmp_path / "model", monkeypatch, capsys, port)
    before, after = (re.search(rf"{word}: (.*)", out)[1] for word in ("before", "after"))
    assert "7" not in before
    assert "7" in after


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_pretrained(tmp_path, monkeypatch, capsys):
    pytest.importorskip("efficientnet_lite_pytorch")
    draws = np.random.default_rng(1)
    for number, names in enumerate((("owl", "swan"), ("crow",))):
        for name in names:
            folder = tmp_path / f"delivery{number}" / name
            folder.mkdir(parents=True)
            colour = draws.integers(0, 256, 3)
            for image in range(12):
                pixels = (colour + draws.integers(-20, 20, (96, 96, 3))).clip(0, 255)
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{image}.png")
    deliveries = [str(tmp_path / f"delivery{number}") for number in range(2)]
    out = printed_by("pretrained.py", tmp_path / "model", monkeypatch, capsys, *deliveries)
    assert re.findall(r"accuracy ([\d.]+)", out) == ["1.000", "1.000"]
