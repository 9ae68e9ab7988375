"""Real processes: started or forked, found, waited for."""

import os
import signal
import subprocess
import sys
import time
import traceback
from contextlib import contextmanager
from pathlib import Path

import torch

MDMT = [sys.executable, "-m", "mdmt"]


@contextmanager
def started(command, heeds_interrupts=True, **more):
    """A process that is dead afterwards, whatever happened; what a script starts in the background
    heeds no SIGINT.
    """

    def set_up():
        signal.signal(
            signal.SIGINT, signal.default_int_handler if heeds_interrupts else signal.SIG_IGN
        )

    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, preexec_fn=set_up, **pipes, **more) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def child(work):
    """Run some work in a forked child: yields its process number, then waits for it."""
    pid = os.fork()
    if pid == 0:
        try:
            torch.set_num_threads(1)
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    ended = []
    try:
        yield pid, ended
    finally:
        ended.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def offspring(pid):
    """The children of a process."""
    try:
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    except (FileNotFoundError, ProcessLookupError):
        return []


def soon(condition, seconds=60):
    """What a condition gives as soon as it is not false; False when it never is."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if value := condition():
            return value
        time.sleep(0.02)
    return False


def gone(pids):
    """Whether these processes end soon."""
    return soon(lambda: not any(alive(pid) for pid in pids), 20)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
