"""Small files in the formats the publishers use, whole and damaged."""

import gzip
import os
import pickle
import struct
import tracemalloc
from dataclasses import astuple

import numpy as np
import pytest
import torch

from mdmt.data.pickles import read_pickle
from mdmt.data.readers import awa2_split, read_awa2, read_cifar100, read_cub, read_mnist
from support.formats import write_awa, write_cifar, write_cub, write_mnist
from support.helpers import mistake

AWA2 = (  # images of each class of Animals with Attributes 2, in the order of its classes.txt
    1046,
    852,
    291,
    193,
    549,
    747,
    1645,
    1033,
    174,
    500,
    188,
    100,
    877,
    684,
    720,
    704,
    291,
    709,
    1038,
    872,
    728,
    664,
    1420,
    988,
    728,
    779,
    1200,
    696,
    1088,
    383,
    1202,
    589,
    567,
    310,
    272,
    758,
    895,
    1170,
    874,
    1344,
    630,
    713,
    1019,
    185,
    868,
    1028,
    215,
    512,
    1338,
    946,
)


# MNIST


@pytest.mark.parametrize("packed", [True, False])
def test_mnist(tmp_path, packed):
    mnist = read_mnist(write_mnist(tmp_path, packed=packed))
    images = mnist.train.images
    assert (images.shape, images.dtype, mnist.test.images.shape) == (
        (30, 28, 28),
        torch.uint8,
        (20, 28, 28),
    )
    assert mnist.train.labels.tolist() == [i % 10 for i in range(30)]
    assert mnist.test.labels.dtype == torch.int64
    assert (
        images[0].flatten().tolist()
        == np.random.RandomState(0).randint(0, 256, (30, 28, 28))[0].ravel().tolist()
    )


def test_damaged_mnist_is_named(tmp_path):
    write_mnist(tmp_path)
    labels, pictures = (
        tmp_path / "train-labels-idx1-ubyte.gz",
        tmp_path / "train-images-idx3-ubyte.gz",
    )
    good = pictures.read_bytes()
    for damage in (good[:-100], good[:40] + b"\0\0\0\0\0\0" + good[46:], b"", b"\x1f\x8b"):
        pictures.write_bytes(damage)
        assert f"{pictures} is damaged" in mistake(read_mnist, tmp_path)
    pictures.write_bytes(gzip.compress(gzip.decompress(good)[:-1]))
    assert f"{pictures} is damaged: 23520 bytes of data expected, 23519 found" in mistake(
        read_mnist, tmp_path
    )
    pictures.write_bytes(labels.read_bytes())
    assert (
        f"{pictures} is damaged: an idx file of 3 dimensions begins with the number 2051"
        in mistake(read_mnist, tmp_path)
    )
    pictures.write_bytes(good)
    labels.write_bytes(gzip.compress(struct.pack(">II", 2049, 3) + b"\0\1\2"))
    assert f"{pictures} holds 30 images, but {labels.name} 3 labels" in mistake(
        read_mnist, tmp_path
    )
    labels.unlink()
    assert f"{labels} is missing" in mistake(read_mnist, tmp_path)


def test_a_packed_file_that_unpacks_to_gigabytes_is_not_unpacked(tmp_path):
    write_mnist(tmp_path)
    pictures = tmp_path / "train-images-idx3-ubyte.gz"
    header = struct.pack(">IIII", 2051, 60_000, 28, 28)
    with gzip.open(pictures, "wb", compresslevel=1) as file:
        file.write(header)
        for _ in range(200):
            file.write(bytes(10**6))
    tracemalloc.start()
    try:
        line = mistake(read_mnist, tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 10**8
    finally:
        tracemalloc.stop()
    assert line == f"{pictures} is damaged: 47040000 bytes of data expected, more found"
    with gzip.open(pictures, "wb") as file:
        file.write(struct.pack(">IIII", 2051, 2**32 - 1, 28, 28))
    assert "it claims to hold 4,294,967,295 images" in mistake(read_mnist, tmp_path)


# CIFAR-100


def test_cifar(tmp_path):
    cifar = read_cifar100(write_cifar(tmp_path))
    images = cifar.train.images
    assert (images.shape, images.dtype) == ((300, 3, 32, 32), torch.uint8)
    assert cifar.test.images.shape == (100, 3, 32, 32)
    assert torch.bincount(cifar.train.labels).tolist() == [3] * 100
    assert sorted(cifar.test.labels.tolist()) == list(range(100))
    raw = pickle.loads((tmp_path / "train").read_bytes())[b"data"]
    # Red, then green, then blue.
    assert images[5, 1].flatten().tolist() == raw[5, 1024:2048].tolist()


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_pickle_cannot_run_code(tmp_path):
    write_cifar(tmp_path)
    (tmp_path / "train").write_bytes(pickle.dumps({b"data": Evil(tmp_path / "made")}))
    message = mistake(read_cifar100, tmp_path)
    assert (
        f"{tmp_path / 'train'} is damaged or unsafe: only arrays and plain values are read"
        " (posix.mkdir)" in message
    )
    assert not (tmp_path / "made").exists()
    for name in ("loads", "load", "fromfile"):
        (tmp_path / "train").write_bytes(f"cnumpy\n{name}\n.".encode())
        assert f"(numpy.{name})" in mistake(read_pickle, tmp_path / "train")


def test_damaged_cifar_is_named(tmp_path):
    path = write_cifar(tmp_path) / "train"
    good = path.read_bytes()
    rows = pickle.loads(good)
    for damage in (
        good[:-1000],
        b"",
        b"\x80\x04garbage",
        pickle.dumps([1, 2]),
        pickle.dumps({b"data": rows[b"data"]}),
        pickle.dumps({**rows, b"data": rows[b"data"][:, :-1]}, protocol=4),
        pickle.dumps({**rows, b"fine_labels": rows[b"fine_labels"][:-1]}, protocol=4),
        pickle.dumps({**rows, b"fine_labels": [100] * 300}, protocol=4),
    ):
        path.write_bytes(damage)
        assert f"{path} is damaged" in mistake(read_cifar100, tmp_path)
    path.unlink()
    assert f"{path} is missing" in mistake(read_cifar100, tmp_path)


# CUB and AWA


def test_cub(tmp_path):
    listed = read_cub(write_cub(tmp_path, classes=4))
    assert listed.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert listed.test.tolist() == [0, 3, 6, 9]
    assert listed.train.tolist() == [1, 2, 4, 5, 7, 8, 10, 11]
    assert listed.classes[3] == "004.Bird_3"
    assert listed.paths[1] == tmp_path / "images" / "001.Bird_0" / "bird_1.jpg"


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("images", "1 a.jpg\n1 b.jpg\n", "images.txt, line 2"),
        ("images", "1 a.jpg\nb\n", "images.txt, line 2"),
        ("images", "1 a.jpg\nb c.jpg\n", "images.txt, line 2"),
        ("images", "", "images.txt is empty"),
        ("images", None, "images.txt is missing"),
        ("image_class_labels", "1 1\n", "image_class_labels.txt does not list the images"),
        ("image_class_labels", "1 1\n2 1\n3 9\n", "image 3 has class 9, not in classes.txt"),
        ("train_test_split", "1 1\n2 1\n3 2\n", "image 3 has '2', neither 0 nor 1"),
    ],
)
def test_damaged_cub_is_named(tmp_path, file, text, message):
    write_cub(tmp_path, classes=1)
    path = tmp_path / f"{file}.txt"
    path.unlink() if text is None else path.write_text(text)
    assert f"{tmp_path}" in (said := mistake(read_cub, tmp_path))
    assert message in said


def test_awa_is_cut_as_published(tmp_path):
    listed = read_awa2(write_awa(tmp_path, classes=3))
    assert len(listed.paths) == 3 * 17  # 14 to train, 3 unused, 3 to test
    assert listed.labels[listed.train].bincount().tolist() == [14] * 3
    assert [p.name for p in listed.paths[:17]] == [
        f"animal+0_{10001 + i}.jpg" for i in (*range(14), 17, 18, 19)
    ]
    assert listed.test.tolist() == [14, 15, 16, 31, 32, 33, 48, 49, 50]
    assert listed.classes == ["animal+0", "animal+1", "animal+2"]
    assert [p.name for p in listed.validation[:3]] == [
        f"animal+0_{10001 + i}.jpg" for i in (14, 15, 16)
    ]
    assert len(listed.validation) == 9
    (tmp_path / "classes.txt").write_text("1\tunicorn\n")
    assert "unicorn is missing" in mistake(read_awa2, tmp_path)


def test_the_rule_gives_the_published_numbers_of_images():
    assert sum(AWA2) == 37_322
    shares = [astuple(awa2_split(count)) for count in AWA2]
    assert [sum(split) for split in zip(*shares, strict=True)] == [26_102, 5_620, 5_600]
    for count in range(500):
        share = astuple(awa2_split(count))
        assert sum(share) == count
        assert min(share) >= 0
