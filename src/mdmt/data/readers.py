"""Readers of the published formats: MNIST, CIFAR-100, CUB-200-2011 and Animals with Attributes 2.

A missing or damaged file is a Mistake that names it. Labels are class numbers from 0, in the order
in which the data set lists its classes.
"""

from __future__ import annotations

import gzip
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mdmt.data.images import IMAGE_SUFFIXES
from mdmt.data.pickles import read_pickle
from mdmt.errors import Mistake
from mdmt.words import count

MAX_IMAGES = 10**6  # in a file of MNIST or its kin; EMNIST's largest has 697,932
PIECE = 2**20  # bytes that are read at a time


@dataclass(frozen=True)
class LabelledImages:
    """Images (uint8, one per row) and the int64 label of each."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Arrays:
    """A data set in memory."""

    train: LabelledImages
    test: LabelledImages


@dataclass(frozen=True)
class ImageList:
    """A data set of image files; `train` and `test` are positions in `paths` and `labels`."""

    paths: list[Path]
    labels: Tensor
    train: Tensor
    test: Tensor
    classes: list[str]
    validation: tuple[Path, ...] = ()  # no stream uses these


# MNIST


def read_mnist(folder: str | Path) -> Arrays:
    """Read the four idx files, packed (.gz) or not; Fashion-MNIST has the same files."""
    return Arrays(_read_mnist_split(Path(folder), "train"), _read_mnist_split(Path(folder), "t10k"))


def _read_mnist_split(folder: Path, stem: str) -> LabelledImages:
    images_path = _packed_or_not(folder / f"{stem}-images-idx3-ubyte")
    labels_path = _packed_or_not(folder / f"{stem}-labels-idx1-ubyte")
    images = read_idx(images_path, (28, 28))
    labels = read_idx(labels_path, ())
    if len(images) != len(labels):
        raise Mistake(
            f"{images_path} holds {len(images)} images, but {labels_path.name} {len(labels)} labels"
        )
    return LabelledImages(torch.from_numpy(images), torch.from_numpy(labels).long())


def read_idx(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Read an idx file of unsigned bytes: a magic number, the size of each dimension, the data.

    `shape` is that of one entry. A packed file is unpacked no further than its header says.
    """
    try:
        with open(path, "rb") as file:
            is_packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            with gzip.open(file) if is_packed else file as content:
                return _read_idx(path, content, shape)  # type: ignore[arg-type]
    except FileNotFoundError:
        raise Mistake(f"{path} is missing") from None
    except (OSError, EOFError, zlib.error) as error:
        raise Mistake(f"{path} is damaged: {error}") from None


def _read_idx(path: Path, content: IO[bytes], shape: tuple[int, ...]) -> NDArray[np.uint8]:
    dimensions = 1 + len(shape)
    header = content.read(4 + 4 * dimensions)
    if len(header) < 4 + 4 * dimensions:
        raise Mistake(f"{path} is damaged: it has no idx header")
    magic = 0x0800 + dimensions
    first, number, *sizes = (int.from_bytes(header[at : at + 4]) for at in range(0, len(header), 4))
    if first != magic:
        raise Mistake(
            f"{path} is damaged: an idx file of {count('dimension', dimensions)} "
            f"begins with the number {magic}, this one with {first}"
        )
    if tuple(sizes) != shape:
        height, width = sizes
        raise Mistake(f"{path} holds images of {height} x {width} pixels; MNIST has 28 x 28")
    if number > MAX_IMAGES:
        raise Mistake(f"{path} is damaged: it claims to hold {number:,} images or labels")
    expected = number * math.prod(shape)
    data = bytearray()  # torch needs writable memory
    while len(data) <= expected and (piece := content.read(min(PIECE, expected + 1 - len(data)))):
        data += piece
    if len(data) != expected:
        found = len(data) if len(data) < expected else "more"
        raise Mistake(f"{path} is damaged: {expected} bytes of data expected, {found} found")
    return np.frombuffer(data, np.uint8).reshape(number, *shape)


def _packed_or_not(path: Path) -> Path:
    packed = path.with_name(f"{path.name}.gz")
    return path if path.exists() else packed


# CIFAR-100


def read_cifar100(folder: str | Path) -> Arrays:
    """Read `train` and `test` of cifar-100-python: images (N, 3, 32, 32) and fine labels."""
    return Arrays(_read_cifar_split(Path(folder, "train")), _read_cifar_split(Path(folder, "test")))


def _read_cifar_split(path: Path) -> LabelledImages:
    content = read_pickle(path)
    images = pickle_entry(path, content, "data", np.ndarray)
    labels = pickle_entry(path, content, "fine_labels", list)
    if images.dtype != np.uint8 or images.ndim != 2 or images.shape[1] != 3072:
        shape = " x ".join(map(str, images.shape))
        raise Mistake(f"{path} is damaged: 'data' is {shape} {images.dtype}, not N x 3072 uint8")
    if len(images) != len(labels):
        raise Mistake(f"{path} is damaged: {len(images)} images, but {len(labels)} labels")
    if not all(isinstance(label, int) and 0 <= label < 100 for label in labels):
        raise Mistake(f"{path} is damaged: a label is not a number from 0 to 99")
    return LabelledImages(torch.from_numpy(images).view(-1, 3, 32, 32), torch.tensor(labels))


def pickle_entry(path: Path, content: Any, key: str, kind: type) -> Any:
    """Return one entry of an unpickled dictionary, whose keys are the byte strings of Python 2."""
    value = content.get(key.encode()) if isinstance(content, dict) else None
    if not isinstance(value, kind):
        raise Mistake(f"{path} is damaged: it has no {kind.__name__} {key!r}")
    return value


# CUB-200-2011


def read_cub(folder: str | Path) -> ImageList:
    """Read the lists of CUB_200_2011, with the official split."""
    folder = Path(folder)
    names = _read_table(folder / "images.txt")
    labels = _read_table(folder / "image_class_labels.txt")
    split = _read_table(folder / "train_test_split.txt")
    classes = _read_table(folder / "classes.txt")
    for name, column in (("image_class_labels.txt", labels), ("train_test_split.txt", split)):
        if column.keys() != names.keys():
            raise Mistake(
                f"{folder / name} does not list the images of images.txt: "
                f"it has {len(column)} lines, images.txt has {len(names)}"
            )
    class_numbers = {key: number for number, key in enumerate(classes)}
    for key, label in labels.items():
        if label not in class_numbers:
            raise Mistake(
                f"{folder / 'image_class_labels.txt'}: image {key} has class {label}, not in"
                " classes.txt"
            )
    for key, mark in split.items():
        if mark not in ("0", "1"):
            raise Mistake(
                f"{folder / 'train_test_split.txt'}: image {key} has {mark!r}, neither 0 nor 1"
            )
    is_train = torch.tensor([split[key] == "1" for key in names], dtype=torch.bool)
    return ImageList(
        paths=[folder / "images" / name for name in names.values()],
        labels=torch.tensor([class_numbers[labels[key]] for key in names]),
        train=is_train.nonzero()[:, 0],
        test=(~is_train).nonzero()[:, 0],
        classes=list(classes.values()),
    )


# Animals with Attributes 2


def read_awa2(folder: str | Path) -> ImageList:
    """Read classes.txt and list JPEGImages/<class>/*.jpg, split as `awa2_split` says."""
    folder = Path(folder)
    classes = list(_read_table(folder / "classes.txt").values())
    paths: list[Path] = []
    labels: list[int] = []
    train: list[int] = []
    test: list[int] = []
    validation: list[Path] = []
    for number, name in enumerate(classes):
        files = _class_images(folder / "JPEGImages" / name)
        shares = awa2_split(len(files))
        first_test = shares.train + shares.validation
        validation += files[shares.train : first_test]
        for positions, selection in ((train, files[: shares.train]), (test, files[first_test:])):
            positions += range(len(paths), len(paths) + len(selection))
            paths += selection
            labels += [number] * len(selection)
    return ImageList(
        paths,
        torch.tensor(labels),
        torch.tensor(train),
        torch.tensor(test),
        classes,
        tuple(validation),
    )


def _class_images(place: Path) -> list[Path]:
    if not place.is_dir():
        raise Mistake(f"{place} is missing: classes.txt lists the class {place.name!r}")
    files = sorted(path for path in place.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES)
    if not files:
        raise Mistake(f"{place} has no images")
    return files


@dataclass(frozen=True)
class Shares:
    """The numbers of a class's images, in name order, that go to each split."""

    train: int
    validation: int
    test: int


def awa2_split(images: int) -> Shares:
    """Split a class as in the published lists: 70 % rounded down, 15 % rounded up, then the rest.

    0.7 is a float on purpose (0.7 * 720 is a little under 504): only then are the 37,322 images
    split into 26,102, 5,620 and 5,600.

    >>> awa2_split(1046)
    Shares(train=732, validation=157, test=157)
    >>> awa2_split(720)
    Shares(train=503, validation=108, test=109)
    """
    train = int(0.7 * images)
    validation = min(math.ceil(0.15 * images), images - train)
    return Shares(train, validation, images - train - validation)


def _read_table(path: Path) -> dict[str, str]:
    """Read lines that hold a number and a value."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise Mistake(f"{path} is missing") from None
    except UnicodeDecodeError:
        raise Mistake(f"{path} is damaged: it is not text") from None
    rows: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        key, _, value = line.strip().replace("\t", " ").partition(" ")
        if not key.isdecimal() or not value or key in rows:
            raise Mistake(f"{path}, line {number}: {line!r} is not a new number and a value")
        rows[key] = value.strip()
    if not rows:
        raise Mistake(f"{path} is empty")
    return rows
