"""Your own images: DIR/task/class/*.jpg (png, webp, ...), or DIR/task/{train,test}/class/*.

The whole tree is checked before any image is read; a Mistake names the wrong path. Hidden files are
ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mdmt.benchmarks.splits import draw_rows, reductions
from mdmt.data.fingerprint import fingerprint
from mdmt.data.images import IMAGE_SUFFIXES, BrokenImages, Images, OnImage, load_images
from mdmt.errors import Mistake
from mdmt.inputs.saved import is_text
from mdmt.tasks import HeadKind, RowView, Stream, Task
from mdmt.words import count, printable, twins

IMAGE_SIZE = 32  # enough for a small network from scratch; 64 takes four times as long
LAYOUT = "DIR/task/class/image.jpg or DIR/task/{train,test}/class/image.jpg"
CLASSES_LAYOUT = "DIR/class/image.jpg"  # of one task
SPLITS = {"train", "test", "val", "valid", "validation"}  # usual names for parts of one task
NAMES = {"task": "tasks", "class": "classes"}
IGNORE = {"thumbs.db", "desktop.ini", "__macosx"}
Classes = dict[str, list[Path]]  # the images of each class, in name order


@dataclass(frozen=True)
class TaskFiles:
    """The image files of a task."""

    train: Classes
    test: Classes

    @property
    def paths(self) -> list[Path]:
        """The training images, then the test images."""
        lists = [*self.train.values(), *self.test.values()]
        return list(chain.from_iterable(lists))

    @property
    def labels(self) -> list[str]:
        """The class of each image of `paths`."""
        labels: list[str] = []
        for label, paths in chain(self.train.items(), self.test.items()):
            labels += [label] * len(paths)
        return labels


def folder(
    seed: int,
    tasks: int | None = None,
    heads: HeadKind = "per-task",
    *,
    data: str | Path,
    image_size: int = IMAGE_SIZE,
    subset: int | None = None,
    cache: str | Path | None = None,
    progress: OnImage | None = None,
    skip_broken: bool = False,
) -> Stream:
    """Make a stream of the folders in DIR: each is a task, in name order, with a folder a class.

    One Mistake names all images that cannot be read; with `skip_broken` they are skipped.
    """
    places = _task_folders(Path(data))
    if tasks is not None and not 1 <= tasks <= len(places):
        raise Mistake(f"tasks={tasks!r}: {data} has {len(places)}, so 1 to {len(places)}")
    files = [_task_files(place) for place in places]  # this checks all tasks, also unused ones
    files = files[:tasks]
    if heads == "shared":  # equal names are one class, whatever the task
        _check_names(NAMES["class"], Path(data), chain.from_iterable(task.train for task in files))
    images = _load_all(files, image_size, cache, progress, skip_broken)
    stream = []
    for number, (place, task_files) in enumerate(zip(places, files, strict=False)):
        task = _task(place.name, task_files, images[number])
        if subset is not None:
            task.train = task.train.subset(draw_rows(task.train.labels, subset, seed, number))
        stream.append(task)
    return Stream(
        "folder",
        stream,
        heads=heads,
        reduced=reductions(tasks=None if len(files) == len(places) else tasks, subset=subset),
        notes=(*_image_notes(files, images), *_untested_notes(places, files)),
    )


def count_classes(data: str | Path, tasks: int | None = None) -> int:
    """Count the classes of the first tasks, or of all; a class in two tasks counts twice."""
    places = _task_folders(Path(data))[:tasks]
    return sum(len(_class_folders(place)) for place in places)


def folder_fingerprint(data: str | Path) -> str:
    """The fingerprint of a folder, which changes when its files, their sizes or times do."""
    paths: list[Path] = []
    for place in _task_folders(Path(data)):
        paths += _task_files(place).paths
    return fingerprint(Path(data), paths)


def folder_task(
    place: str | Path,
    name: str | None = None,
    *,
    image_size: int = IMAGE_SIZE,
    cache: str | Path | None = None,
    progress: OnImage | None = None,
    skip_broken: bool = False,
) -> Task:
    """Make one task from its folder; it has the folder's name unless `name` is given."""
    place = Path(place)
    files = _task_files(place)
    (images,) = _load_all([files], image_size, cache, progress, skip_broken)
    return _task(name or place.resolve().name, files, images)


def class_images(place: str | Path) -> Classes:
    """The images of each class of a folder of class folders."""
    if _parts(Path(place)):
        raise Mistake(f"{place} is split into train and test: pass {Path(place, 'train')}")
    try:
        return _class_files(Path(place))
    except Mistake as error:
        raise Mistake(str(error).replace(LAYOUT, CLASSES_LAYOUT)) from None


def _load_all(
    tasks: list[TaskFiles],
    size: int,
    cache: str | Path | None,
    progress: OnImage | None,
    skip_broken: bool,
) -> list[Images]:
    """Load the images of each task; one Mistake names all that cannot be read."""
    images: list[Images] = []
    broken: list[str] = []
    for task in tasks:
        # Each task has its own cache, so that a new task does not decode the earlier ones again.
        try:
            images.append(
                load_images(
                    task.paths, size, cache=cache, progress=progress, skip_broken=skip_broken
                )
            )
        except BrokenImages as error:
            broken += error.reasons
    if broken:
        them = "it" if len(broken) == 1 else "them"
        raise BrokenImages(broken, f"; repair or remove {them}, or skip {them} with --skip-broken")
    return images


def _task(name: str, files: TaskFiles, images: Images) -> Task:
    labels = files.labels
    cut = sum(map(len, files.train.values()))
    train = _examples(images, labels, range(cut))
    for label, paths in files.train.items():
        if label not in train[1]:
            raise Mistake(f"{paths[0].parent} has no training images: all of them are broken")
    test = _examples(images, labels, range(cut, len(labels)))
    return Task(name, *train, test=test if test[1] else None, classes=list(files.train))


def _examples(
    images: Images, labels: list[str], numbers: range
) -> tuple[Tensor | RowView, list[str]]:
    """Some images with their labels, without the broken ones; pixels are not copied."""
    whole = [number for number in numbers if number not in images.broken]
    if len(whole) == len(numbers):
        return images.pixels[numbers.start : numbers.stop], labels[numbers.start : numbers.stop]
    return RowView(images.pixels, torch.tensor(whole)), [labels[number] for number in whole]


def _image_notes(tasks: list[TaskFiles], images: list[Images]) -> list[str]:
    """Notes on damaged caches, and one that names the skipped images, if there are any."""
    notes: list[str] = []
    paths: list[str] = []
    for task, pictures in zip(tasks, images, strict=True):
        notes += pictures.notes
        paths += [str(task.paths[number]) for number in pictures.broken]
    if paths:
        notes.append(f"{count('broken image', len(paths))} skipped: {', '.join(paths)}")
    return notes


def _untested_notes(places: list[Path], tasks: list[TaskFiles]) -> list[str]:
    """A note for each class with too few images to keep one for testing."""
    notes: list[str] = []
    for place, task in zip(places, tasks, strict=False):
        for name in task.train.keys() - task.test.keys() if not _parts(place) else ():
            images = count("image", len(task.train[name]))
            notes.append(f"{place / name} has {images}, too few to keep one for testing")
    return sorted(notes)


def _task_folders(data: Path) -> list[Path]:
    """List the folders of the tasks; refuse equal names and the parts of a single task."""
    places = _folders(data, "task")
    names = [place.name for place in places]
    if "train" in names and set(names) <= SPLITS and not _parts(data / "train"):
        raise Mistake(
            f"{data} holds {' and '.join(names)}, which are parts of one task, not tasks: move them"
            f" into a folder of the task's name, {data / 'NAME' / 'train'} and"
            f" {data / 'NAME' / 'test'}"
        )
    return places


def _check_names(kind: str, place: Path, names: Iterable[str]) -> None:
    """Refuse names that differ only in case, outer spaces or the encoding of an accent."""
    if (difference := twins(names)) is not None:
        raise Mistake(f"{place}: the {kind} {difference}: rename one of them, or merge them")


def _task_files(task: Path) -> TaskFiles:
    """List the images of a task; without train and test folders, split each class 80 to 20."""
    inside = _folders(task, "class")
    parts = _parts(task)
    if not parts:
        return _split({place.name: _images(place) for place in inside})
    for place in inside:
        if place.name not in parts:
            raise Mistake(f"{place} does not belong beside {parts[0]}: expected {LAYOUT}")
    if "train" not in parts:
        raise Mistake(f"{task / 'train'} is missing: there is only {task / 'test'}")
    train = _class_files(task / "train")
    test = _class_files(task / "test") if "test" in parts else {}
    for name in test:
        if name not in train:
            raise Mistake(
                f"{task / 'test' / name} is a class without training images: {task / 'train'} has"
                f" no {name!r}"
            )
    return TaskFiles(train, test)


def _parts(task: Path) -> list[str]:
    """The parts that a task is split into; empty if its folders are classes."""
    return [
        name
        for name in ("test", "train")
        if (task / name).is_dir() and not _holds_images(task / name)
    ]


def _class_folders(task: Path) -> list[Path]:
    """List the class folders of a task without reading their content."""
    return _folders(task / "train" if "train" in _parts(task) else task, "class")


def _class_files(part: Path) -> Classes:
    return {place.name: _images(place) for place in _folders(part, "class")}


def _split(classes: Classes) -> TaskFiles:
    """Keep a fifth of each class, rounded, for testing; the same for every seed."""
    train: Classes = {}
    test: Classes = {}
    for name, files in classes.items():
        order = np.random.RandomState(0).permutation(len(files))
        test_numbers = set(order[: (len(files) + 2) // 5].tolist())
        train[name] = [path for i, path in enumerate(files) if i not in test_numbers]
        if test_numbers:
            test[name] = [path for i, path in enumerate(files) if i in test_numbers]
    return TaskFiles(train, test)


def _folders(place: Path, kind: str) -> list[Path]:
    """List the folders in a folder, in name order; refuse files and an empty folder."""
    if not place.is_dir():
        problem = "not a folder" if place.exists() else "missing"
        raise Mistake(f"{place} is {problem}: expected {LAYOUT}")
    inside = _visible(place)
    for path in inside:
        if not path.is_dir():
            raise Mistake(f"{path} is a file among {kind} folders: expected {LAYOUT}")
    if not inside:
        raise Mistake(f"{place} is empty: it has no {kind} folders; expected {LAYOUT}")
    for path in inside:
        if not is_text(path.name):
            raise Mistake(f"{printable(str(path))}: the folder's name is not UTF-8; rename it")
    _check_names(NAMES[kind], place, (path.name for path in inside))
    return inside


def _images(place: Path) -> list[Path]:
    """List the images of a class, in name order."""
    inside = _visible(place)
    for path in inside:
        if path.is_dir():
            raise Mistake(f"{path} is a folder inside the class {place.name!r}: expected {LAYOUT}")
        if path.suffix.lower() not in IMAGE_SUFFIXES:
            raise Mistake(f"{path} is not an image; these are read: {', '.join(IMAGE_SUFFIXES)}")
    if not inside:
        raise Mistake(f"{place} is an empty class: add images or remove it")
    return inside


def _holds_images(place: Path) -> bool:
    """Whether a folder named train or test is a class, such as trains among vehicles."""
    return any(path.suffix.lower() in IMAGE_SUFFIXES and path.is_file() for path in _visible(place))


def _visible(place: Path) -> list[Path]:
    return sorted(
        path
        for path in place.iterdir()
        if not path.name.startswith(".") and path.name.lower() not in IGNORE
    )
