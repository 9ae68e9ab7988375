"""Your own images: DIR/task/class/*.jpg|png, or DIR/task/{train,test}/class/*.

The whole tree is checked before any image is read; a Mistake names the path that is wrong. Hidden
files are ignored.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mdmt.benchmarks.splits import draw, reductions
from mdmt.data.fingerprint import fingerprint as fingerprint_of_files
from mdmt.data.images import IMAGE_SUFFIXES, Progress, load_images
from mdmt.errors import Mistake
from mdmt.tasks import HeadKind, Stream, Task

IMAGE_SIZE = 64
LAYOUT = "DIR/task/class/image.jpg or DIR/task/{train,test}/class/image.jpg"
SPLITS = {"train", "test", "val", "valid", "validation"}  # what people call the parts of one task
IGNORE = {"thumbs.db", "desktop.ini", "__macosx"}
Classes = dict[str, list[Path]]  # the images of each class, all in name order


@dataclass(frozen=True)
class TaskFiles:
    """The images of a task."""

    train: Classes
    test: Classes


def folder(
    seed: int,
    tasks: int | None = None,
    heads: HeadKind = "per-task",
    *,
    data: str | Path,
    image_size: int = IMAGE_SIZE,
    subset: int | None = None,
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> Stream:
    """The folders of DIR as tasks, in name order, and their class folders as classes."""
    places = _task_folders(Path(data))
    if tasks is not None and not 1 <= tasks <= len(places):
        raise Mistake(f"tasks={tasks!r}: {data} has {len(places)}, so 1 to {len(places)}")
    count = len(places) if tasks is None else tasks
    files = [_task_files(place) for place in places]  # checked, even if not asked for
    stream = []
    for number in range(count):
        task = _task(places[number].name, files[number], image_size, cache, progress)
        if subset is not None:
            task.train = task.train.subset(draw(task.train.labels, subset, seed, number))
        stream.append(task)
    return Stream(
        "folder",
        stream,
        heads=heads,
        reduced=reductions(tasks=None if count == len(places) else count, subset=subset),
    )


def count_classes(data: str | Path, tasks: int | None = None) -> int:
    """Count the classes of the first tasks, or of all; a class of two tasks counts twice."""
    places = _task_folders(Path(data))[:tasks]
    return sum(len(_class_folders(place)) for place in places)


def fingerprint(data: str | Path) -> str:
    """What tells this folder from others, and from itself before a change: its files, their sizes and times."""
    files = [_task_files(place) for place in _task_folders(Path(data))]
    classes = [paths for task in files for part in (task.train, task.test) for paths in part.values()]
    return fingerprint_of_files(Path(data), [path for paths in classes for path in paths])


def folder_task(
    place: str | Path,
    name: str | None = None,
    *,
    image_size: int = IMAGE_SIZE,
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> Task:
    """Make one task from its folder, called as the folder unless `name` is given."""
    place = Path(place)
    return _task(name or place.resolve().name, _task_files(place), image_size, cache, progress)


def _task(
    name: str,
    files: TaskFiles,
    size: int,
    cache: str | Path | None,
    progress: Progress | None,
) -> Task:
    paths: list[Path] = []
    labels: list[str] = []
    for classes in (files.train, files.test):
        for label, class_paths in classes.items():
            paths += class_paths
            labels += [label] * len(class_paths)
    # Each task has its own cache, so that a new task does not decode the earlier ones again.
    pixels = load_images(paths, size, cache=cache, progress=progress).pixels
    cut = sum(map(len, files.train.values()))
    test = (pixels[cut:], labels[cut:]) if files.test else None
    return Task(name, pixels[:cut], labels[:cut], test=test, classes=list(files.train))


def _task_folders(data: Path) -> list[Path]:
    """List the folders of the tasks; two with one name, or the split of a single task, are refused."""
    places = _folders(data, "task")
    _check_names(places)
    names = [place.name for place in places]
    if "train" in names and set(names) <= SPLITS and not _parts(data / "train"):
        raise Mistake(
            f"{data} holds {' and '.join(names)}, which are parts of one task, not tasks: "
            f"move them into a folder of the task's name, {data / 'NAME' / 'train'} and {data / 'NAME' / 'test'}"
        )
    return places


def _check_names(places: list[Path]) -> None:
    """Refuse names that differ only in case, spaces or the spelling of an accent."""
    first_with: dict[str, Path] = {}
    for place in places:
        name = unicodedata.normalize("NFC", place.name).casefold().strip()
        twin = first_with.setdefault(name, place)
        if twin is not place:
            raise Mistake(f"{place} and {twin.name!r} are two tasks with one name: rename one of them")


def _task_files(task: Path) -> TaskFiles:
    """List the images of a task; without train and test folders, split each class 80 to 20."""
    inside = _folders(task, "class")
    parts = _parts(task)
    if not parts:
        return _split({place.name: _images(place) for place in inside})
    for place in inside:
        if place.name not in parts:
            raise Mistake(f"{place} stands beside {parts[0]}: expected {LAYOUT}")
    if "train" not in parts:
        raise Mistake(f"{task / 'train'} is missing: there is only {task / 'test'}")
    train = _class_files(task / "train")
    test = _class_files(task / "test") if "test" in parts else {}
    for name in test:
        if name not in train:
            raise Mistake(
                f"{task / 'test' / name} is a class without training images: {task / 'train'} has no {name!r}"
            )
    return TaskFiles(train, test)


def _parts(task: Path) -> list[str]:
    """Name the parts that a task is split into; none where its folders are classes."""
    return [name for name in ("test", "train") if (task / name).is_dir() and not _holds_images(task / name)]


def _class_folders(task: Path) -> list[Path]:
    """List the folders of a task's classes, without a look at their images."""
    return _folders(task / "train" if "train" in _parts(task) else task, "class")


def _class_files(part: Path) -> Classes:
    return {place.name: _images(place) for place in _folders(part, "class")}


def _split(classes: Classes) -> TaskFiles:
    """Split each class: a fifth, rounded, is for testing, the same for every seed."""
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
    """List the folders in a folder, in name order; there must be some, and no files."""
    if not place.is_dir():
        problem = "not a folder" if place.exists() else "missing"
        raise Mistake(f"{place} is {problem}: expected {LAYOUT}")
    inside = _visible(place)
    for path in inside:
        if not path.is_dir():
            raise Mistake(f"{path} is a file where {kind} folders stand: expected {LAYOUT}")
    if not inside:
        raise Mistake(f"{place} is empty: it has no {kind} folders; expected {LAYOUT}")
    return inside


def _images(place: Path) -> list[Path]:
    """List the images of a class, in name order."""
    inside = _visible(place)
    for path in inside:
        if path.is_dir():
            raise Mistake(f"{path} is a folder inside the class {place.name!r}: expected {LAYOUT}")
        if path.suffix.lower() not in IMAGE_SUFFIXES:
            raise Mistake(f"{path} is not an image: {', '.join(IMAGE_SUFFIXES)} are read")
    if not inside:
        raise Mistake(f"{place} is an empty class: put images there, or remove it")
    return inside


def _holds_images(place: Path) -> bool:
    """Tell whether a folder called train or test is a class, such as trains among vehicles."""
    return any(path.suffix.lower() in IMAGE_SUFFIXES and path.is_file() for path in _visible(place))


def _visible(place: Path) -> list[Path]:
    return sorted(path for path in place.iterdir() if not path.name.startswith(".") and path.name.lower() not in IGNORE)
