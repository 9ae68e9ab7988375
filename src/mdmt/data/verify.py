"""Verifying a data set: its structure, and separately whether its bytes are the published ones."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from mdmt.data.archives import members, report_damage
from mdmt.data.fetch import checksum, difference, ensure_unpacked
from mdmt.data.pickles import read_pickle
from mdmt.data.readers import pickle_entry, read_awa2, read_cifar100, read_cub, read_mnist
from mdmt.data.sources import DataSet, Location, data_folder, find_data_set, substitute_note
from mdmt.errors import Mistake
from mdmt.words import count

DataSetFacts = dict[str, int | str | list[int]]
ByteVerdict = Literal["published", "differ", "not compared"]


@dataclass(frozen=True)
class ByteComparison:
    """Whether the bytes are the published ones, and the reason for that verdict."""

    verdict: ByteVerdict
    reason: str


@dataclass(frozen=True)
class Report:
    """The result for a data set with the right structure."""

    name: str
    folder: Path
    figures: DataSetFacts
    comparison: ByteComparison

    @property
    def line(self) -> str:
        """The verdict in one line."""
        verdict: str = self.comparison.verdict
        if verdict == "published":
            verdict = "are the published ones"
        return f"{self.name}: structure right, bytes {verdict} ({self.comparison.reason})"


def verify(name: str, folder: str | Path | None = None) -> Report:
    """Verify a data set; a Mistake says that it is missing or why its structure is wrong."""
    source = find_data_set(name)
    folder = data_folder(folder)
    location = ensure_unpacked(name, folder)
    note = substitute_note(location)
    try:
        figures = _CHECKS[name](source, location.folder)
    except Mistake as error:
        if note is None:
            raise Mistake(f"{name}: wrong structure: {error}") from None
        raise Mistake(f"{name}: substitute images: {note} ({error})") from None
    if note is not None:
        comparison = ByteComparison("differ", f"substitute images: {note}")
    else:
        comparison = _compare_bytes(source, location, folder)
    return Report(name, location.folder, figures, comparison)


# Structure


def _check_mnist(source: DataSet, folder: Path) -> DataSetFacts:
    data = read_mnist(folder)
    classes = source.counts["classes"]
    figures: DataSetFacts = {"classes": classes}
    for split, part in (("train", data.train), ("test", data.test)):
        _expect(f"{folder}, {split}", "image", len(part), source.counts[split])
        per_class = part.labels.bincount(minlength=classes).tolist()
        if len(per_class) != classes or 0 in per_class:
            raise Mistake(f"{folder}, {split}: the labels are not 0 to {classes - 1}, each used")
        figures[split] = len(part)
        figures[f"{split} histogram"] = per_class
    return figures | {"shape": list(data.train.images.shape[1:])}


def _check_cifar100(source: DataSet, folder: Path) -> DataSetFacts:
    data = read_cifar100(folder)
    classes = source.counts["classes"]
    figures: DataSetFacts = {"classes": classes, "shape": list(data.train.images.shape[1:])}
    for split, part in (("train", data.train), ("test", data.test)):
        _expect(folder / split, "image", len(part), source.counts[split])
        per_class = part.labels.bincount(minlength=classes).tolist()
        even = source.counts[split] // classes
        if per_class != [even] * classes:
            raise Mistake(f"{folder / split}: {_range(per_class)} images a class instead of {even}")
        figures[split] = len(part)
        figures[f"{split} histogram"] = f"{_range(per_class)} a class"
    meta = folder / "meta"
    names = pickle_entry(meta, read_pickle(meta), "fine_label_names", list)
    _expect(meta, "class name", len(set(names)), classes)
    return figures


def _check_cub(source: DataSet, folder: Path) -> DataSetFacts:
    data = read_cub(folder)
    per_class = data.labels.bincount(minlength=len(data.classes)).tolist()
    used = sum(size > 0 for size in per_class)
    images = source.counts["train"] + source.counts["test"]
    split = folder / "train_test_split.txt"
    _expect(folder / "images.txt", "image", len(data.paths), images)
    _expect(folder / "classes.txt", "class", len(data.classes), source.counts["classes"], "classes")
    _expect(folder / "image_class_labels.txt", "class", used, source.counts["classes"], "classes")
    _expect(split, "training image", len(data.train), source.counts["train"])
    _expect(split, "test image", len(data.test), source.counts["test"])
    _expect_files(data.paths)
    return {**source.counts, "images": images, "histogram": f"{_range(per_class)} a class"}


def _check_awa2(source: DataSet, folder: Path) -> DataSetFacts:
    data = read_awa2(folder)
    paths = [*data.paths, *data.validation]
    images = sum(source.counts[split] for split in ("train", "validation", "test"))
    pictures = folder / "JPEGImages"
    _expect(
        folder / "classes.txt", "class", len(set(data.classes)), source.counts["classes"], "classes"
    )
    _expect(pictures, "image", len(paths), images)
    _expect(pictures, "training image", len(data.train), source.counts["train"])
    _expect(pictures, "validation image", len(data.validation), source.counts["validation"])
    _expect(pictures, "test image", len(data.test), source.counts["test"])
    _expect_files(paths)
    per_class = Counter(path.parent for path in paths).values()
    return {**source.counts, "images": images, "histogram": f"{_range(per_class)} a class"}


_CHECKS: dict[str, Callable[[DataSet, Path], DataSetFacts]] = {
    "mnist": _check_mnist,
    "fashion-mnist": _check_mnist,
    "cifar100": _check_cifar100,
    "cub": _check_cub,
    "awa2": _check_awa2,
}


def _expect(place: str | Path, noun: str, number: int, expected: int, plural: str = "") -> None:
    if number != expected:
        raise Mistake(f"{place}: {count(noun, number, plural)} instead of {expected:,}")


def _expect_files(paths: Iterable[Path]) -> None:
    for path in paths:
        if not path.is_file():
            raise Mistake(f"{path} is missing")
        if path.stat().st_size == 0:
            raise Mistake(f"{path} is empty")


def _range(counts: Iterable[int]) -> str:
    """The smallest and the largest count as text.

    >>> _range([2, 3, 3]), _range([5, 5])
    ('2 to 3', '5')
    """
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


# Bytes


def _compare_bytes(source: DataSet, location: Location, folder: Path) -> ByteComparison:
    archive = folder / source.files[0].name
    if source.part_md5:
        return _compare_checksums(source, location)
    if archive.is_file():
        return _compare_with_archive(source, location.folder, archive)
    if size := _common_size(location.parts[source.parts[0]]):
        return ByteComparison("differ", f"the images are a copy resized to {size}")
    return ByteComparison("not compared", f"{archive.name} is not beside it to compare with")


def _compare_checksums(source: DataSet, location: Location) -> ByteComparison:
    for part, path in location.parts.items():
        md5 = checksum(path, "md5", gzip.open if path.suffix == ".gz" else open)
        if md5 != source.part_md5[part]:
            return ByteComparison(
                "differ", f"{part} has md5 {md5} instead of {source.part_md5[part]}"
            )
    published = {file.name: file for file in source.files}
    packed = [path for path in location.parts.values() if path.suffix == ".gz"]
    if any(difference(path, published[path.name]) is not None for path in packed):
        reason = "by the md5 of each file once unpacked; the .gz files were repacked"
    else:
        reason = "by the md5 of each file"
    return ByteComparison("published", reason)


def _compare_with_archive(source: DataSet, folder: Path, archive: Path) -> ByteComparison:
    file = source.files[0]
    if file.md5 is None and file.sha256 is None:
        return ByteComparison("not compared", f"{file.name}: {file.checksum}")
    if (problem := difference(archive, file)) is not None:
        return ByteComparison("differ", f"{file.name}: {problem}")
    with report_damage(archive):
        for member in members(archive):
            if member.content is None or member.path.parts[:1] != (source.folders[0],):
                continue
            copy = folder.joinpath(*member.path.parts[1:])
            if not copy.is_file() or copy.read_bytes() != member.content.read():
                return ByteComparison("differ", f"{member.path} is not as in {file.name}")
    return ByteComparison(
        "published", f"each file is as in {file.name}, which has the {file.checksum}"
    )


def _common_size(folder: Path) -> str | None:
    """The size of the images if all have the same; published photographs differ in size."""
    from PIL import Image

    sizes = set()
    for path in islice(folder.glob("*/*.jpg"), 50):
        try:
            with Image.open(path) as image:
                sizes.add(image.size)
        except OSError:
            return None
    if len(sizes) != 1:
        return None
    width, height = sizes.pop()
    return f"{width}x{height} pixels"
