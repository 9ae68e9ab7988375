"""Split CUB: the 200 birds of CUB-200-2011 in tasks of ten classes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from mdmt.benchmarks.splits import (
    IMAGENET_MEAN,
    SUBSTITUTE,
    TASKS,
    count_tasks,
    load_parts,
    rows_of_classes,
    shuffle_classes,
    split_stream,
)
from mdmt.data.fetch import ensure_unpacked
from mdmt.data.fingerprint import unpublished_fingerprint
from mdmt.data.images import OnImage
from mdmt.data.readers import read_cub
from mdmt.tasks import HeadKind, Stream

OUTPUTS = 200
IMAGE_SIZE = 224
PUBLISHED_SIZES = (5_994, 5_794)  # training and test images


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
    progress: OnImage | None = None,
) -> Stream:
    """Make Split CUB from the official split, about 300 training images a task.

    Pixels are 0 to 255, minus the published mean of each channel.
    """
    count = count_tasks("split-cub", tasks, cross_validation)
    cub = read_cub(ensure_unpacked("cub", data).folder)
    order = class_order(seed, cross_validation)[:count]
    train, test = (
        partial(rows_of_classes, cub.labels, among=part) for part in (cub.train, cub.test)
    )
    parts = [(train(classes), test(classes)) for classes in order]
    loaded = load_parts(cub, parts, image_size, subset, seed, cache, progress)
    is_published = (len(cub.train), len(cub.test)) == PUBLISHED_SIZES
    return split_stream(
        "split-cub",
        order,
        loaded.parts,
        seed=seed,
        heads=heads,
        subset=subset,
        cross_validation=cross_validation,
        images=loaded.copies if is_published else SUBSTITUTE,
        image_size=None if image_size == IMAGE_SIZE else image_size,
        outputs=OUTPUTS,
        scale=1.0,
        mean=IMAGENET_MEAN,
        notes=loaded.notes,
    )


def cub_fingerprint(data: str | Path | None) -> str | None:
    """The fingerprint of the images; None for the published ones, packed or not."""
    return unpublished_fingerprint("cub", data, read_cub, PUBLISHED_SIZES)
