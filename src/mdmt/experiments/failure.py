"""Why a run failed, kept in its folder until it is started again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mdmt.errors import summarise
from mdmt.experiments.store import DAMAGE, FAILED
from mdmt.files import read_json, write_json

if TYPE_CHECKING:
    from mdmt.learner import Learner


@dataclass
class Attempt:
    """A run that is going on; its learner says how far it came."""

    learner: Learner | None = None


@contextmanager
def kept(folder: Path, stop: type[Exception]) -> Iterator[Attempt]:
    """Write down what ends a run, with the task and the steps of it that were over; a stop is no failure."""
    (folder / FAILED).unlink(missing_ok=True)
    attempt = Attempt()
    try:
        yield attempt
    except stop:
        raise
    except Exception as error:
        learner = attempt.learner
        at = {"task": learner.current + 1, "step": learner.done} if learner else {"task": None, "step": None}
        with suppress(Exception):  # a full disk must not hide the first error
            write_json(folder / FAILED, {"reason": summarise(error), **at})
        raise


def reason_of(folder: Path) -> str | None:
    """Why the run failed, in one line; None where it did not, or that cannot be read."""
    try:
        found: Any = read_json(folder / FAILED).get("reason")
    except DAMAGE:
        return None
    return found if isinstance(found, str) else None
