"""Repeat a run and find the first moment at which the two differ."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from mdmt.errors import Mistake
from mdmt.experiments.resolve import check_config, file_sha256
from mdmt.experiments.run import run
from mdmt.learner import OnStep
from mdmt.metrics import curve_stride
from mdmt.runs.config import RunConfig, folder_of
from mdmt.runs.folder import RECORD, RunFolder
from mdmt.runs.measurements import Step
from mdmt.runs.record import versions
from mdmt.words import count

END = sys.maxsize  # the step after the last of a task
Moments = dict[tuple[int, int, int, str], Any]  # task, step, order within the step, what: its value
Difference = dict[str, Any]  # task, step, what, then, now


def rerun(
    folder: RunFolder,
    *,
    data: str | None = None,
    weights: str | None = None,
    on_step: OnStep | None = None,
    on_image: Callable[[int, int], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Repeat a finished run in a temporary folder and compare the two, moment by moment.

    `data` and `weights` say where the data and the first weights lie now. Gives whether the bits
    are the same, the answer in words, the first difference, and the versions that have changed.
    """
    config = _config(folder, data, weights)
    before = folder.record
    steps = folder.steps
    with tempfile.TemporaryDirectory(prefix="mdmt-rerun-") as place:
        run(config, place, on_step=on_step, on_image=on_image, warn=warn)
        repeated = RunFolder(folder_of(config, place))
        after = repeated.record
        new_steps = repeated.steps
    difference = first_difference(
        moments(before, steps, config.batch), moments(after, new_steps, config.batch)
    )
    if difference is None and before["weights_sha256"] != after["weights_sha256"]:
        difference = _difference(len(before["tasks"]), None, "the final weights", None, None)
    elif difference is not None and difference["step"] == END:
        task = difference["task"]
        difference["step"] = max((int(row[1]) for row in new_steps if row[0] == task), default=0)
    now = versions()
    changes = {
        name: (then, now.get(name))
        for name, then in before["versions"].items()
        if then != now.get(name)
    }
    return {
        "run": str(folder.path),
        "same": difference is None,
        "answer": in_words(difference, after, steps),
        "difference": difference,
        "versions": changes,
    }


def _config(folder: RunFolder, data: str | None, weights: str | None) -> RunConfig:
    """The config of a finished run, with its files where they lie now; refused where it cannot be
    run.
    """
    if folder.finished_record is None:
        state = f"has a damaged {RECORD}" if folder.has(RECORD) else "is not finished"
        raise Mistake(f"{folder} {state}: finish it first, with the command that began it")
    if folder.record["ranks"] > 1:
        again = (
            f"torchrun --nproc-per-node {folder.record['ranks']} -m mdmt run ... with another --out"
        )
        raise Mistake(
            f"{folder} was done by several ranks, which round differently from one process: repeat"
            f" it with {again}"
        )
    config = folder.config
    config = replace(config, data=data or config.data, weights_file=weights or config.weights_file)
    config = replace(config, keep_model=False)
    check_config(config)
    file = config.weights_file
    if file is not None and not Path(file).is_file():
        raise Mistake(
            f"{file} is missing: say with --weights where the run's first weights lie now"
        )
    if file is not None and file_sha256(file) != config.weights:
        raise Mistake(f"{file} is not the file that the run started from: its content is another")
    return config


def moments(record: dict[str, Any], steps: list[Step], batch: int) -> Moments:
    """All that a run measured and computed, by when that was; time aside."""
    values: Moments = {}
    for task, step, loss, gradient, *_ in steps:
        values[int(task), int(step), 1, "loss"] = loss
        values[int(task), int(step), 1, "sum of the gradient"] = gradient
    for number, task_of_record in enumerate(record["tasks"], 1):
        values[number, 0, 0, "data"] = task_of_record
        for point, accuracy in enumerate(record["curve"][number - 1]):
            values[number, point * curve_stride(batch), 2, "accuracy on the task itself"] = accuracy
        for name in ("accuracy", "accuracy_task_free", "drift"):
            for other, value in enumerate(record[name][number - 1], 1):
                values[number, END, 3, f"{name} of task {other} at the end of the task"] = value
    return values


def first_difference(before: Moments, after: Moments) -> Difference | None:
    """The earliest moment that is not the same in both, None where all are."""
    missing = object()
    for moment in sorted(before):
        then = before[moment]
        now = after.get(moment, missing)
        both_nan = then != then and now != now
        if then != now and not both_nan:
            task, step, _, what = moment
            return _difference(task, step, what, then, None if now is missing else now)
    return None


def _difference(task: int, step: int | None, what: str, then: Any, now: Any) -> Difference:
    return {"task": task, "step": step, "what": what, "then": then, "now": now}


def in_words(difference: Difference | None, record: dict[str, Any], steps: list[Step]) -> str:
    """The answer in one line; `record` is that of the repeated run, `steps` the log of the
    first.
    """
    if difference is None:
        length = f"{count('task', len(record['tasks']))}, {count('step', record['steps'])}"
        return f"same bits: {length}, weights {record['weights_sha256'][:12]}"
    task = difference["task"]
    step = difference["step"]
    if step is None:
        return "not the same bits: all that was kept of the steps agrees, the final weights differ"
    earlier = [int(row[1]) for row in steps if row[0] == task and row[1] < step]
    last = max(earlier, default=step - 1)
    between = f", or after step {last}: not every step is kept" if step - last > 1 else ""
    change = f"{difference['what']} was {difference['then']}, is {difference['now']}"
    return f"not the same bits: first at task {task}, step {step}{between}: {change}"
