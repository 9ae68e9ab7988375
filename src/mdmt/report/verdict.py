"""The verdict on a study: the best method, its lead, how certain the lead is, and its cost."""

from __future__ import annotations

import statistics
from typing import NamedTuple

from mdmt.metrics import A_FREE, A_T
from mdmt.report.study import Study
from mdmt.runs.ranking import Ranking, ranking
from mdmt.runs.rows import Row, interval
from mdmt.words import bytes_text, count

MOST_NAMES = 3


class Verdict(NamedTuple):
    """The best method and a sentence that follows its name."""

    label: str
    sentence: str
    accuracy: str  # of this method, on the common seeds
    lead: str  # over the next method, with its interval


def verdict(study: Study) -> Verdict:
    """The best method of a study by A_T on the common seeds; `joint` is a bound, not ranked."""
    ranked = ranking(study.rows, A_T)
    if not ranked.rows:
        row = max(study.rows, key=lambda row: row.accuracy)
        accuracy = A_T.text(row.accuracy)
        return Verdict(
            row.label,
            f" ends at {accuracy} %; there is no method to compare it with.",
            accuracy,
            "",
        )
    best = ranked.rows[0]
    accuracy = A_T.text(statistics.fmean(ranked.values(best)))
    tasks = count("task", study.tasks)
    level = f"{accuracy} % on average over the {tasks} in the end{_without_task(best)}"
    if len(ranked.rows) == 1:
        sentence = (
            f" ends at {level}, for {_cost(best)}; there is no other method to compare it with."
        )
        return Verdict(best.label, sentence + _left_out(ranked), accuracy, "")
    second = ranked.rows[1]
    sentence = f" {_lead(ranked, level)}, for {_cost(best)} ({second.label}: {_cost(second)})."
    lead = ranked.differences(best, second)
    return Verdict(
        best.label, sentence + _left_out(ranked), accuracy, f"{_points(lead)} {_sure(lead)}".strip()
    )


def _lead(ranked: Ranking, level: str) -> str:
    """How far the best is ahead of the next, and whether the seeds show it."""
    best, second = ranked.rows[:2]
    lead = ranked.differences(best, second)
    seeds = f"paired over {count('seed', len(ranked.seeds))}"
    if len(ranked.seeds) == 1:
        lead_of_one = (
            f"{_points(lead)} points above {second.label}, and one seed cannot say how sure that is"
        )
        return f"has the highest accuracy, {level}: {lead_of_one}"
    rivals = [row.label for row in ranked.leaders[1:]]
    if not rivals:
        return (
            f"is best: {level}, {_points(lead)} points {_sure(lead)} above {second.label}, the next"
            f" ({seeds}, 95 %)"
        )
    names = ", ".join(rivals[:MOST_NAMES])
    if len(rivals) > MOST_NAMES:
        names += f" and {len(rivals) - MOST_NAMES} more"
    gap = f"{_points(lead)} points {_sure(lead)} to {second.label} ({seeds}, 95 %)"
    return (
        f"has the highest accuracy, {level}, but these seeds do not show it to be better than"
        f" {names}: {gap}"
    )


def _points(differences: list[float]) -> str:
    return A_T.text(statistics.fmean(differences), signed=True)


def _sure(differences: list[float]) -> str:
    ends = interval(differences)
    if ends is None:
        return ""
    low, high = (A_T.text(end, signed=True) for end in ends)
    return f"[{low}, {high}]"


def _without_task(row: Row) -> str:
    cells = (row.metrics[A_T.name], row.metrics[A_FREE.name])
    known, free = (None if cell is None else A_T.text(cell["mean"]) for cell in cells)
    return "" if free is None or free == known else f" ({free} % where the task is not given)"


def _cost(row: Row) -> str:
    memory = f"{bytes_text(row.memory_bytes)} of memory" if row.memory_bytes else "no memory"
    return f"{row.seconds['mean']:.0f} s of learning and {memory}"


def _left_out(ranked: Ranking) -> str:
    names = ", ".join(
        f"{row.label} ({A_T.text(row.accuracy)} %, {count('seed', len(row.seeds))})"
        for row in ranked.left_out
    )
    return f" Not compared, for want of equal seeds: {names}." if names else ""
