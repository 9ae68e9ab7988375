"""Deliveries for model folders: classes that a small network can tell apart."""

import numpy as np
from PIL import Image

from mdmt.living.versions import Versions


def delivery(classes, count=30, seed=0, size=12):
    """Examples of classes, each around a centre of its own."""
    random = np.random.default_rng(seed)
    x, y = [], []
    for c in classes:
        centre = np.random.default_rng(sum(map(ord, str(c)))).normal(size=size) * 2
        x.append(centre + random.normal(size=(count, size)) * 0.3)
        y += [c] * count
    return np.concatenate(x).astype(np.float32), y


def as_npz(path, classes, count=30, seed=0):
    """A delivery as an .npz file."""
    x, y = delivery(classes, count, seed)
    np.savez(path, x=x, y=np.array(y))
    return str(path)


def as_folder(place, classes, count=8, seed=0, size=10):
    """A delivery as a folder of class folders: images of one colour a class, and noise."""
    random = np.random.default_rng(seed)
    for c in classes:
        colour = np.random.default_rng(sum(map(ord, c))).integers(40, 216, 3)
        (place / c).mkdir(parents=True)
        for number in range(count):
            pixels = colour + random.integers(-30, 31, (size, size, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(place / c / f"{number}.png")
    return str(place)


def content(folder):
    """All bytes of a folder."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def stored_bytes(folder):
    """The bytes on disk of the parts that hold examples, of the current version."""
    versions = Versions(folder)
    saved = versions.open(versions.current)
    names = [saved.files[part]["file"] for part in ("memory", "held_back") if part in saved.files]
    return sum((folder / name).stat().st_size for name in names)


def versions_without_times(folder):
    """Everything that versions hold, by number, except for dates and durations."""
    versions = Versions(folder)
    found = {}
    for number in versions.numbers():
        saved = versions.open(number)
        rest = dict(saved.rest)
        rest["record"] = {**rest["record"], "seconds": 0}
        living = {**rest["living"], "created": ""}
        living["deliveries"] = [{**one, "date": ""} for one in living["deliveries"]]
        found[number] = (saved.files, {**rest, "living": living})
    return found
