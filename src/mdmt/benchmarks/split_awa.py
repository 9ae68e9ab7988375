"""Split AWA: Animals with Attributes 2, five classes drawn anew for each task, so that classes come back."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor

from mdmt.benchmarks.splits import (
    HELD_OUT,
    IMAGENET_MEAN,
    TASKS,
    Part,
    count_of_tasks,
    home,
    of_classes,
    reduced,
    source_of,
    split_task,
    task_name,
)
from mdmt.data.images import Progress, load_images
from mdmt.data.readers import ImageList, read_awa2
from mdmt.data.sources import substitute
from mdmt.errors import Mistake
from mdmt.tasks import Heads, Stream

OUTPUTS = 850  # each task has a copy of the 50 classes of its own, five of them in use
IMAGE_SIZE = 224
PUBLISHED = (26_102, 5_600)  # images to train and to test on


def class_order(seed: int, cross_validation: bool = False) -> list[list[int]]:
    """The classes of each task: five of 15 to 49 drawn for every task (of 0 to 14 for cross-validation).

    >>> class_order(1234)[0]
    [43, 22, 15, 20, 17]
    """
    generator = random.Random(seed)
    pool, count = (range(15), HELD_OUT) if cross_validation else (range(15, 50), TASKS)
    return [generator.sample(pool, 5) for _ in range(count)]


def shares(order: list[list[int]], listed: ImageList) -> list[Tensor]:
    """The training images of each task: a class's images, in order, in equal parts over the tasks it occurs in.

    What is left over when they are not divisible is not used: the parts are equal.
    """
    times, used, made = Counter(c for classes in order for c in classes), Counter[int](), []
    for classes in order:
        pieces = []
        for label in classes:
            images = of_classes(listed.labels, [label], listed.train)
            size = len(images) // times[label]
            pieces.append(images[used[label] * size :][:size])
            used[label] += 1
        made.append(torch.cat(pieces))
    return made


def split_awa(
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
    """Accuracy is the mean over a task's five classes, each tested on all its test images; inputs as in Split CUB.

    With fewer tasks, the shares of a class are still those of all 17.
    """
    count = count_of_tasks("split-awa", tasks, cross_validation)
    folder = home("awa2", data)
    listed = read_awa2(folder)
    if len(listed.classes) != 50:
        raise Mistake(f"{folder / 'classes.txt'} lists {len(listed.classes)} classes; the data set has 50")
    images = load_images(listed.paths, image_size, cache=cache, progress=progress)
    order, made = class_order(seed, cross_validation), []
    for number, (classes, share) in enumerate(zip(order, shares(order, listed), strict=True)):
        if number < count:
            train = Part(images.pixels, listed.labels, share)
            test = Part(images.pixels, listed.labels, of_classes(listed.labels, classes, listed.test))
            name = task_name("awa", number, cross_validation)
            made.append(split_task(name, classes, train, test, subset=subset, seed=seed, number=number))
    published = (len(listed.train), len(listed.test)) == PUBLISHED and substitute("awa2", data) is None
    source = source_of(images.enlarged, len(listed.paths), image_size) if published else "substitute images"
    size = None if image_size == IMAGE_SIZE else image_size
    return Stream(
        "split-awa", made, heads=heads, outputs=OUTPUTS, per_class=True, scale=1.0, mean=IMAGENET_MEAN,
        reduced=reduced(count, cross_validation, subset, size, source),
    )  # fmt: skip
