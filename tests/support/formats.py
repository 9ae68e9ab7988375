"""Small data sets in the formats their publishers use."""

import gzip
import pickle
import struct

import numpy as np
from PIL import Image


def write_mnist(folder, train=30, test=20, packed=True):
    folder.mkdir(parents=True, exist_ok=True)
    random, opened = np.random.RandomState(0), gzip.open if packed else open
    for stem, count in (("train", train), ("t10k", test)):
        x, y = random.randint(0, 256, (count, 28, 28)), np.arange(count) % 10
        for name, header, data in (
            (f"{stem}-images-idx3-ubyte", struct.pack(">IIII", 2051, count, 28, 28), x),
            (f"{stem}-labels-idx1-ubyte", struct.pack(">II", 2049, count), y),
        ):
            with opened(folder / (name + ".gz" * packed), "wb") as file:
                file.write(header + data.astype(np.uint8).tobytes())
    return folder


def write_cifar(folder, per_class=3, test_per_class=1):
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.RandomState(0)
    for part, each in (("train", per_class), ("test", test_per_class)):
        y = random.permutation(np.repeat(np.arange(100), each)).tolist()
        x = random.randint(0, 256, (len(y), 3072)).astype(np.uint8)
        rows = {
            b"data": x,
            b"fine_labels": y,
            b"coarse_labels": y,
            b"filenames": [b"a.png"] * len(y),
            b"batch_label": b"1",
        }
        (folder / part).write_bytes(pickle.dumps(rows, protocol=4))
    (folder / "meta").write_bytes(
        pickle.dumps({b"fine_label_names": [b"apple", b"bear"]}, protocol=4)
    )
    return folder


def picture(path, shade=0, size=(12, 9)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (shade, 255 - shade, 7)).save(path)
    return path


def write_cub(folder, classes=200, each=3):
    names = [f"{c + 1:03d}.Bird_{c}/bird_{i}.jpg" for c in range(classes) for i in range(each)]
    for number, name in enumerate(names):
        picture(folder / "images" / name, number // each)
    for file, rows in (
        ("images", names),
        ("image_class_labels", [i // each + 1 for i in range(len(names))]),
        ("train_test_split", [int(i % each > 0) for i in range(len(names))]),
        ("classes", [f"{c + 1:03d}.Bird_{c}" for c in range(classes)]),
    ):
        (folder / f"{file}.txt").write_text(
            "".join(f"{i} {row}\n" for i, row in enumerate(rows, 1))
        )
    return folder


def write_awa(folder, classes=50, each=20):
    for c in range(classes):
        for i in range(each):
            picture(folder / "JPEGImages" / f"animal+{c}" / f"animal+{c}_{10001 + i}.jpg", c)
    (folder / "classes.txt").write_text(
        "".join(f"{c + 1:8d}\tanimal+{c}\n" for c in range(classes))
    )
    return folder
