"""How a run in the foreground ends: by itself, by a request to stop, by a signal that kills it."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest

import mdmt
from mdmt.cli.app import main
from mdmt.cli.process import Commands
from support.processes import MDMT, gone, offspring, soon, started

RUN = [
    "run",
    "--method",
    "er",
    "--tasks",
    "2",
    "--set",
    "reference_batch=8",
    "--checkpoint-every",
    "100",
]
pytestmark = pytest.mark.xdist_group("processes")  # on one worker, since they share a run


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The folder of the run when nothing happens to it."""
    out = tmp_path_factory.mktemp("straight")
    assert main([*RUN, "--out", str(out), "--quiet"]) == 0
    return out


def weights(out):
    (path,) = out.glob("*/*/*/*/record.json")
    return json.loads(path.read_text())["weights_sha256"]


def checkpoints(out):
    return list(out.glob("*/*/*/*/checkpoint/state.json"))


def working(process, out):
    """The process that does the run, as soon as it has left a checkpoint."""
    assert soon(lambda: checkpoints(out))
    (child,) = offspring(process.pid)
    return child


def goes_on(command, out, straight):
    """Whether the same command goes on from the checkpoint to the weights of an undisturbed run."""
    (state,) = checkpoints(out)
    assert json.loads(state.read_text())["state"]["record"]["steps"] > 0
    assert main([*command, "--quiet"]) == 0
    return weights(out) == weights(straight)


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (signal.SIGSEGV, "SIGSEGV"),
        (signal.SIGABRT, "SIGABRT"),
        (signal.SIGKILL, "SIGKILL (out of memory?)"),
    ],
)
def test_a_deadly_signal_is_named_and_the_same_command_goes_on(number, name, straight, tmp_path):
    command = [*RUN, "--out", str(tmp_path)]
    with started([*MDMT, *command, "--json"]) as process:
        os.kill(working(process, tmp_path), number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert out == ""
    assert (
        err == f"mdmt: the process was ended by {name}; the same command goes on from the last"
        " checkpoint\n"
    )
    assert goes_on(command, tmp_path, straight)


def test_fresh_would_start_over_once_more(tmp_path):
    with started([*MDMT, *RUN, "--out", str(tmp_path), "--fresh", "--quiet"]) as process:
        os.kill(working(process, tmp_path), signal.SIGSEGV)
        _, err = process.communicate(timeout=60)
    assert "; the same command without --fresh goes on from the last checkpoint\n" in err


def test_a_rerun_that_dies_is_told_too(straight):
    with started([*MDMT, "rerun", str(straight)]) as process:
        assert "task 1/2" in process.stderr.readline()
        (child,) = offspring(process.pid)
        os.kill(child, signal.SIGABRT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGABRT
    assert err.endswith("mdmt: the process was ended by SIGABRT\n")


@pytest.mark.parametrize(
    ("number", "to"),
    [
        (signal.SIGINT, "the parent"),
        (signal.SIGTERM, "the parent"),
        (signal.SIGHUP, "the parent"),
        (signal.SIGINT, "both"),
        (signal.SIGHUP, "both"),
    ],
)
def test_a_request_to_stop_leaves_a_checkpoint(number, to, straight, tmp_path):
    command = [*RUN, "--out", str(tmp_path)]
    with started([*MDMT, *command, "--quiet"], start_new_session=True) as process:
        child = working(process, tmp_path)
        if to == "both":
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert re.fullmatch(
        r"mdmt: stopped at task \d+, step \d+; the same command goes on from there \(.*\)\n", err
    )
    assert gone([child])
    assert goes_on(command, tmp_path, straight)


@contextmanager
def importing(name, command, folder):
    """A command that is importing a module, which says so and never ends."""
    (folder / f"{name}.py").write_text(
        "import os, signal\nos.write(1, b'.')\nwhile True:\n    signal.pause()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    with started([*MDMT, *command], start_new_session=True, env=environment) as process:
        assert process.stdout.read(1) == "."
        yield process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    ("command", "how"),
    [
        (RUN, "goes on from the last checkpoint"),  # in a child process
        (["compare", "--methods", "er"], "begins again"),
        (["evaluate", "model"], "begins again"),
    ],
    ids=lambda part: part[0] if isinstance(part, list) else "",
)
def test_a_request_to_stop_while_torch_is_loaded_is_one_line(command, how, number, tmp_path):
    """Sent to all processes, as a terminal does."""
    with importing("torch", command, tmp_path) as process:
        os.killpg(process.pid, number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == f"mdmt: interrupted; the same command {how}\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_stop_in_the_first_imports_is_one_line(number, tmp_path):
    with importing("typer", RUN, tmp_path) as process:
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "mdmt: interrupted; the same command begins again\n"


def test_a_request_to_stop_while_the_command_line_is_read_is_one_line(monkeypatch, capsys):
    def parse_args(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Commands, "parse_args", parse_args)
    assert main(["list", "methods"]) == 130
    assert capsys.readouterr().err == "mdmt: interrupted; the same command begins again\n"


def test_a_request_to_stop_a_run_that_has_ended_changes_nothing(tmp_path):
    (tmp_path / "late.py").write_text(
        "import atexit, mdmt, os, signal\n"
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGTERM))\n"
        "class Late(mdmt.VAN):\n    pass\n"
    )
    command = [*MDMT, "run", "--tasks", "1", "--subset", "20", "--method", "late:Late", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["method"] == "late:Late"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_stop_a_command_without_runs_is_one_line(number, tmp_path):
    """Whoever asks for it, and however often: it waits for its input here."""
    os.mkfifo(tmp_path / "list")
    model = mdmt.LivingModel(tmp_path / "model")
    model.learn((np.eye(8, dtype=np.float32), ["a", "b"] * 4), "first", memory=20_000, holdout=0)
    command = ["forget", str(tmp_path / "model"), "--examples", str(tmp_path / "list"), "--yes"]
    with started([*MDMT, *command]) as process:
        with open(tmp_path / "list", "w"):  # opens as soon as the command reads
            process.send_signal(number)
            assert soon(lambda: process.poll() is not None)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "mdmt: interrupted; the same command begins again\n"


def test_a_closed_terminal_does_not_end_what_nohup_started(straight, tmp_path):
    command = [*RUN, "--out", str(tmp_path)]
    with started(
        ["nohup", *MDMT, *command, "--quiet"], start_new_session=True, stdin=subprocess.DEVNULL
    ) as process:
        working(process, tmp_path)
        os.killpg(process.pid, signal.SIGHUP)
        process.communicate(timeout=120)
    assert process.returncode == 0
    assert weights(tmp_path) == weights(straight)


def test_output_that_nobody_reads_ends_quietly(straight):
    """As in `mdmt list methods | head -1`."""
    for command in (
        ["list", "methods"],
        ["list", "benchmarks", "--json"],
        ["runs", "list", straight],
    ):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(
            [*MDMT, *command], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
        )
        os.close(writer)
        assert done.returncode in (1, 128 + signal.SIGPIPE)
        assert done.stderr == ""


def test_closed_output_is_no_file_of_the_run(straight, tmp_path):
    command = [*MDMT, *RUN, "--out", str(tmp_path)]
    done = subprocess.run(["sh", "-c", '"$0" "$@" <&- >&- 2>&-', *command], check=False)
    assert done.returncode == 0
    assert weights(tmp_path) == weights(straight)


def test_nothing_works_on_when_the_parent_is_killed(straight, tmp_path):
    command = [*RUN, "--out", str(tmp_path)]
    with started([*MDMT, *command, "--quiet"]) as process:
        child = working(process, tmp_path)
        process.kill()
        assert gone([child])
        assert process.stderr.read().startswith("mdmt: stopped at task ")
    assert goes_on(command, tmp_path, straight)


def test_an_interrupt_of_several_seeds_stops_their_workers(tmp_path):
    command = ["run", "--method", "gem", "--seeds", "2", "--workers", "2", "--out", str(tmp_path)]
    with started([*MDMT, *command], start_new_session=True) as process:
        for _ in range(2):
            assert "started" in process.stderr.readline()
        (child,) = offspring(process.pid)
        servers = offspring(child)
        workers = [worker for server in servers for worker in offspring(server)]
        assert len(workers) == 2
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "mdmt: interrupted; the same command goes on from there\n"
    assert gone([child, *servers, *workers])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["run", "--tasks", "1", "--method", "van", "--json"], 0),
        (["run", "--tasks", "0"], 2),
        (["rerun", "no-such"], 2),
    ],
)
def test_exit_codes_and_output_pass_through(arguments, code, tmp_path):
    done = subprocess.run(
        [*MDMT, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == code
    if code == 0:
        assert json.loads(done.stdout)["seeds"] == [1234]
        assert done.stderr == ""
    else:
        assert done.stdout == ""
        assert done.stderr.startswith("mdmt: ")
        assert done.stderr.count("\n") == 1


def test_a_bug_keeps_its_traceback_and_exit_code_1(tmp_path):
    (tmp_path / "broken.py").write_text(
        "import mdmt\n"
        "class Broken(mdmt.Method):\n"
        "    def gradient(self, batch):\n"
        "        raise RuntimeError('no such thing')\n"
    )
    command = [*MDMT, "run", "--tasks", "1", "--method", "broken:Broken", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("RuntimeError: no such thing") == 1


def test_nothing_is_forked_where_torch_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked"))
    assert main(["run", "--tasks", "1", "--method", "van", "--quiet", "--out", str(tmp_path)]) == 0


FLOOD = """
import os, signal
from mdmt.system.processes import stop_request

with stop_request():
    flood = os.fork()
    if flood == 0:
        for _ in range(100_000):
            os.kill(os.getppid(), signal.SIGTERM)
        os._exit(0)
    while os.waitpid(flood, os.WNOHANG) == (0, 0):
        pass
"""


def test_requests_to_stop_that_meet_do_not_block_each_other():
    """A signal may come while the handler of another one is at work: after Ctrl-C, the parent
    passes it on too.
    """
    done = subprocess.run(
        [sys.executable, "-c", FLOOD], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
