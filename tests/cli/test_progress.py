"""What is drawn while runs go on: on 80 columns nothing that matters is lost, and nothing jumps."""

import fcntl
import io
import os
import struct
import sys
import termios
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from mdmt.cli import progress
from mdmt.cli.progress import LiveTable, RunBar
from mdmt.experiments.workers import Event, Outcome
from mdmt.runs.record import RunRecord
from support.configs import config_for
from support.helpers import some_row

LONG = "mdmt-r[class_margin=0.01,distance=none,head=cosine,task_margin=0.1], seed 1234"


def learner(task=3, step=45, accuracy=0.881):
    sizes = {f"task {number}": 900 for number in range(1, 11)}
    begun = [{"name": name} for name in list(sizes)[:task]]
    record = SimpleNamespace(accuracy=[[accuracy] * 10], tasks=begun)
    recorder = SimpleNamespace(stream_length=10, stream_sizes=sizes)
    return SimpleNamespace(
        task=SimpleNamespace(parts=[SimpleNamespace(**begun[-1])], size=900),
        current=task - 1,
        step_in_task=step,
        record=record,
        recorder=recorder,
        steps_of=lambda task: 90,
    )


def drawn(renderable, width=80):
    console = Console(file=io.StringIO(), width=width)
    console.print(renderable)
    return console.file.getvalue().splitlines()


def test_on_80_columns_the_label_yields_and_percent_and_time_left_stay():
    bar = RunBar(LONG, quiet=False)
    bar.step(learner())
    bar.progress.update(bar.row, completed=0.25)
    (line,) = drawn(bar.progress.get_renderable())
    assert len(line.rstrip()) <= 80
    assert "task 3/10, step 45, accuracy 88.1 %" in line
    assert "25%" in line
    assert line.rstrip().endswith("-:--:--")  # the time left, which is not known yet
    assert line.startswith("mdmt-r")
    assert "…" in line


def test_without_a_terminal_a_line_a_minute_says_what_is_left(capsys):
    bar = RunBar("er, seed 1", quiet=False)
    bar.step(learner())
    assert "left" not in capsys.readouterr().err
    bar.begin -= 100
    bar.last_time -= 61
    bar.step(learner(task=6, step=0))
    assert capsys.readouterr().err.endswith("er, seed 1: 50 %, 1:40, about 1:40 left\n")
    bar.step(learner(task=6, step=1))
    assert capsys.readouterr().err == ""


def some_table():
    configs = [config_for("permuted-digits", f"{name}[lr=0.1]", tasks=2) for name in ("van", "er")]
    return LiveTable([config.label for config in configs], 2, quiet=False), configs


def test_a_table_of_many_runs_does_not_jump_and_says_what_is_shared_once():
    table, (van, er) = some_table()
    before = drawn(table.table())
    assert before[0].endswith("; all with lr=0.1")
    assert [line.split()[0] for line in before[1:]] == ["method", "van", "er"]
    table.event(Event(van, "task 2/2", done=0.5, accuracy=0.9))
    during = drawn(table.table())
    assert during[2].split() == ["van", "-", "0/2", "50", "%", "90.0"]
    row = some_row(label=van.label)
    record = RunRecord([[0.6]], seconds=1.0)
    table.outcome(Outcome(van, record), row)
    table.outcome(Outcome(replace(van, seed=1235), record), row)
    table.event(Event(er, "task 1/2", done=0.25))
    after = drawn(table.table())
    assert "60.00 ± 10.00" in after[2]
    assert {line.index("runs") for line in (before[1], during[1], after[1])} == {
        before[1].index("runs")
    }
    table.begin -= 90
    assert table.summary() == "2 of 4 runs, 1:30, about 1:10 left"


def test_many_runs_without_a_terminal_tell_a_line_a_minute(capsys):
    table, (van, _) = some_table()
    table.event(Event(van, "task 1/2", done=0.5))
    assert capsys.readouterr().err == ""
    table.begin -= 30
    table.last_time -= 61
    table.event(Event(van, "task 1/2", done=0.5))
    assert capsys.readouterr().err == "0 of 4 runs, 0:30, about 3:30 left\n"


MESSAGE = (
    "the run in /a/folder/with/a/long/name/that/is/longer/than/a/line/of/forty was stopped;"
    " to go on: mdmt run permuted-digits --method 'mdmt-r[lr=0.1]' --tasks 5, or begin anew"
)
WHOLE = (
    "/a/folder/with/a/long/name/that/is/longer/than/a/line/of/forty",
    "mdmt run permuted-digits --method 'mdmt-r[lr=0.1]' --tasks 5",
)


@pytest.mark.parametrize("columns", [80, 40])
def test_a_message_wraps_at_words_on_a_terminal(columns, monkeypatch):
    there, here = os.openpty()
    fcntl.ioctl(here, termios.TIOCSWINSZ, struct.pack("HHHH", 25, columns, 0, 0))
    with open(here, "w") as terminal, open(there, "rb", buffering=0) as screen:
        monkeypatch.setattr(sys, "stderr", terminal)
        progress.tell(MESSAGE)
        lines = screen.read(4096).decode().splitlines()
    assert " ".join(lines) == f"mdmt: {MESSAGE}"
    for line in lines:
        assert len(line) <= columns or any(part in line for part in WHOLE)
    for part in WHOLE:
        assert sum(part in line for line in lines) == 1
    assert len(lines) == {80: 3, 40: 5}[columns]


def test_a_message_in_a_file_is_one_line(capsys):
    progress.tell(MESSAGE)
    assert capsys.readouterr().err == f"mdmt: {MESSAGE}\n"
