"""The data sets as their publishers give them out: MNIST, CIFAR-100, CUB-200-2011 and Animals with Attributes 2.

A file that is missing or damaged is a ValueError of one line that names it. Labels are zero-based class numbers in the
order in which the data set lists its classes.
"""

from __future__ import annotations

import gzip
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mdmt.data.pickles import read_pickle
from mdmt.data.sources import awa2_split
from mdmt.errors import Mistake

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")


class Arrays(NamedTuple):
    """A data set in memory: uint8 inputs and int64 labels, to train and to test on."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor


@dataclass(frozen=True)
class ImageList:
    """A data set of image files: their paths and labels, and which of them are to train and to test on."""

    paths: list[Path]
    labels: Tensor
    train: Tensor
    test: Tensor
    classes: list[str]


# MNIST


def read_mnist(folder: str | Path) -> Arrays:
    """The four idx files, packed (.gz) or not; images are (N, 28, 28). Fashion-MNIST has the same files."""
    parts: list[Tensor] = []
    for stem in ("train", "t10k"):
        images = _packed_or_not(Path(folder, f"{stem}-images-idx3-ubyte"))
        labels = _packed_or_not(Path(folder, f"{stem}-labels-idx1-ubyte"))
        x, y = torch.from_numpy(read_idx(images, 3)), torch.from_numpy(read_idx(labels, 1)).long()
        if len(x) != len(y):
            raise Mistake(f"{images} holds {len(x)} images, but {labels.name} {len(y)} labels")
        parts += [x, y]
    return Arrays(*parts)


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """An idx file of unsigned bytes: magic number, one size per dimension, and so many bytes."""
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except FileNotFoundError:
        raise Mistake(f"{path} is missing") from None
    except (OSError, EOFError, zlib.error) as error:
        raise Mistake(f"{path} is damaged: {error}") from None
    magic, start = 0x0800 + dimensions, 4 + 4 * dimensions
    if len(data) < start or int.from_bytes(data[:4], "big") != magic:
        raise Mistake(f"{path} is damaged: an idx file of {dimensions} dimensions begins with the number {magic}")
    shape = [int.from_bytes(data[at : at + 4], "big") for at in range(4, start, 4)]
    if len(data) - start != math.prod(shape):
        raise Mistake(f"{path} is damaged: {math.prod(shape)} bytes of data expected, {len(data) - start} found")
    return np.frombuffer(bytearray(data), np.uint8, offset=start).reshape(shape)  # copied: tensors must be writable


def _packed_or_not(path: Path) -> Path:
    packed = path.with_name(f"{path.name}.gz")
    return path if path.exists() else packed


# CIFAR-100


def read_cifar100(folder: str | Path) -> Arrays:
    """The files `train` and `test` of cifar-100-python; images are (N, 3, 32, 32), labels the fine ones."""
    parts: list[Tensor] = []
    for path in (Path(folder, "train"), Path(folder, "test")):
        rows = read_pickle(path)
        x, y = (rows.get(key) if isinstance(rows, dict) else None for key in (b"data", b"fine_labels"))
        if not isinstance(x, np.ndarray) or x.dtype != np.uint8 or x.shape[1:] != (3072,) or not isinstance(y, list):
            raise Mistake(f"{path} is damaged: no 'data' of uint8 rows of 3,072 with 'fine_labels'")
        if len(x) != len(y) or not all(isinstance(label, int) and 0 <= label < 100 for label in y):
            raise Mistake(f"{path} is damaged: {len(x)} images need as many labels, each from 0 to 99")
        parts += [torch.from_numpy(x).view(-1, 3, 32, 32), torch.tensor(y)]
    return Arrays(*parts)


def read_cifar100_names(folder: str | Path) -> list[str]:
    """The names of the 100 classes, from the file `meta`."""
    path = Path(folder, "meta")
    rows = read_pickle(path)
    names = rows.get(b"fine_label_names") if isinstance(rows, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, bytes) for name in names):
        raise Mistake(f"{path} is damaged: no list 'fine_label_names'")
    return [name.decode() for name in names]


# CUB-200-2011


def read_cub(folder: str | Path) -> ImageList:
    """images.txt, image_class_labels.txt, train_test_split.txt and classes.txt of CUB_200_2011: the official split."""
    folder = Path(folder)
    names, labels, split, classes = (
        _table(folder / f"{name}.txt") for name in ("images", "image_class_labels", "train_test_split", "classes")
    )
    for name, column in (("image_class_labels.txt", labels), ("train_test_split.txt", split)):
        if column.keys() != names.keys():
            raise Mistake(f"{folder / name} does not list the images of images.txt: {len(column)} and {len(names)}")
    numbers = {key: i for i, key in enumerate(classes)}
    for key, label in labels.items():
        if label not in numbers:
            raise Mistake(f"{folder / 'image_class_labels.txt'}: image {key} has class {label}, not in classes.txt")
    for key, part in split.items():
        if part not in ("0", "1"):
            raise Mistake(f"{folder / 'train_test_split.txt'}: image {key} has {part!r}, neither 0 nor 1")
    is_train = torch.tensor([split[key] == "1" for key in names], dtype=torch.bool)
    return ImageList(
        [folder / "images" / name for name in names.values()],
        torch.tensor([numbers[labels[key]] for key in names]),
        is_train.nonzero()[:, 0],
        (~is_train).nonzero()[:, 0],
        list(classes.values()),
    )


# Animals with Attributes 2


def read_awa2(folder: str | Path) -> ImageList:
    """classes.txt and JPEGImages/<class>/*.jpg, cut as `awa2_split` says; the validation images are left out."""
    folder = Path(folder)
    classes = list(_table(folder / "classes.txt").values())
    paths: list[Path] = []
    labels: list[int] = []
    train: list[int] = []
    test: list[int] = []
    for number, name in enumerate(classes):
        place = folder / "JPEGImages" / name
        if not place.is_dir():
            raise Mistake(f"{place} is missing: classes.txt lists the class {name!r}")
        files = sorted(p for p in place.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES)
        to_train, validation, _ = awa2_split(len(files))
        for which, kept in ((train, files[:to_train]), (test, files[to_train + validation :])):
            which += range(len(paths), len(paths) + len(kept))
            paths += kept
            labels += [number] * len(kept)
    return ImageList(paths, torch.tensor(labels), torch.tensor(train), torch.tensor(test), classes)


def _table(path: Path) -> dict[str, str]:
    """Lines of a key and a value."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise Mistake(f"{path} is missing") from None
    except UnicodeDecodeError:
        raise Mistake(f"{path} is damaged: it is not text") from None
    rows: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        key, _, value = line.strip().replace("\t", " ").partition(" ")
        if not key and not value:
            continue
        if not value or key in rows:
            raise Mistake(f"{path}, line {number}: {line!r} is not a new number and a value")
        rows[key] = value.strip()
    if not rows:
        raise Mistake(f"{path} is empty")
    return rows
