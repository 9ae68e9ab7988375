"""The machine itself: its clock, its memory, the terminal and the pipe behind the output."""

import os
import re
import resource
import signal
import subprocess
import time
from datetime import datetime, timedelta

import numpy as np
import pytest
import safetensors.numpy

import mdmt.experiments.run
import mdmt.living.lessons as lessons
from faults.work import DELIVERIES, contents, learn, living
from mdmt.cli.app import main
from mdmt.cli.process import exit_code
from mdmt.errors import OUT_OF_MEMORY
from mdmt.learner import Learner
from mdmt.runs.config import folder_of
from mdmt.runs.step_log import Step, StepLog
from mdmt.system.tensors import decode
from support.processes import MDMT, child, soon, started
from support.run_folders import leave
from support.short_runs import config_of, done, essence, small

# The clock.


class Clock:
    """The time of day, which jumps back by an hour at every reading."""

    def __init__(self):
        self.readings = 0

    @property
    def behind(self):
        self.readings += 1
        return timedelta(hours=self.readings)

    def time(self):
        return now_of_day() - self.behind.total_seconds()

    def now(self, zone=None):
        return datetime.now(zone) - self.behind


now_of_day = time.time


def test_a_clock_that_goes_backwards_changes_nothing_of_a_run(monkeypatch, tmp_path):
    monkeypatch.setattr(mdmt.experiments.run, "stream_for", small)
    config = config_of("er", "mlp")
    straight = done(config, tmp_path / "straight")
    clock = Clock()
    monkeypatch.setattr(time, "time", clock.time)

    def on_step(learner):
        saved = folder_of(config, tmp_path / "out") / "checkpoint" / "state.json"
        hour = 3600 * learner.record.steps
        if saved.exists():  # so that the next file is older than the one before it
            os.utime(saved, (now_of_day() - hour, now_of_day() - hour))
        assert time.time() <= now_of_day()

    record = done(config, tmp_path / "out", every=1, on_step=on_step)
    assert clock.readings >= 3
    assert essence(record) == essence(straight)
    assert 0 <= record["seconds"] < 60


def test_a_clock_that_goes_backwards_leaves_versions_in_their_order(monkeypatch, tmp_path):
    """They have numbers: a date is only for people."""
    monkeypatch.setattr(lessons, "datetime", Clock())
    folder = tmp_path / "birds"
    for number in range(3):
        learn(folder, number)
    model = living(folder)
    created = [version.created for version in model.versions]
    assert created != sorted(created)
    assert [version.number for version in model.versions] == [1, 2, 3]
    assert model.version == 3
    assert model.rollback() == 2
    assert model.prune(1) == [1]
    assert model.verify() == {}


# Memory.


def limited(work, spare):
    """The exit code of work in a child that gets no more than `spare` bytes of memory."""

    def in_child():
        with open("/proc/self/statm") as file:
            size = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + spare, size + spare))
        os._exit(exit_code(work))

    with child(in_child) as (_, ended):
        pass
    return ended[0]


def test_a_lack_of_memory_is_not_taken_for_a_damaged_file():
    def load(_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 GB")

    class PanicException(BaseException):  # of safetensors, which does not export it
        pass

    def panic(_):
        raise PanicException("PyObject pointer is null")

    data = safetensors.numpy.save({"x": np.zeros(1)})
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        decode(data, load)
    with pytest.raises(MemoryError):
        decode(data, panic)


def test_a_delivery_that_is_short_of_memory_is_one_line_and_loses_nothing(tmp_path, capfd):
    folder = tmp_path / "birds"
    learn(folder, 0)
    before = contents(folder)
    data, _ = DELIVERIES[1]
    large = np.repeat(data[0], 2**17, axis=0), data[1] * 2**17  # 48 MB
    capfd.readouterr()
    assert limited(lambda: living(folder).learn(large, "large") and 0, 2**24) == 2
    assert capfd.readouterr().err == f"mdmt: {OUT_OF_MEMORY}\n"
    assert contents(folder) == before
    assert learn(folder, 1).version == 2


def test_a_command_that_cannot_load_torch_for_lack_of_memory_is_one_line(tmp_path):
    limit = 400 * 2**20
    done_ = subprocess.run(
        [*MDMT, "run", "--out", str(tmp_path)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done_.returncode, done_.stdout, done_.stderr) == (2, "", f"mdmt: {OUT_OF_MEMORY}\n")


# The terminal, and the reader of the output.

RUN = ["run", "--method", "er", "--tasks", "2", "--set", "reference_batch=8"]


def test_a_terminal_that_is_lost_leaves_a_checkpoint(tmp_path):
    """A real one: when it goes, SIGHUP comes, and whatever is written to it fails."""
    there, here = os.openpty()
    command = [*RUN, "--checkpoint-every", "20", "--out", str(tmp_path)]

    def own_terminal():
        os.setsid()
        import fcntl
        import termios

        fcntl.ioctl(here, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        [*MDMT, *command], stdin=here, stdout=here, stderr=here, preexec_fn=own_terminal
    )
    os.close(here)
    try:
        assert soon(lambda: list(tmp_path.glob("*/*/*/*/checkpoint/state.json")))
        os.close(there)
        assert process.wait(timeout=60) == 130
    finally:
        process.kill()
        process.wait()
    (folder,) = tmp_path.glob("*/*/*/*/checkpoint")
    assert Learner.load(folder).record.steps > 0
    assert not (folder.parent / "failed.json").exists()
    assert main([*command, "--quiet"]) == 0


def test_a_reader_that_goes_away_while_the_pipe_is_full_ends_the_command_quietly(tmp_path):
    """As `mdmt runs show RUN --csv | head -1`, of more than a pipe holds."""
    folder = leave(tmp_path)
    steps = StepLog(Step(1, number, 0.5, 0.25, 0.125, 2.0) for number in range(1, 10_000))
    (folder / "steps.csv").write_text(steps.to_csv())
    with started([*MDMT, "runs", "show", str(folder), "--csv"]) as process:
        assert process.stdout.read(10)
        process.stdout.close()
        err = process.stderr.read()
        # 0: Python takes a write that was cut off for a whole one.
        assert process.wait(timeout=60) in (0, 1, 128 + signal.SIGPIPE)
    assert err == ""


def test_an_output_without_space_is_one_line():
    with open("/dev/full", "w") as full:
        done_ = subprocess.run(
            [*MDMT, "list", "methods"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done_.returncode == 2
    assert re.fullmatch(r"mdmt: .*No space left on device\n", done_.stderr)
