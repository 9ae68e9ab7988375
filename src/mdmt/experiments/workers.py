"""Where runs are done, several at a time: what `sweep` asks of workers, and workers that are
processes of this machine.

A process and its parent share nothing but the run folder and a pipe, through which the process says
how far it is. Another kind of workers is another class with these methods: `cluster.py` has those
of a Ray cluster.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from mdmt.errors import summarise
from mdmt.learning.progress import progress_of
from mdmt.runs.config import RunConfig
from mdmt.runs.record import RunRecord
from mdmt.system.processes import become_worker, ending, start_fork_server

if TYPE_CHECKING:
    from mdmt.learner import Learner

PATIENCE = 10.0  # seconds that a stopped process has to leave its checkpoint
INTERVAL = 0.5  # seconds between two reports of progress


@dataclass(frozen=True)
class Outcome:
    """How a run ended: its record, or the reason why there is none."""

    config: RunConfig
    record: RunRecord | None
    reason: str = ""
    read: bool = False  # it was finished before


@dataclass(frozen=True)
class Event:
    """A run has started, is at some place (`task 3/5`), or warns of something."""

    config: RunConfig
    text: str
    kind: Literal["start", "progress", "warning"] = "progress"
    done: float = 0.0  # the share of the run that is over
    accuracy: float | None = None  # so far


class Workers(Protocol):
    """Does runs, at most `slots` at a time."""

    @property
    def slots(self) -> int: ...

    def start(self, config: RunConfig) -> None:
        """Begin a run; only while fewer than `slots` are going on."""

    def next(self) -> Event | Outcome:
        """Wait for what a run says next; its outcome is the last."""

    def stop(self) -> None:
        """End the runs that are going on; each leaves a checkpoint."""


@dataclass
class _Run:
    """A run that is going on in a process."""

    config: RunConfig
    process: BaseProcess
    card: str | None = None  # the graphics card it sees
    outcome: Outcome | None = None


class Processes:
    """Workers that are processes of this machine, a new one for each run: memory does not grow with
    their number.

    They are forked from a process that has loaded torch and done nothing else. Where the runs want
    a graphics card, each sees one card alone: that with the fewest runs.
    """

    def __init__(
        self,
        out: str | Path,
        count: int | Literal["auto"] = "auto",
        *,
        threads: int = 1,
        device: str = "cpu",
        fresh: bool = False,
        every: int | str | None = None,
    ) -> None:
        self.cards = visible_cards() if device == "cuda" else []
        self.slots = process_count(count, threads, len(self.cards) or None)
        self.arguments = (str(out), fresh, every)
        self.running: dict[Connection, _Run] = {}
        self.context = get_context("forkserver")
        self.context.set_forkserver_preload(["mdmt.experiments.run"])

    def start(self, config: RunConfig) -> None:
        """Begin a run in a process of its own."""
        start_fork_server()
        ours, theirs = self.context.Pipe(duplex=False)
        card = self._free_card()
        environment = {**os.environ, **({} if card is None else {"CUDA_VISIBLE_DEVICES": card})}
        process = self.context.Process(
            target=_work, args=(theirs, config, *self.arguments, environment), daemon=True
        )
        process.start()
        theirs.close()  # so that the pipe ends when the process does
        self.running[ours] = _Run(config, process, card)

    def _free_card(self) -> str | None:
        """The card with the fewest runs; None where no card is wanted."""
        busy = [run.card for run in self.running.values()]
        return min(self.cards, key=busy.count, default=None)

    def next(self) -> Event | Outcome:
        """Wait for a message of any process; the outcome of a run when its process has exited."""
        while True:
            pipe, *_ = connection.wait(list(self.running))
            assert isinstance(pipe, Connection)
            try:
                message = pipe.recv()
            except (EOFError, OSError):
                return self._close(pipe)
            if isinstance(message, Event):
                return message
            self.running[pipe].outcome = message

    def _close(self, pipe: Connection) -> Outcome:
        run = self.running.pop(pipe)
        run.process.join()
        code = run.process.exitcode or 0
        pipe.close()
        run.process.close()
        return run.outcome or Outcome(run.config, None, f"its process {ending(code)}")

    def stop(self) -> None:
        """End the processes: politely, then not."""
        for run in self.running.values():
            run.process.terminate()
        until = time.monotonic() + PATIENCE
        for pipe, run in self.running.items():
            run.process.join(max(0.0, until - time.monotonic()))
            if run.process.is_alive():
                run.process.kill()
                run.process.join()
            pipe.close()
        self.running.clear()


def visible_cards() -> list[str]:
    """The graphics cards that this process sees, as CUDA_VISIBLE_DEVICES names them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [card.strip() for card in given.split(",") if card.strip()]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def process_count(count: int | Literal["auto"], threads: int = 1, cards: int | None = None) -> int:
    """How many processes: with `auto`, as many as the cores have room for, and one a graphics card
    where they want one.
    """
    if count != "auto":
        return count
    if cards is not None:
        return cards
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return max(1, cores // threads)


def _work(
    pipe: Connection,
    config: RunConfig,
    out: str,
    fresh: bool,
    every: int | str | None,
    environment: dict[str, str],
) -> None:
    """Do a run in this process, which is a worker."""
    become_worker()
    os.environ.clear()
    os.environ.update(environment)  # the process it was forked from has an older one
    with suppress(
        BrokenPipeError
    ):  # where nobody listens any more, the run is still to leave its checkpoint
        pipe.send(do_run(config, out, pipe.send, fresh=fresh, every=every))


def do_run(
    config: RunConfig,
    out: str,
    send: Callable[[Event], object],
    *,
    fresh: bool = False,
    every: int | str | None = None,
) -> Outcome:
    """Do a run in this process, and send what happens on the way."""
    from mdmt.experiments.run import run

    reporter = _Reporter(send, config)
    try:
        record = run(
            config,
            out,
            fresh=fresh,
            every=every,
            on_step=reporter.step,
            on_image=reporter.image,
            warn=reporter.warn,
        )
    except Exception as error:
        if os.environ.get("MDMT_TRACEBACK"):
            traceback.print_exc()
        return Outcome(config, None, summarise(error))
    return Outcome(config, record)


class _Reporter:
    """Tells whoever started a run where it is."""

    def __init__(self, send: Callable[[Event], object], config: RunConfig) -> None:
        self.send = send
        self.config = config
        self.last_report = 0.0

    def step(self, learner: Learner) -> None:
        """After every step of learning."""
        if time.monotonic() - self.last_report >= INTERVAL:
            progress = progress_of(learner)
            self._report(progress.place, progress.done, progress.accuracy)

    def image(self, done: int, total: int) -> None:
        """After some images were decoded."""
        self._report(f"decoding images: {done:,} of {total:,}")

    def warn(self, text: str) -> None:
        """What a person should know."""
        self._send(Event(self.config, text, "warning"))

    def _report(self, text: str, done: float = 0.0, accuracy: float | None = None) -> None:
        now = time.monotonic()
        if now - self.last_report >= INTERVAL:
            self._send(Event(self.config, text, done=done, accuracy=accuracy))
            self.last_report = now

    def _send(self, event: Event) -> None:
        """Where nobody listens any more, the run is still to leave its checkpoint."""
        with suppress(BrokenPipeError):
            self.send(event)
