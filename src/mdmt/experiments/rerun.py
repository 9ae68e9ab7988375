"""A run done again, and the first moment at which the two differ."""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mdmt.errors import Mistake
from mdmt.experiments.config import folder_of
from mdmt.experiments.measurements import Step
from mdmt.experiments.resolve import check_config, file_sha256
from mdmt.experiments.run import run
from mdmt.experiments.store import RECORD, RunFolder
from mdmt.learner import OnStep
from mdmt.record import versions
from mdmt.words import count

END = sys.maxsize  # the step after the last of a task
Moments = dict[tuple[int, int, int, str], Any]  # task, step, order within the step, what: its value


def rerun(
    folder: RunFolder,
    *,
    data: str | None = None,
    weights: str | None = None,
    on_step: OnStep | None = None,
    on_image: Callable[[int, int], None] | None = None,
    tell: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Do a finished run again in a temporary folder and compare, in the order in which things happened.

    `data` and `weights` are for data and first weights that lie elsewhere now. Gives whether it is the same, the answer in
    words, where it differs first, and the versions that are others now.
    """
    before = folder.finished_record
    if before is None:
        state = f"has a damaged {RECORD}" if folder.has(RECORD) else "is not finished"
        raise Mistake(f"{folder} {state}: finish it first, with the command that began it")
    config = replace(folder.config, data=data or folder.config.data, weights_file=weights or folder.config.weights_file)
    check_config(config)
    if config.weights_file is not None and file_sha256(config.weights_file) != config.weights:
        raise Mistake(f"{config.weights_file} is not the file that the run started from: its content is another")
    kept = folder.steps
    with tempfile.TemporaryDirectory(prefix="mdmt-rerun-") as place:
        after = run(config, place, on_step=on_step, on_image=on_image, tell=tell)
        again = RunFolder(folder_of(config, place)).steps
    where = first_difference(moments(before, kept), moments(after, again))
    if where is not None and where["step"] == END:
        where["step"] = max((int(step) for task, step, *_ in again if task == where["task"]), default=0)
    if where is None and before["weights_sha256"] != after["weights_sha256"]:
        where = {"task": len(before["tasks"]), "step": None, "what": "the final weights", "then": None, "now": None}
    return {
        "run": str(folder.path),
        "same": where is None,
        "answer": in_words(where, before, after, kept),
        "difference": where,
        "versions": {
            name: (then, versions().get(name))
            for name, then in before.get("versions", {}).items()
            if then != versions().get(name)
        },
    }


def moments(record: dict[str, Any], kept: list[Step]) -> Moments:
    """All that a run measured and computed, by when that was; time aside."""
    found: Moments = {}
    for task, step, loss, gradient, _ in kept:
        found |= {(int(task), int(step), 1, "loss"): loss, (int(task), int(step), 1, "sum of the gradient"): gradient}
    for number, about in enumerate(record["tasks"], 1):
        found[number, 0, 0, "data"] = about
        for step, accuracy in enumerate(record["curve"][number - 1]):
            found[number, step, 2, "accuracy on the task itself"] = accuracy
        for name in ("accuracy", "accuracy_task_free", "drift"):
            for other, value in enumerate(record[name][number - 1], 1):
                found[number, END, 3, f"{name} of task {other} at the end of the task"] = value
    return found


def first_difference(before: Moments, after: Moments) -> dict[str, Any] | None:
    """The earliest moment that is not the same in both, None where all are."""
    nothing = object()
    for moment in sorted(before):
        then, now = before[moment], after.get(moment, nothing)
        unknown = isinstance(then, float) and math.isnan(then) and isinstance(now, float) and math.isnan(now)
        if then != now and not unknown:
            task, step, _, what = moment
            return {"task": task, "step": step, "what": what, "then": then, "now": None if now is nothing else now}
    return None


def in_words(where: dict[str, Any] | None, before: dict[str, Any], after: dict[str, Any], kept: list[Step]) -> str:
    """One line for a person."""
    if where is None:
        length = f"{count('task', len(before['tasks']))}, {count('step', after['steps'])}"
        return f"same bits: {length}, weights {after['weights_sha256'][:12]}"
    if where["step"] is None:
        return "not the same bits: all that was kept of the steps agrees, the final weights differ"
    of_task = [int(step) for task, step, *_ in kept if int(task) == where["task"]]
    earlier = max((step for step in of_task if step < where["step"]), default=where["step"] - 1)
    between = f", or after step {earlier}: not every step is kept" if where["step"] - earlier > 1 else ""
    told = f"{where['what']} was {where['then']}, is {where['now']}"
    return f"not the same bits: first at task {where['task']}, step {where['step']}{between}: {told}"
