"""Repeat a run and find the first moment at which the two differ."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import mdmt.benchmarks as benchmarks
from mdmt.errors import Mistake, Stopped
from mdmt.experiments.resolve import check_config, file_sha256
from mdmt.experiments.run import run
from mdmt.learner import OnStep
from mdmt.metrics import curve_stride
from mdmt.runs.config import RunConfig, folder_of
from mdmt.runs.folder import RECORD, RunFolder
from mdmt.runs.record import MATRICES, NUMBERS, RunRecord, versions
from mdmt.runs.step_log import StepLog
from mdmt.system.files import JsonObject
from mdmt.system.own_code import file_of, is_in_memory, is_own
from mdmt.words import count

END = sys.maxsize  # sorts after every step of a task
Moment = tuple[int, int, int, str]  # task, step, order within the step, name of the value
Moments = dict[Moment, Any]


@dataclass(frozen=True)
class Difference:
    """The first value in which two runs differ; without a step, the final weights."""

    task: int
    step: int | None
    what: str
    then: Any
    now: Any


@dataclass(frozen=True)
class RerunComparison:
    """A finished run and its repetition."""

    run: str  # the folder
    answer: str  # in one line
    difference: Difference | None
    versions: dict[str, tuple[str, str | None]]  # those that have changed: then, now

    @property
    def same(self) -> bool:
        return self.difference is None

    def to_json(self) -> JsonObject:
        """The output of `mdmt rerun --json`."""
        difference = None if self.difference is None else asdict(self.difference)
        return {
            "run": self.run,
            "same": self.same,
            "answer": self.answer,
            "difference": difference,
            "versions": self.versions,
        }


def rerun(
    folder: RunFolder,
    *,
    data: str | None = None,
    weights: str | None = None,
    trust: bool = False,
    on_step: OnStep | None = None,
    on_image: Callable[[int, int], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> RerunComparison:
    """Repeat a finished run in a temporary folder and compare the two, moment by moment.

    `data` and `weights` are the current paths of the data and of the first weights. Code that the
    run names is imported only with `trust`: anybody can have written the folder.
    """
    config = _config(folder, data, weights, trust)
    steps = folder.steps
    with tempfile.TemporaryDirectory(prefix="mdmt-rerun-") as place:
        try:
            run(config, place, on_step=on_step, on_image=on_image, warn=warn)
        except Stopped:
            remedy = "a repetition keeps nothing: mdmt rerun begins again"
            raise Stopped(f"stopped; {remedy}") from None
        repeated = RunFolder(folder_of(config, place))
        record = repeated.record
        new_steps = repeated.steps
    difference = first_difference(
        moments(folder.record, steps, config.batch), moments(record, new_steps, config.batch)
    )
    if difference is None and folder.record.weights_sha256 != record.weights_sha256:
        last = len(folder.record.tasks)
        difference = Difference(last, None, "the final weights", None, None)
    elif difference is not None and difference.step == END:
        own = [int(row.step) for row in new_steps if row.task == difference.task]
        difference = replace(difference, step=max(own, default=0))
    answer = in_words(difference, record, steps)
    return RerunComparison(str(folder.path), answer, difference, _changed_versions(folder.record))


def _changed_versions(record: RunRecord) -> dict[str, tuple[str, str | None]]:
    now = versions()
    then = record.versions
    return {name: (then[name], now.get(name)) for name in then if then[name] != now.get(name)}


def _config(folder: RunFolder, data: str | None, weights: str | None, trust: bool) -> RunConfig:
    """The config of a finished run with current paths; raise a Mistake if it cannot be repeated."""
    if folder.finished_record is None:
        state = f"has a damaged {RECORD}" if folder.has(RECORD) else "is not finished"
        raise Mistake(f"{folder} {state}: finish it first, with the command that began it")
    if folder.record.ranks > 1:
        command = f"torchrun --nproc-per-node {folder.record.ranks} -m mdmt run ..."
        raise Mistake(
            f"{folder} was done by several ranks, which round differently from one process: repeat"
            f" it with {command} with another --out"
        )
    config = folder.config
    if is_in_memory(config.benchmark):
        benchmarks.find(config.benchmark)  # refuses it, since the program has ended
    if not trust:
        _refuse_own_code(folder, config)
    config = replace(config, data=data or config.data, weights_file=weights or config.weights_file)
    config = replace(config, keep_model=False)
    check_config(config)
    file = config.weights_file
    if file is not None and not Path(file).is_file():
        raise Mistake(f"{file} is missing: give the path of the run's first weights with --weights")
    if file is not None and file_sha256(file) != config.weights:
        raise Mistake(f"{file} is not the file that the run started from: its content differs")
    return config


def _refuse_own_code(folder: RunFolder, config: RunConfig) -> None:
    """Refuse a run that names code outside mdmt; the line says what would be imported."""
    names = {
        "stream": config.benchmark,
        "method": config.method,
        "network": config.backbone["name"],
    }
    own: list[str] = []
    for what, name in names.items():
        if is_own(name):
            file = file_of(name)
            where = ", whose file was not found," if file is None else f" from {file}"
            own.append(f"the {what} {name}{where}")
    if own:
        raise Mistake(
            f"{folder} names code that would be imported and run: {' and '.join(own).rstrip(',')};"
            " if you trust it, add --trust"
        )


def moments(record: RunRecord, steps: StepLog, batch: int) -> Moments:
    """All that a run measured and computed, except times, by the moment at which it did."""
    values: Moments = {}
    for row in steps:
        values[int(row.task), int(row.step), 1, "loss"] = row.loss
        values[int(row.task), int(row.step), 1, "sum of the gradient"] = row.gradient
    for number, task in enumerate(record.tasks, 1):
        values[number, 0, 0, "data"] = task
        for point, accuracy in enumerate(record.curve[number - 1]):
            values[number, point * curve_stride(batch), 2, "accuracy on the task itself"] = accuracy
        for name in MATRICES:
            for other, value in enumerate(getattr(record, name)[number - 1], 1):
                values[number, END, 3, f"{name} of task {other} at the end of the task"] = value
    values |= _points(record)
    for name in NUMBERS:
        for number, value in enumerate(getattr(record, name), 1):
            if value is not None:  # earlier versions did not measure it
                values[number, END, 3, f"{name} at the end of the task"] = value
    return values


def _points(record: RunRecord) -> Moments:
    """The accuracies along the steps, by the step of the task that was learned then."""
    values: Moments = {}
    if record.anytime is None:
        return values
    first: dict[int, int] = {}  # the step at which each task began
    for step, row in zip(record.anytime["steps"], record.anytime["accuracy"], strict=True):
        done = step - first.setdefault(len(row), step)
        for other, value in enumerate(row, 1):
            values[len(row), done, 2, f"accuracy on task {other} after these steps"] = value
    return values


def first_difference(before: Moments, after: Moments) -> Difference | None:
    """The earliest moment at which two runs differ, or None."""
    missing = object()
    for moment in sorted(before):
        then = before[moment]
        now = after.get(moment, missing)
        both_nan = then != then and now != now
        if then != now and not both_nan:
            task, step, _, what = moment
            return Difference(task, step, what, then, None if now is missing else now)
    return None


def in_words(difference: Difference | None, record: RunRecord, steps: StepLog) -> str:
    """The answer in one line, from the repeated run's record and the first run's step log."""
    if difference is None:
        length = f"{count('task', len(record.tasks))}, {count('step', record.steps)}"
        return f"same bits: {length}, weights {record.weights_sha256[:12]}"
    task = difference.task
    step = difference.step
    if step is None:
        return "not bit-identical: the logged steps agree, the final weights differ"
    last = max(
        (int(row.step) for row in steps if row.task == task and row.step < step), default=step - 1
    )
    between = f", or after step {last}: not every step is logged" if step - last > 1 else ""
    change = f"{difference.what} was {difference.then}, is {difference.now}"
    return f"not bit-identical: first at task {task}, step {step}{between}: {change}"
