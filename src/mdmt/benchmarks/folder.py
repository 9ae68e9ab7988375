"""A person's own images: DIR/task/class/*.jpg|png, or DIR/task/{train,test}/class/*.

The whole tree is checked before any image is read. What is wrong is a ValueError of one line with the path. Hidden files
are passed over.
"""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np

from mdmt.benchmarks.splits import draw
from mdmt.data.images import Progress, load_images
from mdmt.data.readers import IMAGE_SUFFIXES
from mdmt.errors import Mistake
from mdmt.tasks import Heads, Stream, Task

IMAGE_SIZE = 64
LAYOUT = "DIR/task/class/image.jpg or DIR/task/{train,test}/class/image.jpg"
IGNORED = {"thumbs.db", "desktop.ini", "__macosx"}
Classes = dict[str, list[Path]]  # the images of each class, all in name order


def folder(
    seed: int,
    tasks: int | None = None,
    heads: Heads = "per-task",
    *,
    data: str | Path,
    image_size: int = IMAGE_SIZE,
    subset: int | None = None,
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> Stream:
    """The folders of DIR as tasks, in name order; their class folders as classes."""
    places = _folders(Path(data), "task")
    seen: dict[str, Path] = {}
    for place in places:
        twin = seen.setdefault(unicodedata.normalize("NFC", place.name).casefold().strip(), place)
        if twin is not place:
            raise Mistake(f"{place} and {twin.name!r} are two tasks with one name: rename one of them")
    if tasks is not None and not 1 <= tasks <= len(places):
        raise Mistake(f"tasks={tasks!r}: {data} has {len(places)}, so 1 to {len(places)}")
    count = len(places) if tasks is None else tasks
    files = [_parts(place) for place in places]  # all are checked, also those that are not asked for
    made = []
    for number, (place, (train, test)) in enumerate(zip(places[:count], files[:count], strict=True)):
        task = _task(place.name, train, test, image_size, cache, progress)
        if subset is not None:
            task.train = task.train.some(draw(task.train.labels, subset, seed, number))
        made.append(task)
    less = {"tasks": count} if count < len(places) else {}
    less |= {} if subset is None else {"subset": subset}
    return Stream("folder", made, heads=heads, reduced=less or None)


def folder_task(
    place: str | Path,
    name: str | None = None,
    *,
    image_size: int = IMAGE_SIZE,
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> Task:
    """One task from its folder; its name is the folder's unless given."""
    place = Path(place)
    return _task(name or place.resolve().name, *_parts(place), image_size, cache, progress)


def _task(
    name: str, train: Classes, test: Classes, size: int, cache: str | Path | None, progress: Progress | None
) -> Task:
    """Each task has a cache of its own, so that a new task does not decode the earlier ones again."""
    both = [(c, path) for part in (train, test) for c, files in part.items() for path in files]
    names = [c for c, _ in both]
    pixels = load_images([path for _, path in both], size, cache=cache, progress=progress).pixels
    cut = sum(map(len, train.values()))
    held_out = (pixels[cut:], names[cut:]) if len(names) > cut else None
    return Task(name, pixels[:cut], names[:cut], test=held_out, classes=list(train))


def _parts(task: Path) -> tuple[Classes, Classes]:
    """The training and test images of a task; without folders for them, every class is cut 80 to 20."""
    inside = _folders(task, "class")
    halves = [p.name for p in inside if p.name in ("train", "test") and not _holds_images(p)]
    if not halves:
        return _cut({place.name: _images(place) for place in inside})
    for place in inside:
        if place.name not in halves:
            raise Mistake(f"{place} stands beside {halves[0]}: expected {LAYOUT}")
    if "train" not in halves:
        raise Mistake(f"{task / 'train'} is missing: there is only {task / 'test'}")
    train = {place.name: _images(place) for place in _folders(task / "train", "class")}
    test: Classes = {}
    if "test" in halves:
        test = {place.name: _images(place) for place in _folders(task / "test", "class")}
    for name in test:
        if name not in train:
            raise Mistake(
                f"{task / 'test' / name} is a class without training images: {task / 'train'} has no {name!r}"
            )
    return train, test


def _cut(classes: Classes) -> tuple[Classes, Classes]:
    """A fixed split of each class: a fifth, rounded, to test on, the same whatever the seed."""
    train: Classes = {}
    test: Classes = {}
    for name, files in classes.items():
        drawn = set(np.random.RandomState(0).permutation(len(files))[: (len(files) + 2) // 5].tolist())
        train[name] = [path for i, path in enumerate(files) if i not in drawn]
        if drawn:
            test[name] = [path for i, path in enumerate(files) if i in drawn]
    return train, test


def _folders(place: Path, of: str) -> list[Path]:
    """The folders in a folder, in name order; there must be some, and nothing else."""
    if not place.is_dir():
        raise Mistake(f"{place} is {'not a folder' if place.exists() else 'missing'}: expected {LAYOUT}")
    inside = _visible(place)
    for path in inside:
        if not path.is_dir():
            raise Mistake(f"{path} is a file where {of} folders stand: expected {LAYOUT}")
    if not inside:
        raise Mistake(f"{place} is empty: it has no {of} folders; expected {LAYOUT}")
    return inside


def _images(place: Path) -> list[Path]:
    """The images of a class, in name order."""
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
    """Whether a folder called train or test is a class of that name, such as trains among vehicles."""
    return any(path.suffix.lower() in IMAGE_SUFFIXES and path.is_file() for path in _visible(place))


def _visible(place: Path) -> list[Path]:
    return sorted(p for p in place.iterdir() if not p.name.startswith(".") and p.name.lower() not in IGNORED)
