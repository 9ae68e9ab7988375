"""Event files for TensorBoard: the loss along the stream, and the accuracies after each task.

There is one event file per task, written once the task is finished, from what a run keeps anyway.
So an interrupted run needs no special care, and a run that finished long ago can get its files too.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from mdmt.runs.folder import EVENT_DRAFTS, EVENT_FILE, EVENTS
from mdmt.runs.record import Matrix
from mdmt.runs.step_log import StepLog
from mdmt.system.packages import missing


def writer() -> Any:
    """TensorBoard's writer class; raise a Mistake if the package is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise missing("--log tensorboard", "tensorboard", "tensorboard") from None
    return SummaryWriter


def write_events(folder: Path, accuracy: Matrix, steps: StepLog) -> None:
    """Write the event files that a run folder lacks, for the tasks that are finished."""
    (folder / EVENTS).mkdir(parents=True, exist_ok=True)
    rows = steps.to_array()
    ends = np.searchsorted(rows[:, 0], np.arange(len(accuracy) + 1), side="right")
    earlier = 0  # steps of earlier tasks
    for number, row in enumerate(accuracy, 1):
        own = rows[ends[number - 1] : ends[number]]
        file = folder / EVENTS / f"{EVENT_FILE}{number:05d}"
        if not file.exists() and any(value is not None for value in row):
            losses = [(earlier + int(step), loss) for _, step, loss, *_ in own.tolist()]
            _write_task(file, number, row, losses)
        earlier += int(own[-1, 1]) if len(own) else 0


def _write_task(
    file: Path, number: int, row: list[float | None], losses: list[tuple[int, float]]
) -> None:
    measured = {other: value for other, value in enumerate(row, 1) if value is not None}
    seen = [measured[other] for other in range(1, number + 1) if other in measured]
    with tempfile.TemporaryDirectory(prefix=EVENT_DRAFTS, dir=file.parents[1]) as place:
        with writer()(place) as events:
            for step, loss in losses:
                events.add_scalar("loss", loss, step)
            for other, value in measured.items():
                events.add_scalar(f"accuracy/task {other:02d}", value, number)
            if len(seen) == number:
                events.add_scalar("A_t", sum(seen) / number, number)
        os.replace(next(Path(place).iterdir()), file)
