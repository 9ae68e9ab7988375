"""A run that fails leaves its reason, which is shown until it is started again."""

import json
import sys

import pytest

import mdmt.experiments.run
from mdmt.cli.app import main
from mdmt.errors import Stopped
from mdmt.experiments.run import run
from mdmt.report.study import read_run
from mdmt.runs.config import folder_of
from mdmt.runs.folder import FAILED, RunFolder
from support.configs import config_for
from support.helpers import small_stream
from support.photos import photos


@pytest.fixture
def config(monkeypatch):
    """Two tasks of four steps each."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(
        mdmt.experiments.run, "stream_for", lambda config, **_: small_stream(tasks=config.tasks)
    )
    return config_for("split-digits", "van", tasks=2)


def fail_at(task, step, error):
    def on_step(learner):
        if (learner.current + 1, learner.step_in_task) == (task, step):
            raise error

    return on_step


def written(config, out):
    path = folder_of(config, out) / FAILED
    return json.loads(path.read_text()) if path.exists() else None


def test_the_reason_stays_until_the_run_goes_on_and_changes_nothing_of_it(config, tmp_path, capsys):
    expected = run(config, tmp_path / "whole")
    out = tmp_path / "runs"
    for step, error, reason in (
        (2, MemoryError(), "out of memory; use a smaller memory or network"),
        (3, RuntimeError("no memory\nat"), "RuntimeError: no memory"),
    ):
        with pytest.raises(type(error)):
            run(config, out, every=1, on_step=fail_at(2, step, error))
        assert written(config, out) == {"reason": reason, "task": 2, "step": step}
    folder = folder_of(config, out)
    assert (
        read_run(RunFolder(folder)).reason
        == "failed: RuntimeError: no memory; 1 of 2 tasks learned at its last checkpoint"
    )
    assert main(["runs", "list", str(out)]) == 0
    listed = capsys.readouterr().out
    assert "failed: RuntimeError: no memory\ncheckpoint at task 2, step " in listed
    assert main(["runs", "show", str(folder)]) == 0
    assert "seed 1234: failed\n" in (shown := capsys.readouterr().out)
    assert "\nfailed: RuntimeError: no memory\n" in shown
    record = run(config, out)
    assert written(config, out) is None
    assert record.weights_sha256 == expected.weights_sha256
    assert record.accuracy == expected.accuracy


def test_a_run_that_fails_before_it_learns(config, tmp_path, monkeypatch, capsys):
    def broken(config, **_):
        raise OSError(5, "Input/output error", "images.npy")

    monkeypatch.setattr(mdmt.experiments.run, "stream_for", broken)
    with pytest.raises(OSError, match="Input/output"):
        run(config, tmp_path)
    assert written(config, tmp_path) == {
        "reason": "images.npy: Input/output error",
        "task": None,
        "step": None,
    }
    assert (
        read_run(RunFolder(folder_of(config, tmp_path))).reason
        == "failed: images.npy: Input/output error"
    )
    assert main(["runs", "list", str(tmp_path), "--json"]) == 0
    (about,) = json.loads(capsys.readouterr().out)["runs"]
    assert (about["state"], about["reason"]) == ("failed", "images.npy: Input/output error")
    RunFolder(folder_of(config, tmp_path)).clear()
    assert written(config, tmp_path) is None


@pytest.mark.parametrize("error", [Stopped("asked to"), KeyboardInterrupt()])
def test_a_stop_is_no_failure(config, tmp_path, error):
    with pytest.raises(type(error)):
        run(config, tmp_path, on_step=fail_at(1, 2, error))
    assert written(config, tmp_path) is None


def test_a_reason_that_cannot_be_written_hides_nothing(config, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mdmt.runs.folder.write_json", full)
    monkeypatch.setattr(RunFolder, "begin", lambda *_: None)
    with pytest.raises(ValueError, match="first"):
        run(config, tmp_path, on_step=fail_at(1, 2, ValueError("first")))


def test_a_reason_that_cannot_be_read_is_none(tmp_path):
    for content in ("", "[]", '{"reason": 1}'):
        (tmp_path / FAILED).write_text(content)
        assert RunFolder(tmp_path).failure is None


FAULTY = """
import mdmt


class Faulty(mdmt.Method):
    def gradient(self, batch):
        return self.nothing_of_the_kind
"""


def test_an_own_method_that_fails_keeps_its_traceback(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_faulty.py").write_text(FAULTY)
    monkeypatch.setattr(sys, "path", [*sys.path])
    arguments = ["--tasks", "1", "--seeds", "1", "--out", str(tmp_path / "runs"), "--quiet"]
    assert main(["compare", "--methods", f"{tmp_path}/my_faulty.py:Faulty", *arguments]) == 2
    assert "failed: my_faulty:Faulty, seed 1234: AttributeError" in capsys.readouterr().err
    (path,) = tmp_path.glob("runs/permuted-digits/my_faulty.Faulty/*/1234/failed.json")
    assert "return self.nothing_of_the_kind" in json.loads(path.read_text())["traceback"]
    assert main(["runs", "show", str(path.parent)]) == 0
    assert "return self.nothing_of_the_kind" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["split-cifar", "--data", "nowhere"],
        ["folder", "--data", "photos", "--tasks", "3"],
        ["folder", "--data", "photos", "--weights", "photos.txt"],
    ],
)
def test_a_typo_leaves_no_run_folder(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    photos(tmp_path / "photos")
    (tmp_path / "photos.txt").write_text("no weights")
    assert main(["run", *arguments, "--quiet"]) == 2
    assert not list(tmp_path.glob("runs/*"))
