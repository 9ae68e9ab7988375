"""Split CUB: the 200 birds of CUB-200-2011 in tasks of ten classes."""

from __future__ import annotations

from pathlib import Path

from mdmt.benchmarks.splits import (
    IMAGENET_MEAN,
    TASKS,
    Selection,
    count_tasks,
    reductions,
    resized_copies,
    rows_of_classes,
    shuffle_classes,
    split_task,
    task_name,
)
from mdmt.data.fetch import ensure_unpacked
from mdmt.data.fingerprint import unpublished_fingerprint
from mdmt.data.images import Progress, load_images
from mdmt.data.readers import LabelledImages, read_cub
from mdmt.tasks import HeadKind, Stream

OUTPUTS = 200
IMAGE_SIZE = 224
PUBLISHED = (5_994, 5_794)  # training and test images


def class_order(seed: int, cross_validation: bool = False) -> list[list[int]]:
    """The classes of each task: labels 30 to 199 shuffled, in tens (0 to 29 for cross-validation).

    >>> class_order(1234)[0]
    [87, 81, 139, 180, 163, 78, 70, 159, 124, 131]
    """
    return shuffle_classes(seed, range(30) if cross_validation else range(30, 200), 10)


def split_cub(
    seed: int,
    tasks: int = TASKS,
    heads: HeadKind = "per-task",
    *,
    data: str | Path | None = None,
    image_size: int = IMAGE_SIZE,
    subset: int | None = None,
    cross_validation: bool = False,
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> Stream:
    """The official split, about 300 training images a task.

    Pixels are 0 to 255, minus the published mean of each channel.
    """
    count = count_tasks("split-cub", tasks, cross_validation)
    cub = read_cub(ensure_unpacked("cub", data).folder)
    images = load_images(cub.paths, image_size, cache=cache, progress=progress)
    source = LabelledImages(images.pixels, cub.labels)
    stream = []
    for number, classes in enumerate(class_order(seed, cross_validation)[:count]):
        train = Selection(source, rows_of_classes(cub.labels, classes, cub.train))
        test = Selection(source, rows_of_classes(cub.labels, classes, cub.test))
        name = task_name("cub", number, cross_validation)
        stream.append(
            split_task(name, classes, train, test, subset=subset, seed=seed, number=number)
        )
    if (len(cub.train), len(cub.test)) == PUBLISHED:
        origin = resized_copies(images.enlarged, len(cub.paths), image_size)
    else:
        origin = "substitute images"
    return Stream(
        "split-cub",
        stream,
        heads=heads,
        outputs=OUTPUTS,
        scale=1.0,
        mean=IMAGENET_MEAN,
        reduced=reductions(
            cross_validation=cross_validation,
            tasks=None if count == TASKS else count,
            subset=subset,
            image_size=None if image_size == IMAGE_SIZE else image_size,
            images=origin,
        ),
    )


def fingerprint(data: str | Path | None) -> str | None:
    """What tells these images from others; None of the published ones, also while they are
    packed.
    """
    return unpublished_fingerprint("cub", data, read_cub, PUBLISHED)
