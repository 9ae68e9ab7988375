"""Deliveries: the data that arrive for a model, from folders, files, arrays and data sets."""

from __future__ import annotations

import copy
import hashlib
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from mdmt.benchmarks.folder import IMAGE_SIZE, class_images
from mdmt.data.images import OnImage, load_images
from mdmt.errors import Mistake
from mdmt.inputs.arrays import RowView
from mdmt.tasks import Task
from mdmt.words import printable

HASHED_AT_ONCE = 1000


@dataclass(frozen=True)
class Delivery:
    """Examples with their classes, under a name."""

    task: Task
    sha256: str  # of the examples, whatever their order

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
    return Delivery(task, _sha256(task)) if classes != delivery.task.classes else delivery


def read_delivery(
    data: Any,
    name: str | None = None,
    *,
    label: str | None = None,
    image_size: int | None = None,
    progress: OnImage | None = None,
) -> Delivery:
    """Read a folder of class folders, an .npz or .csv file, arrays (x, y), a Task, a Dataset."""
    task = _task(data, name, label, image_size or IMAGE_SIZE, progress)
    if task.view is not None:
        raise Mistake(f"delivery {task.name!r}: a task with a view cannot be learned here")
    return Delivery(task, _sha256(task))


def _task(
    data: Any, name: str | None, label: str | None, image_size: int, progress: OnImage | None
) -> Task:
    if isinstance(data, Task):
        return data if name is None else data.with_view(name, data.view)  # type: ignore[arg-type]
    if isinstance(data, (str, Path)):
        return _task_at(Path(data), name, label, image_size, progress)
    if isinstance(data, tuple) and len(data) == 2:
        return Task(_named(name), *data)
    if hasattr(data, "columns") and hasattr(data, "to_numpy"):
        if label is None:
            raise Mistake("a frame needs label=, the name of its column of classes")
        if label not in data.columns:
            raise Mistake(f"label={label!r}: the frame has no such column")
        return Task(_named(name), data.drop(columns=[label]), data[label].tolist())
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


def _task_at(
    path: Path, name: str | None, label: str | None, image_size: int, progress: OnImage | None
) -> Task:
    shown = printable(str(path))
    if path.is_dir():
        return _images(path, name or path.resolve().name, image_size, progress)
    if not path.is_file():
        raise Mistake(f"{shown} is missing: expected a folder of class folders, an .npz or a .csv")
    name = name or path.stem
    if path.suffix == ".npz":
        return Task(name, *_arrays(path))
    if path.suffix == ".csv":
        return _table(path, name, label)
    raise Mistake(
        f"{shown} cannot be read: expected a folder of class folders, an .npz with x and y, or a"
        " .csv"
    )


def _images(path: Path, name: str, size: int, progress: OnImage | None) -> Task:
    classes = class_images(path)
    paths = [file for files in classes.values() for file in files]
    labels = [c for c, files in classes.items() for _ in files]
    images = load_images(paths, size, progress=progress)
    return Task(name, images.pixels, labels, classes=list(classes))


def _arrays(path: Path) -> tuple[Any, Any]:
    try:
        with np.load(path, allow_pickle=False) as content:
            return content["x"], content["y"]
    except KeyError:
        raise Mistake(f"{path} must hold the arrays x (inputs) and y (classes)") from None
    except Exception as error:  # a foreign file can fail in many ways
        raise Mistake(f"{path} cannot be read as .npz: {error}".splitlines()[0]) from None


def _table(path: Path, name: str, label: str | None) -> Task:
    import csv

    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.reader(file))
    header = rows[0] if rows else []
    if label is None or label not in header:
        known = ", ".join(header) or "none"
        raise Mistake(f"{path}: say which column holds the class with --label; columns: {known}")
    column = header.index(label)
    numbers = []
    for line, row in enumerate(rows[1:], start=2):
        try:
            values = [float(value) for i, value in enumerate(row) if i != column]
        except ValueError:
            raise Mistake(
                f"{path}, line {line}: every column but {label} must be a number"
            ) from None
        if len(row) != len(header):
            raise Mistake(f"{path}, line {line}: {len(row)} columns, the header has {len(header)}")
        numbers.append(values)
    return Task(name, np.array(numbers, np.float32), [row[column] for row in rows[1:]])


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
