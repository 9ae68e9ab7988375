"""Workers, which do the runs: their interface, processes of this machine, and this process.

A process and its parent share only the run folder and a pipe, through which the process reports its
progress. `cluster.py` has workers of another kind, those of a Ray cluster.
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

from mdmt.errors import Stopped, summarise
from mdmt.learning.progress import progress_of
from mdmt.runs.config import RunConfig
from mdmt.runs.record import RunRecord
from mdmt.system.processes import become_worker, ending, main_hidden, start_fork_server

if TYPE_CHECKING:
    from mdmt.learner import Learner

PATIENCE = 10.0  # seconds that a stopped process has for writing its checkpoint
INTERVAL = 0.5  # seconds between two reports of progress


@dataclass(frozen=True)
class Outcome:
    """The result of a run: its record, or the reason why it failed."""

    config: RunConfig
    record: RunRecord | None
    reason: str = ""
    read: bool = False  # whether the run was finished before
    stopped: bool = False  # whether it was asked to stop, and can go on later


@dataclass(frozen=True)
class Event:
    """A run has started, has reached a position (`task 3/5`), or gives a warning."""

    config: RunConfig
    text: str
    kind: Literal["start", "progress", "warning"] = "progress"
    done: float = 0.0  # the share of the run that is done
    accuracy: float | None = None  # so far


class Workers(Protocol):
    """Does runs, at most `slots` at a time."""

    @property
    def slots(self) -> int: ...

    def start(self, config: RunConfig) -> None:
        """Begin a run; fewer than `slots` must be in progress."""

    def next(self) -> Event | Outcome:
        """Wait for the next message of any run; the last message of a run is its outcome."""

    def stop(self) -> None:
        """Stop the runs in progress; each writes a checkpoint."""


@dataclass
class _Run:
    """A run in progress, and its process."""

    config: RunConfig
    process: BaseProcess
    card: str | None = None  # the graphics card it sees
    outcome: Outcome | None = None


class Processes:
    """Workers that are processes of this machine; each run gets a new one, which frees its memory.

    They are forked from a process that has loaded torch and done nothing else. If the runs use
    graphics cards, each run sees only one card: that with the fewest runs.
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
        """Begin a run in a new process."""
        ours, theirs = self.context.Pipe(duplex=False)
        card = self._free_card()
        environment = {**os.environ, **({} if card is None else {"CUDA_VISIBLE_DEVICES": card})}
        process = self.context.Process(
            target=_work, args=(theirs, config, *self.arguments, environment), daemon=True
        )
        with main_hidden():
            start_fork_server()
            process.start()
        theirs.close()  # so that the pipe ends when the process does
        self.running[ours] = _Run(config, process, card)

    def _free_card(self) -> str | None:
        """The card with the fewest runs, or None if the runs use no card."""
        busy = [run.card for run in self.running.values()]
        return min(self.cards, key=busy.count, default=None)

    def next(self) -> Event | Outcome:
        """Wait for a message of any process, or the outcome of a run whose process has exited."""
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
        """Stop the processes; those that do not end in time are killed."""
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


class ThisProcess:
    """The process itself as the only worker: for streams that no other process can load.

    `report` gets the events of a run while it is going on.
    """

    slots = 1

    def __init__(
        self,
        out: str | Path,
        report: Callable[[Event], None],
        *,
        fresh: bool = False,
        every: int | str | None = None,
    ) -> None:
        self.out = str(out)
        self.report = report
        self.fresh, self.every = fresh, every
        self.queue: list[RunConfig] = []

    def start(self, config: RunConfig) -> None:
        """Note a run; `next` does it."""
        self.queue.append(config)

    def next(self) -> Outcome:
        """Do the run. If it is asked to stop, it leaves a checkpoint, and nothing else is done."""
        import torch

        threads = torch.get_num_threads()  # a run sets its own number
        config = self.queue.pop()
        try:
            outcome = do_run(config, self.out, self.report, fresh=self.fresh, every=self.every)
        finally:
            torch.set_num_threads(threads)
        if outcome.stopped:
            raise KeyboardInterrupt
        return outcome

    def stop(self) -> None:
        """Nothing is going on between two runs."""


def visible_cards() -> list[str]:
    """The graphics cards that this process sees, as CUDA_VISIBLE_DEVICES names them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [card.strip() for card in given.split(",") if card.strip()]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def process_count(count: int | Literal["auto"], threads: int = 1, cards: int | None = None) -> int:
    """The number of processes; `auto` is one per graphics card, or as many as fit on the cores."""
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
    os.environ.update(environment)  # the fork server's environment may be outdated
    with suppress(BrokenPipeError):  # nobody may listen any more
        pipe.send(do_run(config, out, pipe.send, fresh=fresh, every=every))


def do_run(
    config: RunConfig,
    out: str,
    send: Callable[[Event], object],
    *,
    fresh: bool = False,
    every: int | str | None = None,
) -> Outcome:
    """Do a run in this process and send events of its progress."""
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
        return Outcome(config, None, summarise(error), stopped=isinstance(error, Stopped))
    return Outcome(config, record)


class _Reporter:
    """Sends the progress of a run to the process that started it."""

    def __init__(self, send: Callable[[Event], object], config: RunConfig) -> None:
        self.send = send
        self.config = config
        self.last_report = 0.0

    def step(self, learner: Learner) -> None:
        """Report the progress after a step of learning."""
        if time.monotonic() - self.last_report >= INTERVAL:
            progress = progress_of(learner)
            self._report(progress.place, progress.done, progress.accuracy)

    def image(self, done: int, total: int) -> None:
        """Report how many images are decoded."""
        self._report(f"decoding images: {done:,} of {total:,}")

    def warn(self, text: str) -> None:
        """Report a warning for the user."""
        self._send(Event(self.config, text, "warning"))

    def _report(self, text: str, done: float = 0.0, accuracy: float | None = None) -> None:
        now = time.monotonic()
        if now - self.last_report >= INTERVAL:
            self._send(Event(self.config, text, done=done, accuracy=accuracy))
            self.last_report = now

    def _send(self, event: Event) -> None:
        """Send an event; if nobody listens any more, the run goes on to write its checkpoint."""
        with suppress(BrokenPipeError):
            self.send(event)
