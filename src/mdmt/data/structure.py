"""What the folder of a data set must hold: counts, shapes, labels and splits, checked file by file."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mdmt.data.pickles import read_pickle
from mdmt.data.sources import IDX_PARTS, DataSet, awa2_split
from mdmt.errors import Mistake

Parts = dict[str, Path]


def check(source: DataSet, parts: Parts) -> dict[str, Any]:
    """The figures of a data set's structure; a ValueError says what is wrong with it."""
    return _CHECKS[source.name](source, parts)


def _equal(what: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise Mistake(f"{what}: {found} instead of {expected}")


def _spread(labels: Iterable[Any]) -> str:
    """The label histogram in short.

    >>> _spread([0, 0, 1, 1, 1])
    '2 to 3 a class'
    """
    counts = Counter(labels).values()
    low, high = min(counts, default=0), max(counts, default=0)
    return f"{low} a class" if low == high else f"{low} to {high} a class"


def _idx(source: DataSet, parts: Parts) -> dict[str, Any]:
    found: dict[str, Any] = {"classes": source.counts["classes"]}
    for split, (images, labels) in {"train": IDX_PARTS[:2], "test": IDX_PARTS[2:]}.items():
        count = source.counts[split]
        _read_idx(parts[images], 2051, (count, 28, 28))
        values = _read_idx(parts[labels], 2049, (count,))
        _equal(f"{parts[labels].name}, its labels", sorted(set(values)), list(range(source.counts["classes"])))
        found |= {split: count, f"{split} histogram": [n for _, n in sorted(Counter(values).items())]}
    return found | {"shape": [28, 28]}


def _read_idx(path: Path, magic: int, shape: tuple[int, ...]) -> bytes:
    """The content of an idx file, after its header was found right."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise Mistake(f"{path.name} is damaged") from None
    header = 4 + 4 * len(shape)
    if len(data) < header:
        raise Mistake(f"{path.name} has no idx header")
    found, *dims = struct.unpack(f">I{len(shape)}I", data[:header])
    _equal(f"{path.name}, its kind", found, magic)
    _equal(f"{path.name}, its shape", tuple(dims), shape)
    _equal(f"{path.name}, its bytes", len(data), header + math.prod(shape))
    return data[header:]


def _cifar(source: DataSet, parts: Parts) -> dict[str, Any]:
    classes = source.counts["classes"]
    found: dict[str, Any] = {"classes": classes, "shape": [3, 32, 32]}
    for split in ("train", "test"):
        count, content = source.counts[split], read_pickle(parts[split])
        data, labels = _entry(content, b"data", split), _entry(content, b"fine_labels", split)
        _equal(
            f"{split}, its images",
            (getattr(data, "shape", None), str(getattr(data, "dtype", None))),
            ((count, 3072), "uint8"),
        )
        _equal(f"{split}, its labels", len(labels), count)
        _equal(
            f"{split}, its label histogram", Counter(labels), Counter(dict.fromkeys(range(classes), count // classes))
        )
        found |= {split: count, f"{split} histogram": _spread(labels)}
    names = _entry(read_pickle(parts["meta"]), b"fine_label_names", "meta")
    _equal("meta, its class names", len(set(names)), classes)
    return found


def _entry(content: Any, key: bytes, file: str) -> Any:
    if not isinstance(content, dict) or key not in content:
        raise Mistake(f"{file} has no {key.decode()}")
    return content[key]


def _cub(source: DataSet, parts: Parts) -> dict[str, Any]:
    names, labels, split, classes = (_table(parts[part]) for part in source.parts[1:])
    images = source.counts["train"] + source.counts["test"]
    ids = [str(i) for i in range(1, images + 1)]
    for part, table in zip(source.parts[1:], (names, labels, split), strict=False):
        _equal(f"{part}, its images", len(table), images)
        _equal(f"{part}, its numbers", sorted(table, key=int), ids)
    _equal("classes.txt, its classes", len(classes), source.counts["classes"])
    _equal("image_class_labels.txt, its labels", set(labels.values()), set(classes))
    sizes = Counter(split.values())
    for name, mark in (("train", "1"), ("test", "0")):
        _equal(f"train_test_split.txt, {name}", sizes[mark], source.counts[name])
    _exist(parts["images"], names.values())
    return dict(source.counts) | {"images": images, "histogram": _spread(labels.values())}


def _awa2(source: DataSet, parts: Parts) -> dict[str, Any]:
    classes = list(_table(parts["classes.txt"]).values())
    _equal("classes.txt, its classes", len(set(classes)), source.counts["classes"])
    files = {c: sorted(p.name for p in (parts["JPEGImages"] / c).glob("*.jpg")) for c in classes}
    images = sum(source.counts[s] for s in ("train", "validation", "test"))
    if empty := [c for c in classes if not files[c]]:
        raise Mistake(f"JPEGImages/{empty[0]} has no image")
    _equal("JPEGImages, its images", sum(map(len, files.values())), images)
    shares = zip(*(awa2_split(len(f)) for f in files.values()), strict=True)
    for split, sizes in zip(("train", "validation", "test"), shares, strict=True):
        _equal(f"the images for {split}", sum(sizes), source.counts[split])
    _exist(parts["JPEGImages"], (f"{c}/{name}" for c in classes for name in files[c]))
    return dict(source.counts) | {"images": images, "histogram": _spread(c for c in classes for _ in files[c])}


def _table(path: Path) -> dict[str, str]:
    """Lines of a number and a value."""
    rows = [line.split(maxsplit=1) for line in path.read_text(errors="replace").splitlines() if line.strip()]
    for row in rows:
        if len(row) != 2 or not row[0].isdecimal():
            raise Mistake(f"{path.name}: a line is {' '.join(row)!r} instead of a number and a value")
    return {row[0]: row[1].strip() for row in rows}


def _exist(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        path = folder / name
        if not path.is_file() or path.stat().st_size == 0:
            raise Mistake(f"{folder.name}/{name} is {'empty' if path.is_file() else 'missing'}")


_CHECKS: dict[str, Callable[[DataSet, Parts], dict[str, Any]]] = {
    "mnist": _idx, "fashion-mnist": _idx, "cifar100": _cifar, "cub": _cub, "awa2": _awa2,
}  # fmt: skip
