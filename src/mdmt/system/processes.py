"""Signals, child processes, and how a process ended. Nothing here loads torch.

A run is asked to stop by Ctrl-C, by SIGTERM, or by SIGHUP, which comes when a terminal is closed.
It then writes a checkpoint and ends; its children end with it. Where SIGHUP is ignored, as nohup
has it, it stays so.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import forkserver, parent_process, resource_tracker
from types import FrameType, ModuleType

REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # signals that ask a run to stop
Handler = Callable[[int, FrameType | None], None]


@dataclass
class StopRequest:
    """Whether a run was asked to stop.

    This is no threading.Event: a signal handler that interrupts another would block on its lock.
    """

    requested: bool = False


@contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Note requests to stop instead of obeying them; a second Ctrl-C interrupts at once.

    Outside the main thread, which alone receives signals, this does nothing.
    """
    stop = StopRequest()

    def note(number: int, _: FrameType | None) -> None:
        if stop.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.requested = True

    with _handled(note, REQUESTS):
        yield stop


@dataclass
class Interrupts:
    """Whether Ctrl-C came since the last check."""

    requested: bool = False

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C came."""
        if self.requested:
            self.requested = False
            raise KeyboardInterrupt


@contextmanager
def interrupts_deferred() -> Iterator[Interrupts]:
    """Note Ctrl-C inside the block; `check` what this yields wherever the work may be interrupted.

    It is also checked at the end of the block. A second Ctrl-C before that interrupts at once, so
    that work that hangs can be ended. Inside `interruptible`, other requests to stop are noted too.
    If somebody has replaced Python's own handler of Ctrl-C, and outside the main thread, this does
    nothing.
    """
    interrupts = Interrupts()

    def note(*_: object) -> None:
        if interrupts.requested:
            raise KeyboardInterrupt
        interrupts.requested = True

    usual = (signal.default_int_handler, _interrupt)
    try:
        with _handled(note, [number for number in REQUESTS if signal.getsignal(number) in usual]):
            yield interrupts
    finally:
        interrupts.check()


@contextmanager
def interruptible() -> Iterator[None]:
    """Let the first request to stop raise KeyboardInterrupt, as Ctrl-C does in Python.

    Later ones are ignored until the block ends, or the outermost one of several: they must not
    disturb how it ends. Requests that are ignored, as a script's background processes ignore
    Ctrl-C, stay so.
    """
    settled = (signal.SIG_IGN, _interrupt)
    numbers = [number for number in REQUESTS if signal.getsignal(number) not in settled]
    with _handled(_interrupt, numbers):
        yield


def _interrupt(*_: object) -> None:
    ignore_requests()
    raise KeyboardInterrupt


def ignore_requests() -> None:
    """Ignore requests to stop from now on: this process is ending."""
    for number in REQUESTS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def _handled(handler: Handler, numbers: Sequence[signal.Signals]) -> Iterator[None]:
    """Use a signal handler inside the block, then restore the previous ones."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heeded = [number for number in numbers if not _is_shielded(number)]
    before = {number: signal.signal(number, handler) for number in heeded}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous or signal.SIG_DFL)


def _is_shielded(number: signal.Signals) -> bool:
    """Whether a closed terminal is none of our business, as nohup has it."""
    return number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN


@dataclass(frozen=True)
class ChildEnd:
    """How a child process ended."""

    code: int  # its exit code, or minus the number of the signal that ended it
    stop_requested: bool


def can_fork() -> bool:
    """Whether this process can be forked safely: the child would lack torch's threads."""
    return "torch" not in sys.modules and hasattr(os, "fork")


def run_in_child(work: Callable[[], int]) -> ChildEnd:
    """Do some work in a forked process and wait for it; `work` returns the child's exit code.

    This process passes the first request to stop on to the child. The child stops if this process
    dies.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    # Where SIGCHLD is ignored, a child cannot be waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, REQUESTS)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        # Until the run itself handles signals, Ctrl-C is left to the parent, and others end it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if not _is_shielded(signal.SIGHUP):
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
        threading.Thread(target=_stop_when_closed, args=(reader,), daemon=True).start()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        sys.exit(work())
    os.close(reader)
    return _wait(child, mask)


def _wait(child: int, mask: set[int | signal.Signals]) -> ChildEnd:
    requests: list[int] = []

    def pass_on(number: int, _: object) -> None:
        requests.append(number)
        # A terminal sends a second Ctrl-C to the child itself, which then stops at once.
        # This handler may run after the child was waited for, since Python calls it with a delay.
        if len(requests) == 1:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)

    with _handled(pass_on, REQUESTS):
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    # A signal to all processes at once may end the child before this process has noticed its own.
    return ChildEnd(code, bool(requests) or -code in (signal.SIGTERM, signal.SIGHUP))


def _stop_when_closed(pipe: int) -> None:
    os.read(pipe, 1)  # nobody writes to it: this returns when the parent is gone
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def main_hidden() -> Iterator[None]:
    """Keep new processes from importing the program that starts them.

    Workers do not need it, and without `if __name__ == "__main__"` it would start over in each.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def start_fork_server() -> None:
    """Start the process that workers are forked from, shielded from requests to stop.

    A terminal sends them to all processes at once. It ends when this process does.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        with warnings.catch_warnings():  # if somebody killed the tracker, it is started again
            warnings.simplefilter("ignore")
            resource_tracker.ensure_running()  # before the block, since it unblocks what it finds
            signal.pthread_sigmask(signal.SIG_BLOCK, REQUESTS)
            forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def become_worker() -> None:
    """Leave Ctrl-C to the parent, which sends SIGTERM, and stop if the parent dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # the fork server blocks it
    threading.Thread(target=_stop_with_parent, daemon=True).start()


def _stop_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def ending(code: int) -> str:
    """How a process ended, by its exit code; minus a number is a signal.

    >>> ending(3), ending(-11), ending(-9)
    ('ended with exit code 3', 'was ended by SIGSEGV', 'was ended by SIGKILL (out of memory?)')
    """
    if code >= 0:
        return f"ended with exit code {code}"
    names = {number.value: number.name for number in signal.Signals}
    hint = " (out of memory?)" if code == -signal.SIGKILL else ""
    return f"was ended by {names.get(-code, f'signal {-code}')}{hint}"


def resuming_command(fresh: bool) -> str:
    """The command that continues an interrupted one; --fresh would start over again."""
    return "the same command without --fresh" if fresh else "the same command"
