"""Many runs at once: each in a process of its own, so that memory does not grow with their number.

A worker and this process share nothing but the run's folder and a pipe, through which the worker says how far it is.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, forkserver, get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

from mdmt.errors import ending, summarise
from mdmt.experiments.config import RunConfig, folder_of

PATIENCE = 10.0  # seconds that a stopped worker has to leave what it wants to leave
EVERY = 0.5  # seconds between two words of a worker


@dataclass(frozen=True)
class Outcome:
    """How a run ended: its record, or the reason why there is none."""

    config: RunConfig
    record: dict[str, Any] | None
    reason: str = ""
    read: bool = False  # it was finished before


@dataclass(frozen=True)
class Event:
    """A run has started, says where it is (`task 3/5`), or tells what a person should know."""

    config: RunConfig
    text: str
    kind: Literal["started", "at", "told"] = "at"


@dataclass
class _Worker:
    """A process that does one run, for all the configs that ask for it."""

    process: BaseProcess
    pipe: Connection
    configs: list[RunConfig]
    record: dict[str, Any] | None = None
    reason: str = ""


def sweep(
    configs: Iterable[RunConfig],
    out: str | Path,
    workers: int | Literal["auto"] = "auto",
    on_event: Callable[[Event], None] | None = None,
    *,
    fresh: bool = False,
    every: int | str | None = None,
) -> Generator[Outcome, None, None]:
    """Do all runs and give each outcome as it comes; finished runs are read first, unless `fresh`.

    `every` is the number of steps or the time between checkpoints. A run that fails does not stop the others. Whatever ends
    the loop early (Ctrl-C, `break`) stops the workers.
    """
    from mdmt.experiments.resolve import check_there
    from mdmt.experiments.store import RunFolder

    tell = on_event or (lambda event: None)
    waiting: dict[Path, list[RunConfig]] = {}  # two variants may name the same run
    for config in configs:
        waiting.setdefault(folder_of(config, out), []).append(config)
    if not fresh:
        done = {folder: record for folder in waiting if (record := RunFolder(folder).finished_record) is not None}
        for folder, record in done.items():
            yield from (Outcome(config, record, read=True) for config in waiting.pop(folder))
    todo = list(waiting.values())
    for config, *_ in todo:
        check_there(config)  # here, since every worker would fail of it
    slots = min(count(workers, todo[0][0].threads), len(todo)) if todo else 0
    running: list[_Worker] = []
    try:
        with _terminable():
            while todo or running:
                while todo and len(running) < slots:
                    running.append(_start(todo.pop(0), out, fresh, every))
                    tell(Event(running[-1].configs[0], "started", "started"))
                ready = connection.wait([worker.pipe for worker in running])
                for worker in [worker for worker in running if worker.pipe in ready]:
                    if _listen(worker, tell):
                        continue
                    running.remove(worker)
                    yield from (Outcome(config, worker.record, worker.reason) for config in worker.configs)
    finally:
        _stop(running)


def count(workers: int | Literal["auto"], threads: int = 1) -> int:
    """The number of worker processes: with `auto`, as many as the cores have room for."""
    if workers != "auto":
        return workers
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // threads)


def _start(configs: list[RunConfig], out: str | Path, fresh: bool, every: int | str | None) -> _Worker:
    context = get_context("forkserver")  # a worker is forked from a process that has loaded torch and done nothing else
    context.set_forkserver_preload(["mdmt.experiments.run"])
    _serve()
    ours, theirs = context.Pipe(duplex=False)
    asked = (theirs, configs[0], str(out), fresh, every, dict(os.environ))
    process = context.Process(target=_work, args=asked, daemon=True)
    process.start()
    theirs.close()  # so that the pipe ends when the worker does
    return _Worker(process, ours, configs)


def _serve() -> None:
    """Start the process that workers are forked from, deaf to Ctrl-C while it loads: it ends when this one does."""
    resource_tracker.ensure_running()  # first, since it unblocks what is blocked
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _listen(worker: _Worker, tell: Callable[[Event], None]) -> bool:
    """Hear one word of a worker; False when it was the last."""
    try:
        kind, content = worker.pipe.recv()
    except (EOFError, OSError):
        worker.process.join()
        if worker.record is None and not worker.reason:
            worker.reason = f"its process {ending(worker.process.exitcode or 0)}"
        worker.pipe.close()
        worker.process.close()
        return False
    if kind in ("at", "told"):
        tell(Event(worker.configs[0], content, kind))
    elif kind == "record":
        worker.record = content
    else:
        worker.reason = content
    return True


def _stop(running: list[_Worker]) -> None:
    """End the workers: politely, then not."""
    for worker in running:
        worker.process.terminate()
    until = time.monotonic() + PATIENCE
    for worker in running:
        worker.process.join(max(0.0, until - time.monotonic()))
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.pipe.close()


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end this process as Ctrl-C does, so that no worker is left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise KeyboardInterrupt  # raised here: SIGINT itself is ignored in what a script started in the background

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _work(
    pipe: Connection, config: RunConfig, out: str, fresh: bool, every: int | str | None, environment: dict[str, str]
) -> None:
    """What a worker does. Ctrl-C is its parent's affair, which sends SIGTERM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.clear()
    os.environ.update(environment)  # the process it was forked from has an older one
    try:
        from mdmt.experiments.run import run

        teller = _Teller(pipe)
        record = run(
            config, out, fresh=fresh, every=every,
            on_step=teller.step, on_image=teller.image, tell=lambda line: _say(pipe, "told", line),
        )  # fmt: skip
        _say(pipe, "record", record)
    except Exception as error:
        if os.environ.get("MDMT_TRACEBACK"):
            traceback.print_exc()
        _say(pipe, "failed", summarise(error))


def _say(pipe: Connection, kind: str, content: Any) -> None:
    with suppress(BrokenPipeError):  # nobody listens any more: the run is still to leave its checkpoint
        pipe.send((kind, content))


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


class _Teller:
    """Says now and then where a run is."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe, self.last = pipe, 0.0

    def step(self, learner: Any) -> None:
        """After every step of learning."""
        self._say(f"task {learner.current + 1}/{learner.recorder.stream_length}")

    def image(self, done: int, total: int) -> None:
        """After some images were decoded."""
        self._say(f"decoding images: {done:,} of {total:,}")

    def _say(self, text: str) -> None:
        now = time.monotonic()
        if now - self.last >= EVERY:
            _say(self.pipe, "at", text)
            self.last = now
