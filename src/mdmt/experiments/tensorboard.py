"""A run as TensorBoard shows it: the loss along the stream, the accuracy on each task and their
mean A_t after each task.

One event file a task, written once the task is over, from what the run keeps anyway; so an
interrupted run needs no care, and a run that finished long ago can get its files too.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mdmt.errors import Mistake
from mdmt.runs.folder import EVENTS
from mdmt.runs.measurements import Step

if TYPE_CHECKING:
    from mdmt.runs.record import Rows


def writer() -> Any:
    """TensorBoard's writer; a ValueError that says what to install where it is missing."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise Mistake(
            "--log tensorboard needs the package tensorboard: pip install '.[tensorboard]' in"
            " mdmt's folder"
        ) from None
    return SummaryWriter


def write_events(folder: Path, accuracy: Rows, kept: list[Step]) -> None:
    """Write the files of the tasks that are over and have none yet, into the folder `tensorboard`
    of a run.
    """
    (folder / EVENTS).mkdir(parents=True, exist_ok=True)
    before = 0  # steps of earlier tasks
    for number, row in enumerate(accuracy, 1):
        of_task = [(int(step), loss) for task, step, loss, *_ in kept if task == number]
        file = folder / EVENTS / f"events.out.tfevents.{number:05d}"
        known = {other: value for other, value in enumerate(row, 1) if value is not None}
        seen = [known[other] for other in range(1, number + 1) if other in known]
        if known and not file.exists():
            with tempfile.TemporaryDirectory(dir=folder) as place:
                with writer()(place) as events:
                    for step, loss in of_task:
                        events.add_scalar("loss", loss, before + step)
                    for other, value in known.items():
                        events.add_scalar(f"accuracy/task {other:02d}", value, number)
                    if len(seen) == number:
                        events.add_scalar("A_t", sum(seen) / number, number)
                os.replace(next(Path(place).iterdir()), file)
        before += of_task[-1][0] if of_task else 0
