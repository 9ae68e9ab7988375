"""Split AWA: Animals with Attributes 2, five classes drawn for each task, so that classes recur."""

from __future__ import annotations

import random
from collections import Counter
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor

from mdmt.benchmarks.splits import (
    HELD_OUT,
    IMAGENET_MEAN,
    SUBSTITUTE,
    TASKS,
    count_tasks,
    load_parts,
    rows_of_classes,
    split_stream,
)
from mdmt.data.fetch import ensure_unpacked
from mdmt.data.fingerprint import unpublished_fingerprint
from mdmt.data.images import OnImage
from mdmt.data.readers import ImageList, read_awa2
from mdmt.data.sources import Location, substitute_note
from mdmt.errors import Mistake
from mdmt.tasks import HeadKind, Stream

OUTPUTS = 850  # 17 tasks with their own copy of the 50 classes, five of which are in use
IMAGE_SIZE = 224
PUBLISHED_SIZES = (26_102, 5_600)  # training and test images


def class_order(seed: int, cross_validation: bool = False) -> list[list[int]]:
    """The classes of each task: five drawn from 15 to 49 (from 0 to 14 for cross-validation).

    >>> class_order(1234)[0]
    [43, 22, 15, 20, 17]
    """
    generator = random.Random(seed)  # noqa: S311 (the published order is drawn with it)
    pool = range(15) if cross_validation else range(15, 50)
    count = HELD_OUT if cross_validation else TASKS
    return [generator.sample(pool, 5) for _ in range(count)]


def training_shares(order: list[list[int]], awa: ImageList) -> list[Tensor]:
    """The rows of the training images of each task.

    The images of a class are divided, in their order, into equal shares for the tasks that it
    occurs in; images left over are not used.
    """
    occurrences = Counter(chain.from_iterable(order))
    past = Counter[int]()
    shares = []
    for classes in order:
        pieces = []
        for label in classes:
            rows = rows_of_classes(awa.labels, [label], awa.train)
            size = len(rows) // occurrences[label]
            pieces.append(rows[past[label] * size :][:size])
            past[label] += 1
        shares.append(torch.cat(pieces))
    return shares


def split_awa(
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
    """Make Split AWA. Accuracy is the mean over a task's classes; inputs are as in Split CUB.

    With fewer tasks, the shares of a class are still those of all 17.
    """
    count = count_tasks("split-awa", tasks, cross_validation)
    location = ensure_unpacked("awa2", data)
    awa = _read(location)
    order = class_order(seed, cross_validation)
    test = [rows_of_classes(awa.labels, classes, awa.test) for classes in order]
    parts = list(zip(training_shares(order, awa), test, strict=True))[:count]
    loaded = load_parts(awa, parts, image_size, subset, seed, cache, progress)
    return split_stream(
        "split-awa",
        order[:count],
        loaded.parts,
        seed=seed,
        heads=heads,
        subset=subset,
        cross_validation=cross_validation,
        images=loaded.copies if _is_published(location, awa) else SUBSTITUTE,
        image_size=None if image_size == IMAGE_SIZE else image_size,
        outputs=OUTPUTS,
        per_class=True,
        scale=1.0,
        mean=IMAGENET_MEAN,
        notes=loaded.notes,
    )


def _is_published(location: Location, awa: ImageList) -> bool:
    sizes = len(awa.train), len(awa.test)
    return sizes == PUBLISHED_SIZES and substitute_note(location) is None


def _read(location: Location) -> ImageList:
    awa = read_awa2(location.folder)
    if len(awa.classes) != 50:
        listing = location.folder / "classes.txt"
        raise Mistake(f"{listing} lists {len(awa.classes)} classes; the data set has 50")
    return awa


def awa_fingerprint(data: str | Path | None) -> str | None:
    """The fingerprint of the images; None for the published ones, packed or not."""
    return unpublished_fingerprint("awa2", data, read_awa2, PUBLISHED_SIZES)
