"""Small files in the formats the publishers use, whole and damaged."""

import gzip
import json
import os
import pickle
import struct
import threading
import time
from dataclasses import astuple

import numpy as np
import pytest
import torch
from PIL import Image

from mdmt.data import images
from mdmt.data.images import decode, load_images
from mdmt.data.pickles import read_pickle
from mdmt.data.readers import awa2_split, read_awa2, read_cifar100, read_cub, read_mnist
from support.formats import picture, write_awa, write_cifar, write_cub, write_mnist

AWA2 = (  # images of each class of Animals with Attributes 2, in the order of its classes.txt
    1046, 852, 291, 193, 549, 747, 1645, 1033, 174, 500, 188, 100, 877, 684, 720, 704, 291, 709, 1038, 872, 728, 664,
    1420, 988, 728, 779, 1200, 696, 1088, 383, 1202, 589, 567, 310, 272, 758, 895, 1170, 874, 1344, 630, 713, 1019, 185,
    868, 1028, 215, 512, 1338, 946,
)  # fmt: skip


def error(call, *args, **more):
    with pytest.raises(ValueError) as raised:
        call(*args, **more)
    assert "\n" not in str(raised.value)
    return str(raised.value)


# MNIST


@pytest.mark.parametrize("packed", [True, False])
def test_mnist(tmp_path, packed):
    mnist = read_mnist(write_mnist(tmp_path, packed=packed))
    images = mnist.train.images
    assert (images.shape, images.dtype, mnist.test.images.shape) == ((30, 28, 28), torch.uint8, (20, 28, 28))
    assert mnist.train.labels.tolist() == [i % 10 for i in range(30)]
    assert mnist.test.labels.dtype == torch.int64
    assert images[0].flatten().tolist() == np.random.RandomState(0).randint(0, 256, (30, 28, 28))[0].ravel().tolist()


def test_damaged_mnist_is_named(tmp_path):
    write_mnist(tmp_path)
    labels, pictures = tmp_path / "train-labels-idx1-ubyte.gz", tmp_path / "train-images-idx3-ubyte.gz"
    good = pictures.read_bytes()
    for damage in (good[:-100], good[:40] + b"\0\0\0\0\0\0" + good[46:], b"", b"\x1f\x8b"):
        pictures.write_bytes(damage)
        assert f"{pictures} is damaged" in error(read_mnist, tmp_path)
    pictures.write_bytes(gzip.compress(gzip.decompress(good)[:-1]))
    assert f"{pictures} is damaged: 23520 bytes of data expected, 23519 found" in error(read_mnist, tmp_path)
    pictures.write_bytes(labels.read_bytes())
    assert f"{pictures} is damaged: an idx file of 3 dimensions begins with the number 2051" in error(
        read_mnist, tmp_path
    )
    pictures.write_bytes(good)
    labels.write_bytes(gzip.compress(struct.pack(">II", 2049, 3) + b"\0\1\2"))
    assert f"{pictures} holds 30 images, but {labels.name} 3 labels" in error(read_mnist, tmp_path)
    labels.unlink()
    assert f"{labels} is missing" in error(read_mnist, tmp_path)


# CIFAR-100


def test_cifar(tmp_path):
    cifar = read_cifar100(write_cifar(tmp_path))
    images = cifar.train.images
    assert (images.shape, images.dtype) == ((300, 3, 32, 32), torch.uint8)
    assert cifar.test.images.shape == (100, 3, 32, 32)
    assert torch.bincount(cifar.train.labels).tolist() == [3] * 100
    assert sorted(cifar.test.labels.tolist()) == list(range(100))
    raw = pickle.loads((tmp_path / "train").read_bytes())[b"data"]
    assert images[5, 1].flatten().tolist() == raw[5, 1024:2048].tolist()  # red, then green, then blue


def test_the_pickle_of_python_2_and_an_old_numpy(tmp_path):
    """As published: byte strings are the text of Python 2, and numpy's function has its old name."""
    kind = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    state = b"(K\x01K\x02\x85" + kind + b"\x89U\x02\x07\x09t"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R" + state + b"b"
    (tmp_path / "old").write_bytes(b"\x80\x02}U\x04data" + array + b"s.")
    assert read_pickle(tmp_path / "old")[b"data"].tolist() == [7, 9]


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_pickle_cannot_run_code(tmp_path):
    write_cifar(tmp_path)
    (tmp_path / "train").write_bytes(pickle.dumps({b"data": Evil(tmp_path / "made")}))
    message = error(read_cifar100, tmp_path)
    assert f"{tmp_path / 'train'} is damaged or unsafe: only arrays and plain values are read (posix.mkdir)" in message
    assert not (tmp_path / "made").exists()
    for name in ("loads", "load", "fromfile"):
        (tmp_path / "train").write_bytes(f"cnumpy\n{name}\n.".encode())
        assert f"(numpy.{name})" in error(read_pickle, tmp_path / "train")


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
        assert f"{path} is damaged" in error(read_cifar100, tmp_path)
    path.unlink()
    assert f"{path} is missing" in error(read_cifar100, tmp_path)


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
    assert f"{tmp_path}" in (said := error(read_cub, tmp_path))
    assert message in said


def test_awa_is_cut_as_published(tmp_path):
    listed = read_awa2(write_awa(tmp_path, classes=3))
    assert len(listed.paths) == 3 * 17  # 14 to train, 3 unused, 3 to test
    assert listed.labels[listed.train].bincount().tolist() == [14] * 3
    assert [p.name for p in listed.paths[:17]] == [f"animal+0_{10001 + i}.jpg" for i in (*range(14), 17, 18, 19)]
    assert listed.test.tolist() == [14, 15, 16, 31, 32, 33, 48, 49, 50]
    assert listed.classes == ["animal+0", "animal+1", "animal+2"]
    assert [p.name for p in listed.validation[:3]] == [f"animal+0_{10001 + i}.jpg" for i in (14, 15, 16)]
    assert len(listed.validation) == 9
    (tmp_path / "classes.txt").write_text("1\tunicorn\n")
    assert "unicorn is missing" in error(read_awa2, tmp_path)


def test_the_rule_gives_the_published_numbers_of_images():
    assert sum(AWA2) == 37_322
    shares = [astuple(awa2_split(count)) for count in AWA2]
    assert [sum(split) for split in zip(*shares, strict=True)] == [26_102, 5_620, 5_600]
    for count in range(500):
        share = astuple(awa2_split(count))
        assert sum(share) == count
        assert min(share) >= 0


# The cache of images


def some(folder, count, size=(12, 9)):
    return [picture(folder / f"{i:05d}.png", i % 256, size) for i in range(count)]


def test_images_are_decoded_once(tmp_path, monkeypatch):
    paths, done = some(tmp_path / "in", 100), []
    made = load_images(paths, 6, cache=tmp_path / "cache", progress=lambda n, total: done.append((n, total)), workers=3)
    assert (made.pixels.shape, made.pixels.dtype, made.enlarged) == ((100, 3, 6, 6), torch.uint8, 0)
    assert made.pixels[:, 0, 0, 0].tolist() == list(range(100))  # in the order given
    assert made.pixels[7, :, 5, 5].tolist() == [7, 248, 7]
    assert done[-1] == (100, 100)
    assert made.pixels[torch.tensor([3, 99])].shape == (2, 3, 6, 6)
    monkeypatch.setattr(images, "decode", None)
    again = load_images(paths, 6, cache=tmp_path / "cache")
    assert torch.equal(again.pixels, made.pixels)
    again.pixels[0] = 99  # reaches neither the file nor the next reader
    assert load_images(paths, 6, cache=tmp_path / "cache").pixels[0, 0, 0, 0] == 0
    assert sorted(p.suffix for p in (tmp_path / "cache").iterdir()) == [".json", ".lock", ".u8"]


def test_a_changed_image_or_size_is_another_cache(tmp_path):
    paths = some(tmp_path / "in", 3)
    first = load_images(paths, 4, cache=tmp_path / "cache")
    assert load_images(paths, 20, cache=tmp_path / "cache").enlarged == 3
    picture(paths[0], 200)
    os.utime(paths[0], (1, 1))
    assert load_images(paths, 4, cache=tmp_path / "cache").pixels[0, 0, 0, 0] == 200
    assert first.pixels[0, 0, 0, 0] == 0
    assert load_images(paths[::-1], 4, cache=tmp_path / "cache").pixels[2, 0, 0, 0] == 200


@pytest.mark.parametrize("damage", ["cut", "text", "png", "gone"])
def test_a_broken_image_leaves_no_cache(tmp_path, damage):
    paths = some(tmp_path / "in", 70)
    bad = paths[50]
    if damage == "cut":
        bad = paths[50] = picture(bad.with_suffix(".jpg"), 3, (99, 99))
        bad.write_bytes(bad.read_bytes()[:-500])
    elif damage == "text":
        bad.write_text("not an image")
    elif damage == "png":
        bad.write_bytes(bad.read_bytes()[:45])
    else:
        bad.unlink()
    message = error(load_images, paths, 6, cache=tmp_path / "cache")
    assert message.startswith(f"{bad} is ")
    assert not [p for p in (tmp_path / "cache").glob("*") if p.suffix != ".lock"]
    picture(bad)
    assert len(load_images(paths, 6, cache=tmp_path / "cache").pixels) == 70


def test_an_unfinished_or_cut_cache_is_made_again(tmp_path):
    paths = some(tmp_path / "in", 5)
    load_images(paths, 6, cache=tmp_path / "cache")
    (about,), (pixels,) = ((tmp_path / "cache").glob(f"*.{end}") for end in ("json", "u8"))
    assert json.loads(about.read_text())["images"] == 5
    about.unlink()
    assert load_images(paths, 6, cache=tmp_path / "cache").pixels[4, 0, 0, 0] == 4
    os.truncate(pixels, 50)
    assert load_images(paths, 6, cache=tmp_path / "cache").pixels[4, 0, 0, 0] == 4
    killed = pixels.with_name(f".{pixels.name}.1.tmp")
    killed.write_bytes(b"half")
    about.write_text("{")
    assert load_images(paths, 6, cache=tmp_path / "cache").pixels[4, 0, 0, 0] == 4
    assert not killed.exists()
    (tmp_path / "file").write_text("")
    assert "cannot store 0.0 GB of decoded images there" in error(
        load_images, paths, 6, cache=tmp_path / "file" / "cache"
    )


def test_two_at_once_do_the_work_once(tmp_path, monkeypatch):
    paths, calls = some(tmp_path / "in", 4), []

    def slow(path, size):
        calls.append(path)
        time.sleep(0.02)
        return decode(path, size)

    monkeypatch.setattr(images, "decode", slow)
    threads = [
        threading.Thread(target=load_images, args=(paths, 6), kwargs={"cache": tmp_path / "c"}) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 4


def test_every_kind_of_image_becomes_rgb(tmp_path):
    for mode, colour in (
        ("L", 60),
        ("RGBA", (60, 60, 60, 9)),
        ("P", 60),
        ("LA", (60, 9)),
        ("CMYK", (0, 0, 0, 195)),
        ("1", 0),
    ):
        path = tmp_path / f"{mode}.{'jpg' if mode == 'CMYK' else 'png'}"
        image = Image.new(mode, (5, 4), colour)
        if mode == "P":
            image.putpalette([60] * 768)
        image.save(path, **({"transparency": 3} if mode == "P" else {}))
        shade = 0 if mode == "1" else 60
        assert decode(path, 3).pixels.tolist() == [[[shade] * 3] * 3] * 3, mode
    Image.fromarray(np.full((4, 5), 60 * 256 + 3, np.uint16)).save(tmp_path / "16.png")
    assert np.unique(decode(tmp_path / "16.png", 3).pixels).tolist() == [60]


def test_a_photograph_is_turned_upright(tmp_path):
    image = Image.new("RGB", (8, 4))
    image.paste((255, 255, 255), (0, 0, 4, 4))  # its left half is white
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned a quarter clockwise: the top half is
    image.save(tmp_path / "a.png", exif=exif)
    pixels = decode(tmp_path / "a.png", 4).pixels
    assert pixels[0, 0].tolist() == [255] * 4
    assert pixels[0, 3].tolist() == [0] * 4


def test_memory_does_not_grow_with_the_number_of_images(tmp_path, monkeypatch):
    """No more than a few pieces are decoded ahead of what is written."""
    one, written, ahead = picture(tmp_path / "a.png"), [0], []
    decoded = []
    monkeypatch.setattr(images, "decode", lambda path, size: (decoded.append(1), decode(path, size))[1])

    def progress(done, total):
        written[0] = done
        ahead.append(len(decoded) - done)
        time.sleep(0.001)

    load_images([one] * 2000, 2, cache=tmp_path / "cache", progress=progress, workers=2)
    assert max(ahead) <= 5 * images.PIECE


def test_sizes_are_checked(tmp_path):
    assert "image_size=0" in error(load_images, [tmp_path], 0)
    assert "no images" in error(load_images, [], 5)
