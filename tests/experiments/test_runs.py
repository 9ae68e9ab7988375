"""`mdmt runs`: what lies in a folder is listed, shown and removed, whatever state it is in; runs of
earlier releases load.
"""

import csv
import io
import json
import os
import shutil
import sys
from datetime import datetime
from pathlib import Path

import pytest

import mdmt.experiments.run
from mdmt.cli.app import main
from mdmt.experiments.resolve import check_config
from mdmt.experiments.run import run
from mdmt.learning.recorder import log_stride
from mdmt.runs.config import folder_of
from mdmt.runs.folder import RunFolder
from mdmt.runs.step_log import StepLog
from support.configs import config_for
from support.helpers import small_stream
from support.run_folders import leave

RELEASES = sorted(Path(__file__).parent.parent.joinpath("fixtures").glob("runs-*"))
RELEASE = RELEASES[0]


class Enough(Exception):
    pass


@pytest.fixture
def out(tmp_path):
    """The runs of the first release, to change at will."""
    shutil.copytree(RELEASE, tmp_path / "runs")
    return tmp_path / "runs"


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def printed(capsys, *arguments, code=0):
    assert main(list(map(str, arguments))) == code
    return capsys.readouterr()


def listed(capsys, out):
    return {
        run["label"] or run["path"]: run
        for run in json.loads(printed(capsys, "runs", "list", out, "--json").out)["runs"]
    }


def folder(out, method):
    return next((out / "split-digits" / method).glob("*/*"))


# Runs of a release.


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_a_release_is_listed_shown_and_read(release, capsys):
    found = listed(capsys, release)
    assert [(run["state"], run["seed"]) for run in found.values()] == [
        ("stopped", 1235),
        ("finished", 1234),
    ]
    unfinished, finished = found.values()
    assert unfinished["at"] == {"task": 2, "step": 20, "of_task": True}
    record = RunFolder(Path(finished["path"])).record
    assert finished["A_T"] == record.metrics["A_T"]
    assert finished["bytes"] == sum(
        p.stat().st_size for p in Path(finished["path"]).rglob("*") if p.is_file()
    )
    for about in found.values():
        assert about["benchmark"] == "split-digits"
        path = Path(about["path"])
        assert path.parent.name == RunFolder(path).config.hash
    shown = printed(capsys, "runs", "show", "er/", "--out", release).out
    assert "checkpoint at task 2, step 20" in shown


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_a_release_goes_on(release, tmp_path):
    shutil.copytree(release, tmp_path / "runs")
    finished, unfinished = (folder(tmp_path / "runs", name) for name in ("mdmt-r", "er"))
    steps = []
    before = (finished / "record.json").read_bytes()
    then = json.loads(before)
    now = run(RunFolder(finished).config, tmp_path / "runs", on_step=steps.append)
    # Which came later too.
    assert {**now.to_json(), "metrics": then["metrics"]} == {
        **then,
        "buffer_bytes": 0,
        "dead_features": [None, None],
        "feature_rank": [None, None],
        "ranks": 1,
    }
    # As did a metric, which is computed for it.
    assert now.metrics.items() > then["metrics"].items()
    assert steps == []  # read, not run
    record = run(
        RunFolder(unfinished).config,
        tmp_path / "runs",
        on_step=lambda learner: steps.append(learner.step_in_task),
    )
    assert steps == list(range(21, 81))
    assert (record.finished, record.steps, len(RunFolder(unfinished).steps)) == (
        True,
        160,
        160,
    )
    assert not (unfinished / "checkpoint").exists()


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_a_release_can_be_run_again(release):
    for method in ("mdmt-r", "er"):
        check_config(RunFolder(folder(release, method)).config)


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_a_release_is_reported(release, tmp_path, capsys):
    shutil.copytree(release, tmp_path / "runs")
    printed(capsys, "report", tmp_path / "runs", "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    record = RunFolder(folder(tmp_path / "runs", "mdmt-r")).record
    assert f"{100 * record.metrics['A_T']:.2f}" in page
    assert "1 of 2 tasks learned at its last checkpoint" in page  # of the unfinished one


# Listing.


def test_whatever_is_damaged_or_foreign_is_listed_with_the_reason(out, capsys):
    good, stopped = folder(out, "mdmt-r"), folder(out, "er")
    for number, (name, content) in enumerate(
        [
            ("config.json", "{"),
            ("config.json", "[1]"),
            ("record.json", '{"finished": true}'),
            ("record.json", ""),
        ]
    ):
        copy = good.with_name(str(number))
        shutil.copytree(good, copy)
        (copy / name).write_text(content)
    shutil.copytree(stopped, stopped.with_name("9"))
    for path in (stopped.with_name("9") / "checkpoint").glob("*.json"):
        path.write_bytes(b"\xff\x00")
    (stopped / "checkpoint" / "state.json").write_text("{")  # the one before it is read
    (out / "model").mkdir()
    (out / "model" / "config.json").write_text('{"architectures": []}')
    (out / ".hidden").mkdir()
    (out / ".hidden" / "config.json").write_text("{")
    (good.with_name("8")).mkdir()
    (good.with_name("8") / ".lock").touch()
    (out / "notes.txt").write_text("mine")
    found = {
        Path(run["path"]).name: run
        for run in json.loads(printed(capsys, "runs", "list", out, "--json").out)["runs"]
    }
    assert {name: run["state"] for name, run in found.items()} == {
        "0": "damaged",
        "1": "damaged",
        "2": "damaged",
        "3": "damaged",
        "9": "damaged",
        "model": "foreign",
        "8": "stopped",
        "1234": "finished",
        "1235": "stopped",
    }
    assert all(run["reason"] for run in found.values() if run["state"] in ("damaged", "foreign"))
    assert found["1235"]["at"] == {"task": 1, "step": 80, "of_task": False}
    text = printed(capsys, "runs", "list", out).out
    assert "config.json is damaged: it is not a JSON object" in text
    assert "9 runs" in text


def test_a_narrow_screen_shows_all_columns(out, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    lines = printed(capsys, "runs", "list", out).out.splitlines()
    assert all(len(line) <= 60 for line in lines)
    assert any(
        f"{folder(out, 'mdmt-r').parent.name}/1234" in line and "finished 94.50" in line
        for line in lines
    )
    shown = printed(capsys, "runs", "show", "er/", "--out", out).out.splitlines()
    # To be copied whole.
    assert [line for line in shown if len(line) > 60] == [str(folder(out, "er"))]


def test_nothing_there(tmp_path, capsys):
    assert "no runs in" in printed(capsys, "runs", "list", tmp_path).out
    assert "is not a folder" in printed(capsys, "runs", "list", tmp_path / "none", code=2).err


# Showing.


def test_show(out, capsys):
    record = RunFolder(folder(out, "mdmt-r")).record
    text = printed(capsys, "runs", "show", "mdmt-r", "--out", out).out
    assert "mdmt-r[memory=2,reference_batch=8] on split-digits, seed 1234: finished" in text
    assert f"{100 * record.metrics['A_T']:.2f}" in text
    assert "mean_j a[T][j]" in text
    matrix = text[text.index("accuracy (%)") : text.index("drift")].splitlines()[2:4]
    rows = [[f"{100 * a:.1f}" for a in row if a is not None] for row in record.accuracy]
    assert [line.split() for line in matrix] == [[str(i), *row] for i, row in enumerate(rows, 1)]
    assert f"{record.drift[1][0]:.3f}" in text
    for told in ("160 steps", f"torch {record.versions['torch']}", "lr=0.03", "memory=Ring 2"):
        assert told in text
    whole = json.loads(printed(capsys, "runs", "show", "mdmt-r", "--out", out, "--json").out)
    assert whole["record"] == record.to_json()
    assert whole["config"]["seed"] == 1234


def test_the_steps_are_a_table_for_programs(out, capsys):
    text = printed(capsys, "runs", "show", "mdmt-r", "--out", out, "--csv").out
    assert text == (folder(out, "mdmt-r") / "steps.csv").read_text()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(int(row["task"]), int(row["step"])) for row in rows] == [
        (t, s) for t in (1, 2) for s in range(1, 81)
    ]
    seconds = [float(row["seconds"]) for row in rows]
    assert seconds == sorted(seconds)
    assert float(rows[0]["loss"]) > float(rows[79]["loss"]) > 0
    unfinished = printed(capsys, "runs", "show", "er/", "--out", out, "--csv").out
    assert len(StepLog.from_csv(unfinished)) == 100
    assert (
        json.loads(printed(capsys, "runs", "show", "er/", "--out", out, "--json").out)["record"][
            "finished"
        ]
        is False
    )


def test_of_a_long_task_evenly_spaced_steps_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("mdmt.learning.recorder.LOG_ROWS", 3)
    learner = mdmt.Learner(mdmt.backbones.mlp(784, 4), mdmt.VAN())
    learner.run(small_stream("permuted-digits", tasks=2, train=100))
    assert [(task, step) for task, step, *_ in learner.recorder.step_log] == [
        (t, s) for t in (1, 2) for s in (1, 5, 9, 10)
    ]
    assert log_stride(3) == 1


def test_what_names_a_run(out, capsys):
    run_folder = folder(out, "er")
    for name in (
        run_folder,
        run_folder.parent,
        run_folder.parent.name,
        f"{run_folder.parent.name}/1235",
        "1235",
    ):
        assert json.loads(printed(capsys, "runs", "show", name, "--out", out, "--json").out)[
            "path"
        ] == str(run_folder)
    assert (
        "names 2 runs" in printed(capsys, "runs", "show", "split-digits", "--out", out, code=2).err
    )
    assert (
        "no run 'nothing'" in printed(capsys, "runs", "show", "nothing", "--out", out, code=2).err
    )
    (run_folder / "config.json").write_text("{")
    err = printed(capsys, "runs", "show", "er/", "--out", out, code=2).err
    assert "cannot be shown: damaged: config.json" in err
    assert err.count("\n") == 1


# Removing.


def test_remove_asks_and_takes_empty_folders_along(out, capsys, monkeypatch):
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    printed(capsys, "runs", "remove", "er/", "--out", out)
    assert folder(out, "er").exists()
    monkeypatch.setattr("typer.confirm", lambda *_, **__: True)
    assert "removed" in printed(capsys, "runs", "remove", "er/", "--out", out).out
    assert [path.name for path in (out / "split-digits").iterdir()] == ["mdmt-r"]
    (folder(out, "mdmt-r") / "notes.txt").write_text("mine")
    printed(capsys, "runs", "remove", "mdmt-r", "--yes", "--out", out)
    assert [path.name for path in out.rglob("*") if path.is_file()] == ["notes.txt"]


def test_remove_without_an_answer_is_one_line(out, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    place = folder(out, "er")
    assert (
        f"mdmt: {place} was not removed: nobody answered"
        in printed(capsys, "runs", "remove", place, code=2).err
    )
    assert (place / "config.json").exists()


def test_remove_refuses_what_a_process_holds_and_what_is_not_ours(out, capsys):
    place = folder(out, "er")
    with RunFolder(place).lock():
        err = printed(capsys, "runs", "remove", "er/", "--yes", "--out", out, code=2).err
    assert "in use by another process" in err
    assert (place / "checkpoint" / "state.json").exists()
    (out / "model").mkdir()
    (out / "model" / "config.json").write_text('{"architectures": []}')
    assert (
        "is not a run of mdmt"
        in printed(capsys, "runs", "remove", out / "model", "--yes", code=2).err
    )
    assert (out / "model" / "config.json").exists()


def everything(place):
    return {
        path: path.read_bytes() if path.is_file() else None for path in sorted(place.rglob("*"))
    }


def strangers(place):
    """Files of somebody else, with names that a run uses too."""
    for name in ("checkpoint/weights.bin", "checkpoint/step-1/state.json", "model/pytorch.bin"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("mine")
    for name in ("tensorboard/events.out.tfevents.1700000000.host.7.0", "steps.csv", "record.json"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("mine")


@pytest.mark.parametrize(
    "kind", ["no config", "config", "unreadable config", "another run's config", "own checkpoint"]
)
def test_remove_refuses_folders_that_are_no_runs(out, capsys, kind):
    place = out / "project"
    strangers(place)
    if kind == "config":
        (place / "config.json").write_text('{"method": "adam", "benchmark": "mine"}')
    elif kind == "unreadable config":
        (place / "config.json").write_text("{")
    elif kind == "another run's config":
        (place / "1234").mkdir()
        shutil.move(place / "checkpoint", place / "1234")
        place = place / "1234"
        shutil.copy(folder(out, "mdmt-r") / "config.json", place)
    elif kind == "own checkpoint":
        shutil.copytree(folder(out, "er") / "checkpoint", place / "checkpoint", dirs_exist_ok=True)
    before = everything(out)
    err = printed(capsys, "runs", "remove", place, "--yes", code=2).err
    assert f"{place} is not a run of mdmt: its path does not end with the hash and the seed" in err
    assert everything(out) == before


def test_remove_refuses_a_folder_in_the_place_of_a_run_that_holds_something_else(out, capsys):
    good = folder(out, "mdmt-r")
    other = good.with_name("7")
    shutil.copytree(good, other)
    err = printed(capsys, "runs", "remove", other, "--yes", code=2).err
    assert "config.json is that of another run" in err
    (other / "config.json").write_text("{")
    (other / "notes.txt").write_text("mine")
    before = everything(other)
    # nothing is removed if one of several is refused
    err = printed(capsys, "runs", "remove", good, other, "--yes", code=2).err
    assert "config.json is missing or damaged, and notes.txt is not of a run" in err
    assert everything(other) == before
    assert (good / "record.json").exists()
    (other / "notes.txt").unlink()
    printed(capsys, "runs", "remove", other, "--yes")  # a damaged run
    assert not other.exists()


def test_remove_takes_only_what_the_run_wrote(out, capsys):
    place = folder(out, "er")
    for name in (
        "checkpoint/weights.bin",
        "checkpoint/model-0123456789abcdef.safetensors",
        "model/pytorch.bin",
        "tensorboard/events.out.tfevents.1700000000.host.7.0",
        "fresh/notes.txt",
        "notes.txt",
    ):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text("mine")
    kept = {path: data for path, data in everything(place).items() if data == b"mine"}
    (place / "tensorboard" / "events.out.tfevents.00001").touch()
    (place / ".record.json.77.tmp").touch()
    (place / ".events-x1").mkdir()
    (place / ".events-x1" / "events.out.tfevents.1700000000.host.7.0").touch()
    (place / "fresh" / "config.json").write_text("{}")
    elsewhere = out.parent / "model"
    shutil.copytree(place / "checkpoint", elsewhere)
    (folder(out, "mdmt-r") / "model").symlink_to(elsewhere)
    text = printed(capsys, "runs", "remove", place, "--yes").out
    assert "files that mdmt did not write are still there" in text
    assert {path: data for path, data in everything(place).items() if data is not None} == kept
    behind_link = everything(elsewhere)
    printed(capsys, "runs", "remove", folder(out, "mdmt-r"), "--yes")
    assert everything(elsewhere) == behind_link


def test_a_name_matches_whole_parts_of_a_path(out, capsys):
    run_folder = folder(out, "er")
    hash_ = run_folder.parent.name
    for name in (
        hash_[:6],
        "e",
        "digits",
        "123",
        f"{hash_}/12",
        f"r/{hash_}",
        "split-digits/er/1235",
        "",
    ):
        assert (
            "no run " in printed(capsys, "runs", "remove", name, "--yes", "--out", out, code=2).err
        )
    assert run_folder.exists()
    for name in ("er", f"er/{hash_}", f"split-digits/er/{hash_}", f"{hash_}/1235"):
        text = printed(capsys, "runs", "show", name, "--out", out, "--json").out
        assert json.loads(text)["path"] == str(run_folder)


# TensorBoard.


def scalars(place):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(place))
    read.Reload()
    return {
        tag: [(e.step, pytest.approx(e.value)) for e in read.Scalars(tag)]
        for tag in read.Tags()["scalars"]
    }


def small_run(monkeypatch, out):
    monkeypatch.setattr(
        mdmt.experiments.run,
        "stream_for",
        lambda config, **_: small_stream("permuted-digits", tasks=config.tasks),
    )
    config = config_for("permuted-digits", "van", tasks=2)
    return config, folder_of(config, out)


def test_event_files_hold_loss_and_accuracies(tmp_path, monkeypatch, capsys):
    place = small_run(monkeypatch, tmp_path)[1]
    arguments = ["run", "--method", "van", "--tasks", "2", "--out", str(tmp_path), "--quiet"]
    assert main(arguments) == 0
    assert not (place / "tensorboard").exists()
    assert main([*arguments, "--log", "tensorboard"]) == 0  # of a run that is finished
    record, kept, found = (
        RunFolder(place).record,
        RunFolder(place).steps,
        scalars(place / "tensorboard"),
    )
    assert found["loss"] == [(i, row[2]) for i, row in enumerate(kept, 1)]
    assert found["A_t"] == [(1, record.accuracy[0][0]), (2, record.metrics["A_T"])]
    assert found["accuracy/task 01"] == [
        (1, record.accuracy[0][0]),
        (2, record.accuracy[1][0]),
    ]
    assert main([*arguments, "--log", "tensorboard", "--fresh"]) == 0
    assert scalars(place / "tensorboard") == found
    assert not list(place.glob(".events-*"))


def test_events_of_a_task_are_there_when_the_next_begins(tmp_path, monkeypatch):
    def stop(learner):
        if learner.current == 1 and learner.step_in_task == 2:
            raise Enough

    config, place = small_run(monkeypatch, tmp_path)
    with pytest.raises(Enough):
        run(config, tmp_path, events=True, on_step=stop)
    found = scalars(place / "tensorboard")
    assert [step for step, _ in found["loss"]] == [1, 2, 3, 4]
    assert [step for step, _ in found["A_t"]] == [1]


def test_without_the_package_one_line_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    err = printed(
        capsys, "run", "--tasks", "1", "--out", tmp_path, "--log", "tensorboard", code=2
    ).err
    assert "needs the package tensorboard: pip install tensorboard\n" in err
    assert list(tmp_path.iterdir()) == []
    assert (
        "--log csv: must be tensorboard"
        in printed(capsys, "run", "--log", "csv", "--out", tmp_path, code=2).err
    )


def test_the_list_has_tasks_and_date_and_tells_equal_labels_apart(tmp_path, capsys, monkeypatch):
    leave(tmp_path, "van", tasks=3)
    other = leave(tmp_path, "van", tasks=3, batch=20)
    leave(tmp_path, "er", tasks=3)
    os.utime(other / "record.json", (1e9, 1e9))
    monkeypatch.setenv("COLUMNS", "80")
    lines = printed(capsys, "runs", "list", tmp_path).out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    text = " ".join(" ".join(lines).split())
    assert f"{other.parent.name}: batch=20" in lines
    assert sum("batch=10" in line for line in lines) == 1
    when = datetime.fromtimestamp(1e9)
    assert f"{when.day} Sep {when:%H:%M}" in text
    runs = json.loads(printed(capsys, "runs", "list", tmp_path, "--json").out)["runs"]
    assert {(run["tasks"], run["differs"]) for run in runs} == {
        (3, "batch=10"),
        (3, "batch=20"),
        (3, ""),
    }
