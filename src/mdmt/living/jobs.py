"""Jobs of a server that learns: written to the disk before they are acknowledged.

A job is a folder MODEL/jobs/NUMBER with `job.json` (what to do, and its state) and, until it is
done, `delivery.npz`. After a crash the jobs that are not done are done. Each is done by a process
of its own, with the command line of mdmt, so that answers do not wait for it.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdmt.errors import Mistake
from mdmt.system.files import (
    JsonObject,
    make_folder,
    new_file,
    read_json,
    remove_file,
    write_json,
)

JOBS = "jobs"
JOB = "job.json"
DATA = "delivery.npz"
WAITING, RUNNING, DONE, FAILED = "waiting", "running", "done", "failed"
NOT_PROMOTED = 3  # the exit code of `mdmt learn` if the new version is not used
KEPT = 100  # jobs that are over and still shown


class Jobs:
    """The jobs of one model folder, done one after the other."""

    def __init__(self, folder: Path, more: list[str]) -> None:
        self.model = folder
        self.folder = folder / JOBS
        self.more = more  # options that every command gets, such as --backbone
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._child: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        """Do the jobs that are waiting, and those to come."""
        self._wake.set()
        self._thread.start()

    def stop(self) -> None:
        """Stop; a job that is running goes on at the next start."""
        self._ending.set()
        self._wake.set()
        child = self._child
        if child is not None:
            child.terminate()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def add(
        self, about: JsonObject, delivery: tuple[NDArray[Any], list[Any]] | None = None
    ) -> JsonObject:
        """Write a job to the disk; once this returns, it will be done."""
        with self._lock:
            number = max(self.numbers(), default=0) + 1
            place = self.folder / str(number)
            make_folder(place)  # a crash may have left it, without a job in it
            remove_file(place / DATA)
            if delivery is not None:
                content = io.BytesIO()
                np.savez(content, x=delivery[0], y=np.array(delivery[1]))
                with new_file(place / DATA) as file:
                    file.write(content.getvalue())
            job = {"job": number, "state": WAITING, **about}
            write_json(place / JOB, job)
        self._wake.set()
        return job

    def numbers(self) -> list[int]:
        """The numbers of all jobs, in order."""
        if not self.folder.is_dir():
            return []
        names = [path.name for path in self.folder.iterdir() if (path / JOB).is_file()]
        return sorted(int(name) for name in names if name.isdecimal())

    def read(self, number: int) -> JsonObject:
        """A job with its state."""
        if number not in self.numbers():
            raise Mistake(f"there is no job {number}")
        return read_json(self.folder / str(number) / JOB)

    # Doing them.

    def _work(self) -> None:
        while not self._ending.is_set():
            self._wake.wait()
            self._wake.clear()
            for number in self.numbers():
                if self._ending.is_set():
                    return
                if self.read(number)["state"] in (WAITING, RUNNING):
                    self._do(number)
            self._drop_old()

    def _do(self, number: int) -> None:
        place = self.folder / str(number)
        job = self.read(number)
        self._write(number, {**job, "state": RUNNING})
        command = [sys.executable, "-m", "mdmt", *self._command(job, place), *self.more]
        code, out, err = self._run(command)
        if self._ending.is_set():
            return  # the next start goes on with it
        if code in (0, NOT_PROMOTED):
            self._write(number, {**job, "state": DONE, "result": _result(out)})
        elif "was learned already" in err and job["do"] == "learn":
            # A crash came after it was learned and before it was noted.
            self._write(number, {**job, "state": DONE, "result": None})
        else:
            reason = (err.strip().splitlines() or [f"ended with code {code}"])[-1]
            self._write(number, {**job, "state": FAILED, "reason": reason.removeprefix("mdmt: ")})
        (place / DATA).unlink(missing_ok=True)

    def _run(self, command: list[str]) -> tuple[int | None, str, str]:
        """The exit code of a command and what it printed."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        try:
            # A list, so that no shell reads a name that a client chose.
            with subprocess.Popen(command, text=True, **pipes) as self._child:  # type: ignore[call-overload]  # noqa: S603
                out, err = self._child.communicate()
        except (OSError, ValueError) as error:  # such as a command line that is too long
            return None, "", str(error)
        code = self._child.returncode
        self._child = None
        return code, out, err

    def _command(self, job: JsonObject, place: Path) -> list[str]:
        model = str(self.model)
        if job["do"] == "learn":
            gate = job.get("max_forgetting")
            more = [] if gate is None else ["--max-forgetting", str(gate)]
            name = ["--name", str(job["name"])]
            return ["learn", model, str(place / DATA), *name, *more, "--json", "--quiet"]
        if job["do"] == "rollback":
            return ["rollback", model, "--to", str(job["to"])]
        flags = [f for c in job["classes"] for f in ("--class", str(c))]
        flags += [f for d in job["deliveries"] for f in ("--task", str(d))]
        return ["forget", model, *flags, "--yes", "--quiet"]

    def _write(self, number: int, job: JsonObject) -> None:
        write_json(self.folder / str(number) / JOB, job)

    def _drop_old(self) -> None:
        for number in self.numbers()[:-KEPT]:
            if self.read(number)["state"] in (DONE, FAILED):
                shutil.rmtree(self.folder / str(number))


def _result(out: str) -> Any:
    try:
        return json.loads(out)
    except ValueError:
        return out.strip()
