"""The verdict on a comparison: the best method, its lead, how certain the lead is, and its cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mdmt.metrics import A_FREE, A_T
from mdmt.report.text import format_difference
from mdmt.runs.ranking import Ranking, ranking
from mdmt.runs.rows import Row, Spread
from mdmt.words import bytes_text, count

ENOUGH = 3  # seeds for a verdict
MOST_NAMES = 3


class Verdict(NamedTuple):
    """The best method and a sentence that follows its name."""

    label: str
    sentence: str
    accuracy: str  # of this method
    lead: str  # over the next method, with its interval and the number of seeds


def verdict(rows: Sequence[Row]) -> Verdict:
    """The best method by A_T, and how sure that is; `joint` is a bound, not ranked."""
    ranked = ranking(rows, A_T)
    best = ranked.rows[0] if ranked.rows else max(rows, key=lambda row: row.accuracy)
    accuracy = A_T.text(best.accuracy)
    level = f"{accuracy} % after the last task{_without_task(best)}"
    if len(ranked.rows) < 2:
        sentence = f" ends at {level}, for {_cost(best)}; there is no other method to compare it"
        return Verdict(best.label, f"{sentence} with.{_not_compared(ranked)}", accuracy, "")
    second = ranked.rows[1]
    gap = _gap(ranked, second)
    sentence = f" {_claim(ranked, level)}, for {_cost(best)} ({second.label}: {_cost(second)})."
    lead = f"{format_difference(A_T, gap)}, {count('seed', len(gap['runs']))}"
    return Verdict(best.label, sentence + _not_compared(ranked), accuracy, lead)


def _claim(ranked: Ranking, level: str) -> str:
    """How far the best is ahead, and whether the seeds show it."""
    best, second = ranked.rows[:2]
    others = [*ranked.rows[1:], *ranked.left_out]
    is_highest = all(best.accuracy >= row.accuracy for row in others)
    first = "has the highest accuracy" if is_highest else "is ahead on common seeds"
    seeds = len(_gap(ranked, second)["runs"])
    if seeds < ENOUGH:
        lead = f"{_points(ranked, second)} over {second.label}, the next"
        return f"{first}, {level}, {lead} ({count('seed', seeds)}: too few to tell which is better)"
    rivals = ranked.leaders[1:]
    if not rivals:
        beaten = all(best.accuracy >= row.accuracy for row in ranked.left_out)
        title = "is best" if beaten else "is best of the methods that share its seeds"
        return (
            f"{title}: {level}, {_points(ranked, second)} over {second.label}, the next"
            f" ({_paired(seeds)})"
        )
    names = ", ".join(row.label for row in rivals[:MOST_NAMES])
    if len(rivals) > MOST_NAMES:
        names += f" and {len(rivals) - MOST_NAMES} more"
    seeds = len(_gap(ranked, rivals[0])["runs"])
    return (
        f"{first}, {level}, but is not shown to be better than {names}:"
        f" {_points(ranked, rivals[0])} over {rivals[0].label} ({_paired(seeds)})"
    )


def _gap(ranked: Ranking, other: Row) -> Spread:
    """The best minus another of the ranked rows, all of which share a seed with it."""
    gap = ranked.lead(ranked.rows[0], other)
    assert gap is not None
    return gap


def _points(ranked: Ranking, other: Row) -> str:
    """The best minus another row: the mean, and the interval if there is one."""
    mean, *ends = format_difference(A_T, _gap(ranked, other)).split(" ", 1)
    return " ".join([mean, "points", *ends])


def _paired(seeds: int) -> str:
    return f"95 % interval, paired over {count('seed', seeds)}"


def _without_task(row: Row) -> str:
    cells = (row.metrics[A_T.name], row.metrics[A_FREE.name])
    known, free = (None if cell is None else A_T.text(cell["mean"]) for cell in cells)
    return "" if free is None or free == known else f" ({free} % where the task is not given)"


def _cost(row: Row) -> str:
    memory = f"{bytes_text(row.memory_bytes)} of memory" if row.memory_bytes else "no memory"
    return f"{row.seconds['mean']:.0f} s of learning and {memory}"


def _not_compared(ranked: Ranking) -> str:
    """Name the rows that the sentence above says nothing about."""
    sentences = {
        "A single seed in common is too few to tell": [
            row for row in ranked.unsure if row is not ranked.rows[1]
        ],
        "Not compared, for want of a seed in common": ranked.left_out,
    }
    return "".join(f" {reason}: {_named(rows)}." for reason, rows in sentences.items() if rows)


def _named(rows: list[Row]) -> str:
    return ", ".join(
        f"{row.label} ({A_T.text(row.accuracy)} %, {count('seed', len(row.seeds))})" for row in rows
    )
