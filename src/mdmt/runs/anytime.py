"""Accuracies along the steps of a run (`--evaluate-every`): their form, checks and limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypedDict

import mdmt.runs.gate as gate
from mdmt.errors import Mistake

MOST = 1_000_000  # accuracies of a run


class Anytime(TypedDict):
    """The points along the steps.

    Each has the number of steps before it, and the accuracy on each task learned so far and on the
    current one, with the task given (None: no test examples). There is one before the first step of
    a task, one every so many of its steps, and one after its last step.
    """

    steps: list[int]
    accuracy: list[list[float | None]]


def add_point(points: Anytime, step: int, accuracy: list[float | None]) -> None:
    """Add a point; one that is measured again, after an interruption, replaces the last one."""
    steps, rows = points["steps"], points["accuracy"]
    if rows and (steps[-1], len(rows[-1])) == (step, len(accuracy)):
        steps.pop()
        rows.pop()
    steps.append(step)
    rows.append(accuracy)


def check_interval(every: Any, tasks: Sequence[tuple[int, int]]) -> None:
    """Refuse an interval that is not one, or that gives more accuracies than a record may hold.

    `tasks` has the number of steps of each task, and how many tasks are learned in them.
    """
    if isinstance(every, bool) or not isinstance(every, int) or every < 0:
        raise Mistake(f"evaluate_every={every!r}: must be a whole number of steps, or 0 for never")
    if not every:
        return
    seen = at_ends = between = total = 0
    for steps, number in tasks:
        seen += number
        at_ends += 2 * seen
        between += steps * seen
        total += (2 + (steps - 1) // every) * seen
    if total > MOST:
        remedy = "learn fewer tasks"
        if at_ends < MOST:
            remedy = f"take at least {math.ceil(between / (MOST - at_ends)):,}"
        raise Mistake(
            f"evaluate_every={every}: would measure {total:,} accuracies, of at most {MOST:,};"
            f" {remedy}"
        )


def checked(value: Any, tasks: int) -> Anytime | None:
    """The points of a record of unknown origin; a later one has no fewer steps and tasks."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise gate.refusal("anytime", value, "an object or null")
    steps = gate.array("anytime.steps", gate.value_of(value, "steps", "anytime."))
    rows = gate.array("anytime.accuracy", gate.value_of(value, "accuracy", "anytime."))
    lengths = [len(gate.array("anytime.accuracy", row)) for row in rows]
    if len(steps) != len(rows) or sum(lengths) > MOST:
        raise Mistake(f"anytime does not have a row for each step, or more than {MOST:,} numbers")
    whole, share = gate.whole(0, 10**12), gate.or_null(gate.number(1.0))
    accuracy = [[share("anytime.accuracy", one) for one in row] for row in rows]
    steps = [whole("anytime.steps", one) for one in steps]
    in_order = steps == sorted(steps) and lengths == sorted(lengths)
    if not in_order or not all(1 <= length <= tasks for length in lengths):
        raise Mistake("anytime is not in the order of its steps and tasks")
    return {"steps": steps, "accuracy": accuracy}
