"""The data sets there are: who publishes them, under which licence, in which files, and where they are looked for.

Everything here is data and paths. Downloading and unpacking is in `fetch`, checking what is there in `verify`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mdmt.errors import Mistake

SUBSTITUTE = "SUBSTITUTE.txt"  # a folder that holds this file says itself that its images are others


@dataclass(frozen=True)
class File:
    """One file as its publisher gives it out. `size` is exact unless said otherwise; a checksum not known is None."""

    name: str
    urls: tuple[str, ...]  # the publisher's addresses, tried in this order
    size: int
    exact: bool = True
    md5: str | None = None
    sha256: str | None = None
    known: str = "as published"  # how its checksum is known

    @property
    def checksum(self) -> str:
        """Which checksum there is, in words."""
        kind = "md5" if self.md5 else "sha256" if self.sha256 else None
        return f"{kind} {self.known}" if kind else "no published checksum known"


@dataclass(frozen=True)
class DataSet:
    """A data set: its files as published, and the parts that lie in its folder when unpacked."""

    name: str
    title: str
    licence: str
    files: tuple[File, ...]
    folders: tuple[str, ...]  # looked for in this order below the data folder; `fetch` writes the first
    parts: tuple[str, ...]  # what the folder must hold; where the files are no archive, each part may also be a .gz
    counts: Mapping[str, int]  # of training, validation and test images, and of classes
    archive: bool = True
    room: int = 0  # the most bytes its archive may unpack to
    part_md5: Mapping[str, str] = field(default_factory=dict)  # of the parts when unpacked, where known


def _idx(bases: tuple[str, ...], sizes: tuple[int, ...], md5: tuple[str, ...]) -> tuple[File, ...]:
    names = [f"{part}.gz" for part in IDX_PARTS]
    return tuple(
        File(n, tuple(base + n for base in bases), size, md5=m) for n, size, m in zip(names, sizes, md5, strict=True)
    )


IDX_PARTS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

SOURCES = {
    source.name: source
    for source in (
        DataSet(
            "mnist", "MNIST, handwritten digits", "CC BY-SA 3.0, as usually given",
            _idx(
                # the publisher has refused downloads at times; the second address is a well-known copy, checked alike
                ("https://yann.lecun.com/exdb/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
                (9912422, 28881, 1648877, 4542),
                ("f68b3c2dcbeaaa9fbdd348bbdeb94873", "d53e105ee54ea40749a09fcbcd1e9432",
                 "9fb629c4189551a2d022fa330f9573f3", "ec29112dd5afa0611ce80d1b7f02629c"),
            ),
            ("mnist", "MNIST/raw"), IDX_PARTS, {"train": 60000, "test": 10000, "classes": 10}, archive=False,
            part_md5=dict(zip(IDX_PARTS, (
                "6bbc9ace898e44ae57da46a324031adb", "a25bea736e30d166cdddb491f175f624",
                "2646ac647ad5339dbf082846283269ea", "27ae3e4e09519cfbb04c329615203637",
            ), strict=True)),
        ),
        DataSet(
            "fashion-mnist", "Fashion-MNIST, articles of clothing", "MIT",
            _idx(
                ("https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",),
                (26421880, 29515, 4422102, 5148),
                ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "25c81989df183df01b3e8a0aad5dffbe",
                 "bef4ecab320f06d8554ea6380940ec79", "bb300cfdad3c16e7a12a480ee83cd310"),
            ),
            # the last is where Debian's package dataset-fashion-mnist puts them
            ("fashion-mnist", "FashionMNIST/raw", "/usr/share/dataset-fashion-mnist"),
            IDX_PARTS, {"train": 60000, "test": 10000, "classes": 10}, archive=False,
            part_md5=dict(zip(IDX_PARTS, (
                "f4a8712d7a061bf5bd6d2ca38dc4d50a", "9018921c3c673c538a1fc5bad174d6f9",
                "8181f5470baa50b63fa0f6fddb340f0a", "15d484375f8d13e6eb1aabb0c3f46965",
            ), strict=True)),
        ),
        DataSet(
            "cifar100", "CIFAR-100, small colour images", "none stated; research use, cite the report",
            (File(
                "cifar-100-python.tar.gz",
                ("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
                 "https://cave.cs.toronto.edu/kriz/cifar-100-python.tar.gz"),
                169001437, md5="eb9058c3a382ffc7106e4002c42a8d85",
            ),),
            ("cifar-100-python",), ("train", "test", "meta"),
            {"train": 50000, "test": 10000, "classes": 100}, room=10**9,
            part_md5={"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
                      "meta": "7973b15100ade9c7d40fb424638fde48"},
        ),
        DataSet(
            "cub", "Caltech-UCSD Birds-200-2011", "non-commercial research and education",
            (File(
                "CUB_200_2011.tgz", ("https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz?download=1",),
                1150585339, md5="97eceeb196236b17998738112f37df78",
            ),),
            ("CUB_200_2011",),
            ("images", "images.txt", "image_class_labels.txt", "train_test_split.txt", "classes.txt"),
            {"train": 5994, "test": 5794, "classes": 200}, room=4 * 10**9,
        ),
        DataSet(
            "awa2", "Animals with Attributes 2", "each image under its own free licence",
            (File(
                "AwA2-data.zip", ("https://cvml.ista.ac.at/AwA2/AwA2-data.zip",), 13_500_000_000, exact=False,
                sha256="cc5a849879165acaa2b52f1de3f146ffcd1c475f6ef85bab0152c763e573744f",
                known="as two public programs have it; the publisher's own is not known",
            ),),
            ("Animals_with_Attributes2",), ("JPEGImages", "classes.txt"),
            {"train": 26102, "validation": 5620, "test": 5600, "classes": 50}, room=30 * 10**9,
        ),
    )
}  # fmt: skip


IMAGENET_RESNET18 = File(
    "resnet18-f37072fd.pth", ("https://download.pytorch.org/models/resnet18-f37072fd.pth",), 46830571,
    sha256="f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",
)  # fmt: skip


def find(name: str) -> DataSet:
    """A data set by name."""
    if name not in SOURCES:
        raise Mistake(f"data set {name!r} is not one of {', '.join(SOURCES)}")
    return SOURCES[name]


def data_folder(option: str | Path | None = None) -> Path:
    """Where data sets lie: what was asked for, else $MDMT_DATA, else the user's cache folder."""
    if chosen := option or os.environ.get("MDMT_DATA"):
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "mdmt" / "data"


def locate(name: str, folder: str | Path | None = None) -> dict[str, Path]:
    """The parts of a data set by name, such as `train-images-idx3-ubyte` or `images.txt`, each with its path.

    Where only the packed archive is there, the one entry is `archive`: `fetch.unpacked` unpacks it.
    A data set that is not there is a ValueError that says what to download, from where, and where to put it.
    """
    source, folder = find(name), data_folder(folder)
    for place in (*source.folders, "."):  # or the folder that was named is the data set's own
        if (parts := _parts(source, folder / place)) is not None:
            return parts
    packed = folder / source.files[0].name
    if source.archive and packed.is_file():
        return {"archive": packed}
    raise Mistake(missing(source, folder))


def _parts(source: DataSet, place: Path) -> dict[str, Path] | None:
    """The parts that lie in a folder, or None if one of them does not."""
    found = {}
    for part in source.parts:
        names = [part] if source.archive else [part, f"{part}.gz"]
        path = next((place / n for n in names if (place / n).exists()), None)
        if path is None:
            return None
        found[part] = path
    return found


def missing(source: DataSet, folder: Path) -> str:
    """The one line about a data set that is not there."""
    place, first = folder / source.folders[0], source.files[0]
    if source.archive:
        todo = f"download {first.urls[0]} and put it, packed or unpacked, as {folder / first.name} or {place}"
    else:
        names = ", ".join(file.name for file in source.files)
        todo = f"download {names} from {first.urls[0].removesuffix(first.name)} and put them into {place}"
    return f"{source.name} is not in {folder}: run `mdmt data fetch {source.name}`, or {todo}"


def substitute(name: str, folder: str | Path | None = None) -> str | None:
    """What a folder says about itself when it holds other images than the published ones; None when it is no substitute."""
    found = next(iter(locate(name, folder).values()))
    note = found.parent / SUBSTITUTE
    return " ".join(note.read_text(errors="replace").split()) if note.is_file() else None


def awa2_split(images: int) -> tuple[int, int, int]:
    """How many of a class's images, in the order of their names, are for training, validation (unused) and test.

    As in the published lists: 70 % rounded down, then 15 % rounded up, then the rest. The product with 0.7 is that of
    floats (0.7 * 720 is a little under 504): only so do the 37,322 images give 26,102, 5,620 and 5,600.

    >>> awa2_split(1046), awa2_split(720)
    ((732, 157, 157), (503, 108, 109))
    """
    train = int(0.7 * images)
    validation = min(math.ceil(0.15 * images), images - train)
    return train, validation, images - train - validation
