"""`mdmt rerun`: the same bits, or the first task and step that differ."""

import json
import shutil
import signal
from dataclasses import replace

import pytest

import mdmt
import mdmt.experiments.run
from mdmt.cli.app import main
from mdmt.errors import Mistake
from mdmt.experiments.rerun import first_difference, moments, rerun
from mdmt.experiments.run import run
from mdmt.runs.config import folder_of
from mdmt.runs.folder import RunFolder
from mdmt.runs.record import RunRecord
from mdmt.runs.step_log import StepLog
from support.configs import config_for
from support.helpers import small_stream

NARROW = {"name": "mlp", "arguments": {"inputs": 784, "width": 8}}


class Disturbed(mdmt.Method):
    """Plain learning that can be disturbed at one step: in its gradient, or in its weights after
    it.
    """

    at, what = None, "gradient"

    def step(self, batch):
        now = (self.learner.current + 1, self.learner.step_in_task + 1) == self.at
        gradient = self.gradient(batch)
        self.learner.apply(gradient * 1.001 if now and self.what == "gradient" else gradient)
        if now and self.what == "weights":
            self.model.flat.data.mul_(1.001)


@pytest.fixture
def finished(tmp_path, monkeypatch):
    """The folder of a run of two tasks, six steps each."""
    monkeypatch.setattr(
        mdmt.experiments.run,
        "stream_for",
        lambda config, **_: small_stream("permuted-digits", tasks=2, train=60),
    )
    monkeypatch.setattr("mdmt.experiments.run.find_method", lambda name: Disturbed)
    config = replace(config_for("permuted-digits", "van", tasks=2), backbone=NARROW)
    run(config, tmp_path)
    return folder_of(config, tmp_path)


def answer(capsys, folder, *more, code):
    assert main(["rerun", str(folder), "--quiet", *more]) == code
    return capsys.readouterr().out


def test_the_same_bits(finished, capsys):
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    assert answer(capsys, finished, code=0).startswith("same bits: 2 tasks, 12 steps, weights ")
    assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before
    told = json.loads(answer(capsys, finished, "--json", code=0))
    assert (told["same"], told["difference"], told["versions"]) == (True, None, {})


@pytest.mark.parametrize(
    ("what", "at", "first"),
    [
        ("gradient", (2, 3), (2, 3)),
        ("weights", (1, 2), (1, 2)),
        ("gradient", (1, 1), (1, 1)),
        ("weights", (2, 6), (2, 6)),
    ],
)
def test_the_first_task_and_step_that_differ(finished, capsys, monkeypatch, what, at, first):
    """Weights that change after a step show at once in the accuracy after it, or in the next step's
    loss.
    """
    monkeypatch.setattr(Disturbed, "at", at)
    monkeypatch.setattr(Disturbed, "what", what)
    difference = json.loads(answer(capsys, finished, "--json", code=1))["difference"]
    late = what == "weights"
    assert first <= (difference["task"], difference["step"]) <= (first[0], first[1] + late)
    assert difference["then"] != difference["now"]
    text = answer(capsys, finished, code=1)
    assert f"first at task {difference['task']}, step {difference['step']}: " in text


def test_where_steps_were_left_out_it_says_so(finished, capsys, monkeypatch):
    shutil.rmtree(finished)
    monkeypatch.setattr("mdmt.learning.recorder.LOG_ROWS", 2)
    config = replace(config_for("permuted-digits", "van", tasks=2), backbone=NARROW)
    monkeypatch.setattr("mdmt.learning.recorder.BETA", 0)
    run(config, finished.parents[3])
    monkeypatch.setattr(Disturbed, "at", (2, 2))
    assert "first at task 2, step 4, or after step 1: not every step is logged" in answer(
        capsys, finished, code=1
    )


def test_other_data_and_other_versions_are_named(finished, capsys, monkeypatch):
    record = json.loads((finished / "record.json").read_text())
    record["versions"]["torch"] = "1.0"
    (finished / "record.json").write_text(json.dumps(record))
    assert "torch was 1.0, is " in answer(capsys, finished, code=0)
    monkeypatch.setattr(
        mdmt.experiments.run,
        "stream_for",
        lambda config, **_: small_stream("permuted-digits", tasks=2, train=50),
    )
    assert "first at task 1, step 0: data was" in answer(capsys, finished, code=1)


def test_data_that_lies_elsewhere(finished, monkeypatch):
    asked = []
    plain = mdmt.experiments.run.stream_for
    monkeypatch.setattr(
        mdmt.experiments.run,
        "stream_for",
        lambda config, **_: asked.append(config.data) or plain(config),
    )
    with pytest.raises(Mistake, match="permuted-digits comes with the package"):
        rerun(RunFolder(finished), data="elsewhere")
    # As if it took --data.
    monkeypatch.setattr("mdmt.experiments.rerun.check_config", lambda config: None)
    assert rerun(RunFolder(finished), data="elsewhere").same
    assert asked == ["elsewhere"]
    (finished / "weights.pth").write_text("others")
    with pytest.raises(ValueError, match="is not the file that the run started from"):
        rerun(RunFolder(finished), weights=str(finished / "weights.pth"))


def test_a_run_without_its_steps_is_compared_by_its_record(finished, capsys, monkeypatch):
    (finished / "steps.csv").unlink()
    assert "same bits" in answer(capsys, finished, code=0)
    monkeypatch.setattr(Disturbed, "at", (2, 2))
    monkeypatch.setattr(Disturbed, "what", "weights")
    assert "not bit-identical" in answer(capsys, finished, code=1)


def test_an_unfinished_run_is_refused(finished, capsys):
    (finished / "record.json").unlink()
    assert main(["rerun", str(finished)]) == 2
    assert "is not finished" in capsys.readouterr().err


def test_a_damaged_record_is_told_and_the_run_done_again(finished, tmp_path, capsys):
    whole = (finished / "record.json").read_bytes()
    (finished / "record.json").write_bytes(whole[:300])
    assert main(["rerun", str(finished)]) == 2
    assert f"{finished} has a damaged record.json: finish it first" in capsys.readouterr().err
    told = []
    again = run(RunFolder(finished).config, tmp_path, warn=told.append)
    assert told == [f"{finished / 'record.json'} is damaged: the run is done again"]
    assert again.weights_sha256 == json.loads(whole)["weights_sha256"]


def test_a_point_of_the_curve_is_placed_at_its_step():
    """With mini-batches of one, Z_2 comes after step 20 and not after step 2."""
    about = {"name": "a", "classes": [0], "train": 30, "test": 9}
    curve = [[0.1, 0.2, 0.3] + [None] * 8]
    record = RunRecord([[0.5]], [[0.5]], curve, drift=[[0.5]], tasks=[about])
    other = replace(record, curve=[[0.1, 0.2, 0.4] + [None] * 8])
    for batch, step in ((1, 20), (10, 2)):
        both = [moments(one, StepLog(), batch) for one in (record, other)]
        assert first_difference(*both).step == step


def test_a_repetition_that_is_stopped_names_no_folder_that_is_gone(finished, capsys, monkeypatch):
    step = Disturbed.step

    def asked_to_stop(self, batch):
        step(self, batch)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Disturbed, "step", asked_to_stop)
    assert main(["rerun", str(finished), "--quiet"]) == 130
    assert capsys.readouterr().err == (
        "mdmt: stopped; a repetition keeps nothing: mdmt rerun begins again\n"
    )
