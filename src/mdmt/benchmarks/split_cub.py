"""Split CUB: the 200 birds of CUB-200-2011 in tasks of ten classes."""

from __future__ import annotations

from pathlib import Path

from mdmt.benchmarks.splits import (
    IMAGENET_MEAN,
    TASKS,
    Part,
    count_of_tasks,
    home,
    of_classes,
    reduced,
    shuffled_classes,
    source_of,
    split_task,
    task_name,
)
from mdmt.data.images import Progress, load_images
from mdmt.data.readers import read_cub
from mdmt.tasks import Heads, Stream

OUTPUTS = 200
IMAGE_SIZE = 224


def class_order(seed: int, cross_validation: bool = False) -> list[list[int]]:
    """The classes of each task: labels 30 to 199 shuffled and cut in tens (0 to 29 for cross-validation).

    >>> class_order(1234)[0]
    [87, 81, 139, 180, 163, 78, 70, 159, 124, 131]
    """
    return shuffled_classes(seed, range(30) if cross_validation else range(30, 200), 10)


def split_cub(
    seed: int,
    tasks: int = TASKS,
    heads: Heads = "per-task",
    *,
    data: str | Path | None = None,
    image_size: int = IMAGE_SIZE,
    subset: int | None = None,
    cross_validation: bool = False,
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> Stream:
    """The official split, about 300 training images a task; not scaled, minus the published mean of each channel."""
    count = count_of_tasks("split-cub", tasks, cross_validation)
    listed = read_cub(home("cub", data))
    images = load_images(listed.paths, image_size, cache=cache, progress=progress)
    made = []
    for number, classes in enumerate(class_order(seed, cross_validation)[:count]):
        train, test = (
            Part(images.pixels, listed.labels, of_classes(listed.labels, classes, among))
            for among in (listed.train, listed.test)
        )
        name = task_name("cub", number, cross_validation)
        made.append(split_task(name, classes, train, test, subset=subset, seed=seed, number=number))
    published = (len(listed.train), len(listed.test)) == (5994, 5794)
    source = source_of(images.enlarged, len(listed.paths), image_size) if published else "substitute images"
    size = None if image_size == IMAGE_SIZE else image_size
    return Stream(
        "split-cub", made, heads=heads, outputs=OUTPUTS, scale=1.0, mean=IMAGENET_MEAN,
        reduced=reduced(count, cross_validation, subset, size, source),
    )  # fmt: skip
