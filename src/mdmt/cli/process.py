"""How a command ends: its exit code, and one line on stderr for a mistake, stop or signal."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import typer
from typer.core import TyperGroup

import mdmt.ranks as ranks
from mdmt.cli.progress import tell
from mdmt.errors import EXPECTED, RankLost, Stopped, is_out_of_memory, summarise
from mdmt.system.processes import can_fork, ending, run_in_child

HEAD_START = 3.0  # seconds that the other ranks wait while the first one reports a mistake
INTERRUPTED = 130  # the exit code that shells use after Ctrl-C
BEGINS_AGAIN = "interrupted; the same command begins again"


def exit_code(work: Callable[[], Any]) -> int:
    """Do some work and return its exit code; a mistake or a stop is one line on stderr.

    A bug of mdmt keeps its traceback.
    """
    try:
        code: int = work() or 0
        _flush_output()
        return code
    except typer.Exit as end:
        return end.exit_code
    except (KeyboardInterrupt, typer.Abort):
        tell(BEGINS_AGAIN)
        return INTERRUPTED
    except BrokenPipeError:
        return drop_output()
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
        if isinstance(error, EXPECTED) or is_out_of_memory(error):
            _tell_mistake(summarise(error))
            return 2
        raise


class Commands(TyperGroup):
    """The commands; what typer would end in its own way ends in ours."""

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        try:
            return super().make_context(*arguments, **more)
        except KeyboardInterrupt:
            raise Stopped(BEGINS_AGAIN) from None

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Stopped(BEGINS_AGAIN) from None
        except BrokenPipeError:
            raise typer.Exit(drop_output()) from None


def _flush_output() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:  # it has no name
        raise OSError(error.errno, error.strerror, "the output") from None


def drop_output() -> int:
    """Send the rest of the output nowhere, since its reader has gone, as head does.

    Returns the exit code of a process that SIGPIPE ended.
    """
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 128 + signal.SIGPIPE


def _tell_mistake(message: str) -> None:
    """Print one line; of several ranks only the first one prints.

    torchrun ends the first rank as soon as another one fails, so the others wait a little.
    """
    tell(message)
    if ranks.is_follower():
        time.sleep(HEAD_START)


def _usage(error: Any) -> str:
    """Typer's message; for an unknown command it lists the commands."""
    message: str = error.format_message()
    unknown = re.match("No such command '[^']*'", message)
    if unknown:
        return f"{unknown[0]}; the commands are {', '.join(error.ctx.command.commands)}"
    return message or "see mdmt --help"


def in_child(work: Callable[[], None], advice: str = "") -> None:
    """Do some work in a child process, so that this one can report which signal killed it.

    `advice` says how to continue afterwards. Exits with the child's exit code, or with 128 plus the
    number of the signal. The work is done here if this process cannot be forked.
    """
    if not can_fork():
        work()
        return
    end = run_in_child(lambda: exit_code(work))
    if end.code >= 0:
        raise typer.Exit(end.code)
    # Before it could write a checkpoint.
    if end.stop_requested and -end.code in (signal.SIGTERM, signal.SIGHUP):
        tell(f"interrupted{advice}")
        raise typer.Exit(INTERRUPTED)
    tell(f"the process {ending(end.code)}{advice}", from_any_rank=True)
    raise typer.Exit(128 - end.code)
