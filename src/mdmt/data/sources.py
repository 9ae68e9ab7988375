"""The data sets: publisher, licence and files of each, and its place on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mdmt.errors import Mistake

SUBSTITUTE_NOTE = "SUBSTITUTE.txt"  # a note that marks a folder of other images than the published


@dataclass(frozen=True)
class File:
    """One published file; an unknown checksum is None."""

    name: str
    urls: tuple[str, ...]  # the publisher's addresses, tried in this order
    size: int
    exact: bool = True  # whether the file has exactly this size
    md5: str | None = None
    sha256: str | None = None
    checksum_source: str = "as published"

    @property
    def checksum(self) -> str:
        """The kind and the source of the checksum, in words."""
        if self.md5 is None and self.sha256 is None:
            return "no published checksum known"
        return f"{'md5' if self.md5 else 'sha256'} {self.checksum_source}"


@dataclass(frozen=True)
class DataSet:
    """A data set: its published files, and the parts that its folder holds once unpacked."""

    name: str
    title: str
    licence: str
    files: tuple[File, ...]
    folders: tuple[str, ...]  # below the data folder, tried in this order; `fetch` writes the first
    parts: tuple[str, ...]  # the folder must hold them; without an archive, a part may be a .gz
    counts: Mapping[str, int]  # of training, validation and test images, and of classes
    archive: bool = True
    max_bytes: int = 0  # the limit for the unpacked archive
    part_md5: Mapping[str, str] = field(default_factory=dict)  # of the unpacked parts, where known


@dataclass(frozen=True)
class Location:
    """The place of a data set: the folder that holds its parts, or its packed archive."""

    folder: Path
    parts: Mapping[str, Path]  # such as `images.txt`; empty while packed
    archive: Path | None = None  # set while packed


IDX_PARTS = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def _idx_files(
    bases: tuple[str, ...], sizes: tuple[int, ...], sums: tuple[str, ...]
) -> tuple[File, ...]:
    files = []
    for part, size, md5 in zip(IDX_PARTS, sizes, sums, strict=True):
        name = f"{part}.gz"
        files.append(File(name, tuple(base + name for base in bases), size, md5=md5))
    return tuple(files)


SOURCES = {
    source.name: source
    for source in (
        DataSet(
            "mnist",
            "MNIST, handwritten digits",
            "CC BY-SA 3.0, as usually given",
            _idx_files(
                # The publisher has refused downloads at times; the second address is a well-known
                # copy. Checksums verify both.
                (
                    "https://yann.lecun.com/exdb/mnist/",
                    "https://storage.googleapis.com/cvdf-datasets/mnist/",
                ),
                (9912422, 28881, 1648877, 4542),
                (
                    "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                    "d53e105ee54ea40749a09fcbcd1e9432",
                    "9fb629c4189551a2d022fa330f9573f3",
                    "ec29112dd5afa0611ce80d1b7f02629c",
                ),
            ),
            ("mnist", "MNIST/raw"),
            IDX_PARTS,
            {"train": 60000, "test": 10000, "classes": 10},
            archive=False,
            part_md5=dict(
                zip(
                    IDX_PARTS,
                    (
                        "6bbc9ace898e44ae57da46a324031adb",
                        "a25bea736e30d166cdddb491f175f624",
                        "2646ac647ad5339dbf082846283269ea",
                        "27ae3e4e09519cfbb04c329615203637",
                    ),
                    strict=True,
                )
            ),
        ),
        DataSet(
            "fashion-mnist",
            "Fashion-MNIST, articles of clothing",
            "MIT",
            _idx_files(
                (
                    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
                ),
                (26421880, 29515, 4422102, 5148),
                (
                    "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                    "25c81989df183df01b3e8a0aad5dffbe",
                    "bef4ecab320f06d8554ea6380940ec79",
                    "bb300cfdad3c16e7a12a480ee83cd310",
                ),
            ),
            # Debian's package dataset-fashion-mnist installs the last one.
            ("fashion-mnist", "FashionMNIST/raw", "/usr/share/dataset-fashion-mnist"),
            IDX_PARTS,
            {"train": 60000, "test": 10000, "classes": 10},
            archive=False,
            part_md5=dict(
                zip(
                    IDX_PARTS,
                    (
                        "f4a8712d7a061bf5bd6d2ca38dc4d50a",
                        "9018921c3c673c538a1fc5bad174d6f9",
                        "8181f5470baa50b63fa0f6fddb340f0a",
                        "15d484375f8d13e6eb1aabb0c3f46965",
                    ),
                    strict=True,
                )
            ),
        ),
        DataSet(
            "cifar100",
            "CIFAR-100, small colour images",
            "none stated; research use, cite the report",
            (
                File(
                    "cifar-100-python.tar.gz",
                    (
                        "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
                        "https://cave.cs.toronto.edu/kriz/cifar-100-python.tar.gz",
                    ),
                    169001437,
                    md5="eb9058c3a382ffc7106e4002c42a8d85",
                ),
            ),
            ("cifar-100-python",),
            ("train", "test", "meta"),
            {"train": 50000, "test": 10000, "classes": 100},
            max_bytes=10**9,
            part_md5={
                "train": "16019d7e3df5f24257cddd939b257f8d",
                "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
                "meta": "7973b15100ade9c7d40fb424638fde48",
            },
        ),
        DataSet(
            "cub",
            "Caltech-UCSD Birds-200-2011",
            "non-commercial research and education",
            (
                File(
                    "CUB_200_2011.tgz",
                    (
                        "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz?download=1",
                    ),
                    1150585339,
                    md5="97eceeb196236b17998738112f37df78",
                ),
            ),
            ("CUB_200_2011",),
            (
                "images",
                "images.txt",
                "image_class_labels.txt",
                "train_test_split.txt",
                "classes.txt",
            ),
            {"train": 5994, "test": 5794, "classes": 200},
            max_bytes=4 * 10**9,
        ),
        DataSet(
            "awa2",
            "Animals with Attributes 2",
            "each image under its own free licence",
            (
                File(
                    "AwA2-data.zip",
                    ("https://cvml.ista.ac.at/AwA2/AwA2-data.zip",),
                    13_500_000_000,
                    exact=False,
                    sha256="cc5a849879165acaa2b52f1de3f146ffcd1c475f6ef85bab0152c763e573744f",
                    checksum_source="from two public programs; the publisher gives none",
                ),
            ),
            ("Animals_with_Attributes2",),
            ("JPEGImages", "classes.txt"),
            {"train": 26102, "validation": 5620, "test": 5600, "classes": 50},
            max_bytes=30 * 10**9,
        ),
    )
}


IMAGENET_RESNET18 = File(
    "resnet18-f37072fd.pth",
    ("https://download.pytorch.org/models/resnet18-f37072fd.pth",),
    46830571,
    sha256="f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",
)


def find_data_set(name: str) -> DataSet:
    """Look a data set up by name."""
    if name not in SOURCES:
        raise Mistake(f"data set {name!r} is not one of {', '.join(SOURCES)}")
    return SOURCES[name]


def data_folder(option: str | Path | None = None) -> Path:
    """The folder of the data sets: the option, else $MDMT_DATA, else the user's cache folder."""
    if chosen := option or os.environ.get("MDMT_DATA"):
        return Path(chosen).expanduser()
    return _user_cache() / "data"


def cache_folder() -> Path:
    """The folder of the caches: $MDMT_CACHE, or `mdmt` in the user's cache folder."""
    chosen = os.environ.get("MDMT_CACHE")
    return Path(chosen) if chosen else _user_cache()


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "mdmt")


def locate(name: str, folder: str | Path | None = None) -> Location:
    """Find a data set on this machine; if it is missing, a Mistake says how to get it.

    The data folder may also be the data set's own folder. `fetch.ensure_unpacked` unpacks an
    archive that is found without its folder.
    """
    source = find_data_set(name)
    folder = data_folder(folder)
    for place in (*source.folders, "."):
        if (parts := _find_parts(source, folder / place)) is not None:
            return Location(folder / place, parts)
    packed = folder / source.files[0].name
    if source.archive and packed.is_file():
        return Location(folder, {}, archive=packed)
    raise Mistake(_missing(source, folder))


def _find_parts(source: DataSet, place: Path) -> dict[str, Path] | None:
    """The parts of a data set in a folder, or None if one of them is missing."""
    parts = {}
    for part in source.parts:
        names = [part] if source.archive else [part, f"{part}.gz"]
        path = next((place / name for name in names if (place / name).exists()), None)
        if path is None:
            return None
        parts[part] = path
    return parts


def _missing(source: DataSet, folder: Path) -> str:
    place = folder / source.folders[0]
    first = source.files[0]
    if source.archive:
        by_hand = f"download {first.urls[0]} as {folder / first.name}, or unpack it to {place}"
    else:
        names = ", ".join(file.name for file in source.files)
        by_hand = f"download {names} from {first.urls[0].removesuffix(first.name)} into {place}"
    return f"{source.name} is not in {folder}: run `mdmt data fetch {source.name}`, or {by_hand}"


def substitute_note(location: Location) -> str | None:
    """The note in a folder of substitute images; None for any other folder."""
    note = location.folder / SUBSTITUTE_NOTE
    return " ".join(note.read_text(errors="replace").split()) if note.is_file() else None
