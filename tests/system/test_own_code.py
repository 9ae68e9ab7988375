"""Streams, networks and methods of one's own on the command line."""

import json
import shutil
import sys

import pytest

from mdmt.benchmarks import own
from mdmt.cli.app import main
from mdmt.experiments.run import run
from mdmt.runs.config import RunConfig
from support.configs import config_for
from support.helpers import mistake

MODULE = """
import torch
import mdmt
from torch import nn

def tasks(seed=0):
    random = torch.Generator().manual_seed(0)
    for number in range(3):
        x = torch.rand(40, 6, generator=random)
        y = ["low" if row[number] < 0.5 else "high" for row in x]
        yield mdmt.Task(f"column {number}", x[:30], y[:30], test=(x[30:], y[30:]))

def stream(seed):
    return mdmt.Stream("mine", list(tasks()), heads="shared")

listed = list(tasks())
number = 3

class Net(nn.Module):
    def __init__(self, width=5):
        super().__init__()
        self.layer = nn.Linear(6, width)

    def forward(self, x):
        return self.layer(x).relu()

class Mine(mdmt.VAN):
    pass
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with the modules own_a and deep/own_b."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "own_a.py").write_text(MODULE)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "own_b.py").write_text(MODULE)
    yield tmp_path
    forget()


def forget():
    """As if nothing of it had been loaded."""
    for name in ("own_a", "own_b"):
        sys.modules.pop(name, None)
    own._loaded_stream.cache_clear()
    own._loaded_fingerprint.cache_clear()


def test_a_stream_and_a_network_of_ones_own(place, capsys):
    command = ["own_a:stream", "--backbone", "own_a:Net[width=7]", "--json", "--seeds", "1"]
    assert main(["compare", *command, "--methods", "van"]) == 0  # in a worker process
    (van,) = json.loads(capsys.readouterr().out)["rows"]
    assert (van["benchmark"], van["reduced"], van["published"]) == ("own_a:stream", None, None)
    config = RunConfig.from_json(json.loads((place / van["runs"][0] / "config.json").read_text()))
    assert config.backbone == {"name": "own_a:Net", "arguments": {"width": 7}}
    assert config.heads == "shared"
    assert config_for("own_a:stream", "er").memory == {"policy": "Reservoir", "size": 6 * 13}
    assert (
        main(
            [
                "run",
                "./own_a.py:stream",
                "--backbone",
                "./own_a.py:Net[width=7]",
                "--method",
                "van",
                "--json",
            ]
        )
        == 0
    )
    # The same run by another name.
    assert json.loads(capsys.readouterr().out)["runs"] == van["runs"]
    assert main(["runs", "list"]) == 0
    assert "own_a:stream" in capsys.readouterr().out


def test_a_file_elsewhere(place, capsys):
    command = [
        "run",
        "deep/own_b.py:listed",
        "--method",
        "deep/own_b.py:Mine",
        "--tasks",
        "2",
        "--json",
    ]
    assert main(command) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["benchmark"], row["label"], row["reduced"]) == (
        "own_b:listed",
        "own_b:Mine",
        {"tasks": 2},
    )
    assert config_for("deep/own_b.py:listed").backbone == {
        "name": "mlp",
        "arguments": {"inputs": 6, "width": 256},
    }


def test_same_seed_same_bits_also_after_a_crash(place):
    config = config_for("own_a:listed", "er", backbone="own_a:Net", tasks=2)

    class Crash(Exception):
        pass

    def crash(learner):
        if learner.record.steps == 5:
            raise Crash

    whole = run(config, place / "whole")
    with pytest.raises(Crash):
        run(config, place / "part", every=1, on_step=crash)
    assert run(config, place / "part").weights_sha256 == whole.weights_sha256


def test_changed_code_or_data_is_another_run(place):
    def edited(old, new):
        (place / "own_a.py").write_text(MODULE.replace(old, new))
        shutil.rmtree(place / "__pycache__", ignore_errors=True)  # it may be of the same second
        forget()
        return config_for("own_a:listed", backbone="own_a:Net")

    before = edited("x", "x")
    assert edited("< 0.5", "< 0.4").fingerprint != before.fingerprint
    assert edited(".relu()", ".tanh()").hash != before.hash
    assert edited("x", "x").hash == before.hash


@pytest.mark.parametrize(
    ("benchmark", "more", "message"),
    [
        ("own_a:nothing", {}, "stream 'own_a:nothing' cannot be loaded"),
        (
            "mdmt_missing:stream",
            {},
            "stream 'mdmt_missing:stream' cannot be loaded: No module named 'mdmt_missing'",
        ),
        ("./none.py:stream", {}, "./none.py does not exist"),
        ("own_a:number", {}, "stream 'own_a:number' is a int: it must be an mdmt.Stream"),
        ("own_a:listed", {"tasks": 4}, "tasks=4: own_a:listed takes 1 to 3"),
        ("own_a:listed", {"data": "x"}, "--data does not apply to your own stream"),
        ("own_a:listed", {"backbone": "own_a:Other"}, "network 'own_a:Other' cannot be loaded"),
        ("own_a:listed", {"method": "own_a:Net"}, "Net is not a subclass of mdmt.Method"),
        ("split-digits", {"method": "./none.py:M"}, "./none.py does not exist"),
        ("mnist", {}, "benchmark 'mnist' is not one of"),
    ],
)
def test_mistakes_are_one_line(place, benchmark, more, message):
    assert message in mistake(config_for, benchmark, **more)


def test_a_file_with_the_name_of_another_module(place):
    (place / "json.py").write_text(MODULE)
    assert "another module is named 'json' too" in mistake(config_for, "./json.py:stream")
