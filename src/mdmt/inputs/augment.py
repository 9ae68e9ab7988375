"""Augmentation: images are shifted and mirrored at random."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mdmt.errors import Mistake
from mdmt.inputs.device import send

Augmentation = Literal["none", "crop-flip"]
AUGMENTATIONS = ("none", "crop-flip")
SHIFT_DIVISOR = 8  # an image is shifted by up to an eighth of its side


def check_augmentation(name: str) -> Augmentation:
    """Refuse an unknown augmentation."""
    if name not in AUGMENTATIONS:
        raise Mistake(f"augment={name!r}: must be one of {', '.join(AUGMENTATIONS)}")
    return name  # type: ignore[return-value]


def check_images(what: str, inputs: Tensor) -> None:
    """Refuse inputs that are no images."""
    if inputs.ndim != 4:
        raise Mistake(
            f"{what} needs images of shape (N, channels, height, width), but inputs are"
            f" {inputs.ndim}-dimensional"
        )


def mirrored(images: Tensor) -> Tensor:
    """Images with left and right swapped."""
    return images.flip(-1)


def augment(kind: Augmentation, inputs: Tensor, generator: np.random.Generator) -> Tensor:
    """Shift each image of a batch at random, mirroring it at its borders, and flip half of them.

    >>> picture = torch.arange(16).view(1, 1, 4, 4)
    >>> augment("crop-flip", picture, np.random.default_rng(0)).shape
    torch.Size([1, 1, 4, 4])
    >>> augment("none", picture, np.random.default_rng(0)) is picture
    True
    """
    if kind == "none":
        return inputs
    check_images(f"augment={kind!r}", inputs)
    count, _, height, width = inputs.shape
    rows = _places(height, generator, count)
    columns = _places(width, generator, count)
    flipped = generator.random(count) < 0.5
    columns[flipped] = columns[flipped, ::-1]
    images = torch.arange(count, device=inputs.device)[:, None, None]
    # Index tensors around a slice put the channels last; `permute` moves them back.
    down, across = (send(torch.from_numpy(places), inputs.device) for places in (rows, columns))
    picked = inputs[images, :, down[:, :, None], across[:, None, :]]
    return picked.permute(0, 3, 1, 2)


def _places(size: int, generator: np.random.Generator, count: int) -> NDArray[np.int64]:
    """For each image, the rows (or columns) that a random crop reads, mirrored at the border."""
    most = size // SHIFT_DIVISOR
    shifts = generator.integers(-most, most + 1, count)
    places = np.abs(np.arange(size)[None, :] + shifts[:, None])
    mirrored: NDArray[np.int64] = np.minimum(places, 2 * (size - 1) - places)
    return mirrored
