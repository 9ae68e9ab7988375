"""How a command ends: its exit code, and its death by a signal told in one line."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import typer

import mdmt.ranks as ranks
from mdmt.cli.progress import tell
from mdmt.errors import EXPECTED, RankLost, Stopped, ending, summarise

HEAD_START = 3.0  # seconds that other ranks leave the first one to say what is wrong
INTERRUPTED = 130  # the exit code of a shell for what Ctrl-C has ended
REQUESTS = (signal.SIGINT, signal.SIGTERM)


def exit_code(work: Callable[[], Any]) -> int:
    """Do some work; a person's mistake or a stop is one line on stderr, a bug keeps its
    traceback.
    """
    try:
        return work() or 0
    except typer.Exit as end:
        return end.exit_code
    except (KeyboardInterrupt, typer.Abort):
        tell("interrupted")
        return INTERRUPTED
    except Exception as error:
        if os.environ.get("MDMT_TRACEBACK"):
            raise
        if isinstance(error, Stopped):
            tell(str(error))
            return INTERRUPTED
        if hasattr(error, "format_message"):  # typer's own
            _tell_mistake(_usage(error))
            return 2
        if isinstance(error, RankLost):
            tell(str(error), from_any_rank=True)
            return 2
        if isinstance(error, EXPECTED):
            _tell_mistake(summarise(error))
            return 2
        raise


def _tell_mistake(message: str) -> None:
    """One line, of several ranks from the first: torchrun ends it as soon as another fails, so that
    those wait a little.
    """
    tell(message)
    if ranks.is_follower():
        time.sleep(HEAD_START)


def _usage(error: Any) -> str:
    """What typer says of a mistake; an unknown command with those that there are."""
    message: str = error.format_message()
    unknown = re.match("No such command '[^']*'", message)
    if unknown:
        return f"{unknown[0]}; the commands are {', '.join(error.ctx.command.commands)}"
    return message or "see mdmt --help"


def in_child(work: Callable[[], None], advice: str = "") -> None:
    """Do some work in a forked process, so that somebody is left to say by which signal it was
    ended.

    Nothing is forked where torch is loaded already, whose threads would be missing in the child.
    `advice` says how to go on. This process exits as the child did, or with 128 + the signal.
    """
    if "torch" in sys.modules or not hasattr(os, "fork"):
        work()
        return
    sys.stdout.flush()
    sys.stderr.flush()
    # Where it is ignored, a child cannot be waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, REQUESTS)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        # The parent's affair until the run itself heeds it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=_end_with_parent, args=(reader,), daemon=True).start()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        sys.exit(exit_code(work))
    os.close(reader)
    raise typer.Exit(_wait(child, mask, advice))


def _wait(child: int, mask: set[int | signal.Signals], advice: str) -> int:
    """Wait for the child, pass a request to stop on to it, and give the exit code."""
    requests: list[int] = []

    def pass_on(number: int, _: object) -> None:
        requests.append(number)
        if (
            len(requests) == 1
        ):  # a terminal sends a second Ctrl-C to the child itself, which then stops at once
            os.kill(child, signal.SIGTERM)

    before = {number: signal.signal(number, pass_on) for number in REQUESTS}
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
    if code >= 0:
        return code
    if requests and code == -signal.SIGTERM:  # before the run could leave a checkpoint
        tell(f"interrupted{advice}")
        return INTERRUPTED
    tell(f"the process {ending(code)}{advice}", from_any_rank=True)
    return 128 - code


def _end_with_parent(pipe: int) -> None:
    os.read(pipe, 1)  # nothing is ever written: it returns when the parent is gone
    os.kill(os.getpid(), signal.SIGTERM)
