"""Records and step logs: what they keep, and what they say of the program that made them."""

import json
import math
import subprocess
import tracemalloc

import pytest

from mdmt.errors import Mistake
from mdmt.runs.record import Record, RunRecord, commit
from mdmt.runs.step_log import Step, StepLog


def git(folder, *arguments):
    who = ["-c", "user.name=someone", "-c", "user.email=someone@example.org"]
    done = subprocess.run(
        ["git", "-C", folder, *who, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_the_commit_of_the_package(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    assert commit(package) is None  # in no repository
    git(tmp_path, "init", "-q")
    commit.cache_clear()
    assert commit(package) is None  # in a repository that does not know it, as an environment is
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    git(tmp_path, "tag", "-am", "x", "v1")
    commit.cache_clear()
    head = git(tmp_path, "rev-parse", "HEAD")[:12]
    assert commit(package) == head
    (package / "__init__.py").write_text("changed = True\n")
    commit.cache_clear()
    assert commit(package) == f"{head}-dirty"


TASK = {"name": "a", "classes": [0, 1], "train": 30, "test": 9}


def finished():
    measured = Record(
        [[0.5]], [[0.25]], [[0.1]], [[0.0]], [TASK], 1.5, 3, 10, 20, "ab", [0.25], [3.0]
    )
    return RunRecord.of(measured, {"tasks": 1}, ranks=2)


def test_a_record_comes_back_from_its_file():
    record = finished()
    content = json.loads(json.dumps(record.to_json()))
    assert RunRecord.from_json(content) == record
    assert content["metrics"]["A_T"] == 0.5
    assert list(content)[-5:] == ["metrics", "versions", "reduced", "ranks", "finished"]
    assert record.stored_bytes == 30


def test_keys_of_later_versions_survive():
    content = {**finished().to_json(), "energy": {"joules": 7}}
    content["tasks"] = [{**TASK, "colour": "red"}]
    again = RunRecord.from_json(content).to_json()
    assert again == content


def test_earlier_versions_did_not_look_at_features():
    content = finished().to_json()
    assert (content["dead_features"], content["feature_rank"]) == ([0.25], [3.0])
    del content["dead_features"], content["feature_rank"]
    record = RunRecord.from_json(content)
    assert record.dead_features == record.feature_rank == [None]


def test_a_record_of_a_checkpoint_is_filled_up():
    content = {
        **finished().to_json(),
        "tasks": [TASK, TASK],
        "accuracy": [[0.5, 0.1, 0.1]],  # one head is tested on tasks to come
        "drift": [[0.0]],
        "curve": [[0.1]],
    }
    record = RunRecord.from_checkpoint(content)
    assert record.accuracy == [[0.5, 0.1], [None, None]]
    assert record.drift == [[0.0, None], [None, None]]
    assert (record.dead_features, record.feature_rank) == ([0.25, None], [3.0, None])
    assert not record.finished
    assert not {"versions", "reduced", "ranks"} & set(record.to_json())


@pytest.mark.parametrize(
    "change",
    [
        {"finished": 1},
        {"accuracy": [[2.0]]},
        {"tasks": []},
        {"steps": -1},
        {"ranks": 0},
        {"dead_features": [1.5]},
        {"dead_features": [0.5, 0.5]},
        {"feature_rank": ["3"]},
        {"feature_rank": 3},
    ],
)
def test_a_bad_record_is_refused(change):
    with pytest.raises(Mistake):
        RunRecord.from_json({**finished().to_json(), **change})


def test_numbers_that_come_late_find_their_step():
    log = StepLog()
    for task, step in ((1, 1), (1, 3), (2, 1), (2, 3)):
        log.append(Step(task, step, math.nan, math.nan, float(step)))
    log.fill(2, 1, 0.5, -1.0, 2.0)
    log.fill(2, 2, 9.0, 9.0, 9.0)  # not logged
    log.fill(1, 3, 9.0, 9.0, 9.0)  # of a task that is over
    assert log[2] == Step(2, 1, 0.5, -1.0, 1.0, 2.0)
    assert [row.loss == row.loss for row in log] == [False, False, True, False]


def test_a_logged_step_takes_no_more_than_its_numbers():
    log = StepLog()
    tracemalloc.start()
    try:
        for number in range(10_000):
            log.append(Step(1, number + 1, number / 7, number / 9, number / 3, 1.0))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 1.3 * 10_000 * 6 * 8  # an array has some room to grow


def test_a_log_without_norms_stays_as_it_was():
    text = "task,step,loss,gradient,seconds\n1,1,0.5,0.25,0.1\n"
    assert StepLog.from_csv(text).to_csv() == text


def test_reading_a_log_makes_no_row_of_each_step(monkeypatch):
    """A long log has hundreds of thousands, and few of them are asked for."""
    rows = [Step(1, number + 1, 0.5, math.nan, number / 3, 2.0) for number in range(50)]
    text = StepLog(rows).to_csv()
    made = []
    monkeypatch.setattr("mdmt.runs.step_log.Step", lambda *row: made.append(row) or row)
    log = StepLog.from_csv(text)
    assert (len(log), made) == (50, [])
    assert log[-1][:3] == (1, 50, 0.5)
