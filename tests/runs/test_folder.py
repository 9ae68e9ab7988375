"""A run folder has one state, whoever asks; what it holds is read without torch."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mdmt.cli.app import main
from mdmt.errors import Mistake
from mdmt.runs.folder import Position, RunFolder, RunState, find_runs
from support.run_folders import interrupt, leave

RELEASE = Path(__file__).parent.parent / "fixtures" / "runs-0.1.0"


@pytest.fixture
def out(tmp_path):
    shutil.copytree(RELEASE, tmp_path / "runs")
    return tmp_path / "runs"


def run_of(out, method):
    return RunFolder(next((out / "split-digits" / method).glob("*/*")))


def listed(capsys, out):
    assert main(["runs", "list", str(out), "--json"]) == 0
    return {
        run["label"].partition("[")[0]: run for run in json.loads(capsys.readouterr().out)["runs"]
    }


def test_a_run_is_running_while_a_process_holds_it_and_stopped_when_none_does(
    out, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "200")
    folder = run_of(out, "er")
    at = Position(task=2, step=20, of_task=True)
    assert folder.state == RunState("stopped", "", at)
    with folder.lock():
        assert folder.is_running
        assert folder.state == RunState("running", "", at)
        assert listed(capsys, out)["er"]["state"] == "running"
        main(["runs", "list", str(out)])
        assert "running: its last checkpoint is at task 2, step 20" in capsys.readouterr().out
        main(["runs", "show", str(folder.path)])
        assert "seed 1235: running\n" in capsys.readouterr().out
        main(["report", str(out), "--out", str(out / "report.html")])
        assert "running now; 1 of 2 tasks learned" in capsys.readouterr().err
    assert not folder.is_running
    assert listed(capsys, out)["er"]["state"] == "stopped"
    main(["report", str(out), "--out", str(out / "report.html")])
    assert "stopped or killed before its end; 1 of 2 tasks learned" in capsys.readouterr().err


def test_runs_are_searched_no_deeper_than_they_lie(out, monkeypatch):
    inside = out.parent / "several" / "more"
    inside.mkdir(parents=True)
    out = shutil.move(out, inside / "runs")
    assert len(find_runs(out)) == len(find_runs(inside)) == 2
    (inside / "runs" / "a" / "b" / "c" / "d" / "e" / "f").mkdir(parents=True)
    entered = []
    walk = os.walk

    def noted(top):
        for step in walk(top):
            entered.append(Path(step[0]).relative_to(top))
            yield step

    monkeypatch.setattr(os, "walk", noted)
    assert find_runs(inside.parent) == []
    assert max(len(path.parts) for path in entered) == 5


def test_states_along_the_life_of_a_run(tmp_path):
    folder = RunFolder(leave(tmp_path, "van"))
    path = folder.path
    assert folder.state == RunState("finished")
    interrupt(path, learned=1)
    assert RunFolder(path).state == RunState("stopped", "", Position(2, 5, of_task=True))
    folder.fail("the loss is nan", 2, 7)
    assert RunFolder(path).state == RunState(
        "failed", "the loss is nan", Position(2, 5, of_task=True)
    )
    folder.forget_failure()
    shutil.rmtree(path / "checkpoint")
    assert RunFolder(path).state == RunState("stopped", "it left no checkpoint")
    (path / "config.json").unlink()
    assert RunFolder(path).state == RunState("stopped", "nothing is written yet")
    with RunFolder(path).lock():
        assert RunFolder(path).state == RunState("running", "no checkpoint yet")
        (path / "checkpoint").mkdir()  # its first checkpoint is being written
        assert RunFolder(path).state == RunState("running", "no checkpoint yet")
    (path / "config.json").write_text('{"architectures": []}')
    assert RunFolder(path).state.kind == "foreign"


def test_stored_metrics_are_not_trusted(tmp_path):
    folder = leave(tmp_path, "van")
    record = json.loads((folder / "record.json").read_text())
    for metrics in ({"A_T": 0.99}, "none", None):
        (folder / "record.json").write_text(json.dumps({**record, "metrics": metrics}))
        assert RunFolder(folder).record.metrics == record["metrics"]


def test_a_damaged_file_is_named_and_the_others_are_read(out):
    folder = run_of(out, "mdmt-r")
    for name, attribute in (
        ("steps.csv", "steps"),
        ("snapshots.safetensors", "snapshots"),
        ("record.json", "record"),
    ):
        whole = (folder.path / name).read_bytes()
        (folder.path / name).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(Mistake, match=f"^{name} is damaged: "):
            getattr(RunFolder(folder.path), attribute)
        assert RunFolder(folder.path).config == folder.config
        (folder.path / name).unlink()
    assert not RunFolder(folder.path).steps
    assert RunFolder(folder.path).snapshots == {}


def test_of_an_unfinished_run_the_last_good_checkpoint_is_read(out):
    folder = run_of(out, "er")
    assert (len(folder.steps), folder.record_so_far.steps) == (100, 100)
    manifest = json.loads((folder.path / "checkpoint" / "state.json").read_text())
    log = folder.path / "checkpoint" / manifest["files"]["steps"]["file"]
    log.write_bytes(log.read_bytes()[:-1] + b"\0")
    assert len(RunFolder(folder.path).steps) == 80  # of the checkpoint before
    (folder.path / "checkpoint" / "previous.json").unlink()
    with pytest.raises(Mistake, match=r"checkpoint/steps-\w+\.safetensors is damaged"):
        _ = RunFolder(folder.path).steps


def test_reading_loads_no_torch(out):
    code = (
        "import sys; from mdmt.runs.folder import find_runs\nruns ="
        f" find_runs({str(out)!r})\nprint([(r.state.kind, len(r.steps), len(r.snapshots),"
        " r.record_so_far.steps) for r in runs])\nassert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[('stopped', 100, 0, 100), ('finished', 160, 12, 160)]\n"


def test_what_json_does_not_know_is_null_in_the_output(tmp_path, capsys):
    """Keys of later versions are shown as they are, but Infinity and NaN are Python's alone."""
    folder = leave(tmp_path, "van")
    record = json.loads((folder / "record.json").read_text())
    record["later"] = {"a": [float("inf"), 1.5], "b": float("nan")}
    record["tasks"][0]["later"] = -float("inf")
    (folder / "record.json").write_text(json.dumps(record))
    assert main(["runs", "show", str(folder), "--json"]) == 0

    def refuse(name):
        raise AssertionError(name)

    shown = json.loads(capsys.readouterr().out, parse_constant=refuse)["record"]
    assert shown["later"] == {"a": [None, 1.5], "b": None}
    assert shown["tasks"][0]["later"] is None
