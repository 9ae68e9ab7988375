"""Deliveries: the data that arrive for a model, from folders, files, arrays and data sets."""

from __future__ import annotations

import copy
import hashlib
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mdmt.benchmarks.folder import IMAGE_SIZE, class_images
from mdmt.data.images import OnImage, as_grey, load_images
from mdmt.errors import Mistake
from mdmt.inputs.arrays import RowView
from mdmt.inputs.files import read_npz
from mdmt.living.tables import arranged, header, is_frame, listed, read_table
from mdmt.tasks import Task
from mdmt.words import printable

HASHED_AT_ONCE = 1000


@dataclass(frozen=True)
class Delivery:
    """Examples with their classes, under a name."""

    task: Task
    sha256: str  # of the examples, whatever their order
    columns: tuple[str, ...] | None = None  # the names of a table's columns

    @property
    def name(self) -> str:
        return self.task.name

    def counts(self) -> dict[Hashable, int]:
        """The number of examples of each class."""
        numbers = Counter(self.task.train.labels.tolist())
        return {c: numbers[i] for i, c in enumerate(self.task.classes)}


def with_known_labels(delivery: Delivery, known: Iterable[Hashable]) -> Delivery:
    """The delivery with the model's own labels: 3 for the text 3 of a table or a folder."""
    by_text = {str(c): c for c in known}
    classes = tuple(by_text.get(str(c), c) for c in delivery.task.classes)
    task = copy.copy(delivery.task)
    task.classes = classes
    if classes == delivery.task.classes:
        return delivery
    return Delivery(task, _sha256(task), delivery.columns)


def read_delivery(
    data: Any,
    name: str | None = None,
    *,
    label: str | None = None,
    image_size: int | None = None,
    channels: int = 3,
    columns: Sequence[str] | None = None,
    progress: OnImage | None = None,
) -> Delivery:
    """Read a folder of class folders, an .npz or .csv file, arrays (x, y), a Task, a Dataset.

    Images get the size and channels of the model, the columns of a table its order.
    """
    found = None
    if isinstance(data, (str, Path)) and Path(data).is_dir():
        task = _images(Path(data), name, image_size or IMAGE_SIZE, channels, progress)
    elif isinstance(data, (str, Path)) and Path(data).suffix == ".csv" and Path(data).is_file():
        task, found = _table(Path(data), name, label, columns)
    elif is_frame(data):
        task, found = _frame(data, _named(name), label, columns)
    else:
        task = _task(data, name)
    if task.view is not None:
        raise Mistake(f"delivery {task.name!r}: a task with a view cannot be learned here")
    return Delivery(task, _sha256(task), found)


def _task(data: Any, name: str | None) -> Task:
    if isinstance(data, Task):
        return data if name is None else data.with_view(name, data.view)  # type: ignore[arg-type]
    if isinstance(data, (str, Path)):
        return _arrays(Path(data), name)
    if isinstance(data, tuple) and len(data) == 2:
        return Task(_named(name), *data)
    if hasattr(data, "__getitem__") or hasattr(data, "__iter__"):
        return Task.from_dataset(_named(name), data)
    raise Mistake(
        f"cannot learn a {type(data).__name__}: pass a folder of class folders, an .npz or .csv"
        " file, (x, y), a Task, a DataFrame or a Dataset"
    )


def _named(name: str | None) -> str:
    if not name:
        raise Mistake("give the delivery a name: learn(data, name=...)")
    return name


def _images(
    path: Path, name: str | None, size: int, channels: int, progress: OnImage | None
) -> Task:
    classes = class_images(path)
    paths = [file for files in classes.values() for file in files]
    labels = [c for c, files in classes.items() for _ in files]
    pixels = load_images(paths, size, progress=progress).pixels
    if channels == 1:
        pixels = torch.from_numpy(np.stack([as_grey(image.numpy()) for image in pixels]))
    return Task(name or path.resolve().name, pixels, labels, classes=list(classes))


def _table(
    path: Path, name: str | None, label: str | None, columns: Sequence[str] | None
) -> tuple[Task, tuple[str, ...]]:
    if label is None:
        known = listed(header(path))
        shown = printable(str(path))
        raise Mistake(f"{shown}: say which column holds the class with --label; columns: {known}")
    table = read_table(path, label, columns)
    return Task(name or path.stem, table.numbers, table.labels), table.columns


def _frame(
    frame: Any, name: str, label: str | None, columns: Sequence[str] | None
) -> tuple[Task, tuple[str, ...]]:
    if label is None:
        raise Mistake("a frame needs label=, the name of its column of classes")
    if label not in frame.columns:
        raise Mistake(f"label={label!r}: the frame has no such column")
    inputs = arranged(name, frame.drop(columns=[label]), columns)
    return Task(name, inputs, frame[label].tolist()), tuple(map(str, inputs.columns))


def _arrays(path: Path, name: str | None) -> Task:
    shown = printable(str(path))
    if not path.is_file():
        raise Mistake(f"{shown} is missing: expected a folder of class folders, an .npz or a .csv")
    if path.suffix != ".npz":
        raise Mistake(
            f"{shown} cannot be read: expected a folder of class folders, an .npz with x and y, or"
            " a .csv"
        )
    content = read_npz(path)
    if not {"x", "y"} <= content.keys():
        raise Mistake(f"{shown} must hold the arrays x (inputs) and y (classes)")
    x, y = content["x"].read(), content["y"].read()
    return Task(name or path.stem, x, y)


def example_digests(inputs: Tensor | RowView) -> list[str]:
    """A checksum of each input, by which `forget` finds it."""
    digests = []
    for start in range(0, len(inputs), HASHED_AT_ONCE):
        rows = inputs[start : start + HASHED_AT_ONCE].cpu().contiguous().numpy()
        digests += [hashlib.sha256(row.tobytes()).hexdigest()[:32] for row in rows]
    return digests


def _sha256(task: Task) -> str:
    labels = [repr(task.classes[i]) for i in task.train.labels.tolist()]
    pairs = sorted(zip(example_digests(task.train.inputs), labels, strict=True))
    return hashlib.sha256(repr(pairs).encode()).hexdigest()


def split(task: Task, held_back: Tensor) -> Task:
    """The delivery without its held-back examples."""
    rest = task.with_classes(task.classes)
    rest.train = task.train.subset((~held_back).nonzero()[:, 0])
    rest.test = None
    return rest
