"""Faults in the structure of a data set, and comparison with the published bytes."""

import gzip
import hashlib
import os
import pickle
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mdmt.cli.app import main
from mdmt.data import sources
from mdmt.data.fetch import fetch
from mdmt.data.sources import IDX_PARTS, SOURCES, locate, substitute_note
from mdmt.data.verify import verify


def break_cub(folder):
    (folder / "CUB_200_2011" / "images" / "001.Crow" / "bird_2.jpg").unlink()


def lengthen_cub(folder):
    with open(folder / "CUB_200_2011" / "images.txt", "a") as file:
        file.write("11 001.Crow/one_more.jpg\n")


def unsplit_cub(folder):
    path = folder / "CUB_200_2011" / "train_test_split.txt"
    path.write_text(path.read_text().replace("1 1\n", "1 0\n", 1))


def empty_awa2(folder):
    for path in (folder / "Animals_with_Attributes2" / "JPEGImages" / "bear").iterdir():
        path.unlink()


def shorten_mnist(folder):
    path = folder / "mnist" / "t10k-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1]))


def swap_mnist(folder):
    images = (folder / "mnist" / "train-images-idx3-ubyte.gz").read_bytes()
    (folder / "mnist" / "train-labels-idx1-ubyte.gz").write_bytes(images)


def cut_mnist(folder):
    path = folder / "mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-30])


def behead_mnist(folder):
    (folder / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(b"\0\0\x08"))


def relabel_cifar(folder):
    content = {b"data": np.zeros((4, 3072), np.uint8), b"fine_labels": [0, 0, 0, 1]}
    (folder / "cifar-100-python" / "test").write_bytes(pickle.dumps(content))


def grey_cifar(folder):
    content = {b"data": np.zeros((4, 1024), np.uint8), b"fine_labels": [0, 0, 1, 1]}
    (folder / "cifar-100-python" / "test").write_bytes(pickle.dumps(content))


def drop_a_bird(folder):
    for name in ("images", "image_class_labels", "train_test_split"):
        path = folder / "CUB_200_2011" / f"{name}.txt"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def drop_a_class_of_birds(folder):
    path = folder / "CUB_200_2011" / "image_class_labels.txt"
    path.write_text("".join(f"{i} 1\n" for i in range(1, 11)))


def empty_a_bird(folder):
    (folder / "CUB_200_2011" / "images" / "001.Crow" / "bird_2.jpg").write_bytes(b"")


def drop_an_animal(folder):
    (folder / "Animals_with_Attributes2" / "JPEGImages" / "bear" / "bear_10008.jpg").unlink()


def empty_an_animal_for_validation(folder):
    (folder / "Animals_with_Attributes2" / "JPEGImages" / "bear" / "bear_10008.jpg").write_bytes(
        b""
    )


def name_an_animal_twice(folder):
    (folder / "Animals_with_Attributes2" / "classes.txt").write_text("1\tbear\n2\tbear\n")


def widen_mnist(folder):
    content = struct.pack(">IIII", 2051, 6, 28, 29) + bytes(6 * 28 * 29)
    (folder / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(content))


def relabel_mnist(folder):
    content = struct.pack(">II", 2049, 6) + bytes([0, 2, 0, 2, 0, 2])
    (folder / "mnist" / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(content))


def thin_mnist(folder):
    for stem, size in (("images-idx3", 784), ("labels-idx1", 1)):
        header = struct.pack(">IIII", 2051, 3, 28, 28) if size > 1 else struct.pack(">II", 2049, 3)
        content = gzip.compress(header + bytes(3 * size))
        (folder / "mnist" / f"t10k-{stem}-ubyte.gz").write_bytes(content)


def unname_cifar(folder):
    (folder / "cifar-100-python" / "meta").write_bytes(
        pickle.dumps({b"fine_label_names": [b"cat", b"cat"]})
    )


def lose_meta(folder):
    (folder / "cifar-100-python" / "meta").write_bytes(pickle.dumps({}))


def skip_a_class_of_cifar(folder):
    content = {b"data": np.zeros((4, 3072), np.uint8), b"fine_labels": [0, 0, 2, 2]}
    (folder / "cifar-100-python" / "test").write_bytes(pickle.dumps(content))


def thin_cifar(folder):
    content = {b"data": np.zeros((2, 3072), np.uint8), b"fine_labels": [0, 1]}
    (folder / "cifar-100-python" / "test").write_bytes(pickle.dumps(content))


@pytest.mark.parametrize(
    ("name", "harm", "message"),
    [
        ("cub", drop_a_bird, "images.txt: 9 images instead of 10"),
        ("cub", drop_a_class_of_birds, "image_class_labels.txt: 1 class instead of 2"),
        ("cub", empty_a_bird, "images/001.Crow/bird_2.jpg is empty"),
        ("awa2", drop_an_animal, "JPEGImages: 19 images instead of 20"),
        ("awa2", empty_an_animal_for_validation, "JPEGImages/bear/bear_10008.jpg is empty"),
        ("awa2", name_an_animal_twice, "classes.txt: 1 class instead of 2"),
        (
            "mnist",
            widen_mnist,
            "train-images-idx3-ubyte.gz holds images of 28 x 29 pixels; MNIST has 28 x 28",
        ),
        ("mnist", relabel_mnist, "mnist, train: the labels are not 0 to 1, each used"),
        ("mnist", thin_mnist, "mnist, test: 3 images instead of 4"),
        ("cifar100", unname_cifar, "meta: 1 class name instead of 2"),
        ("cifar100", lose_meta, "meta is damaged: it has no list 'fine_label_names'"),
        ("cifar100", skip_a_class_of_cifar, "test: 0 to 2 images a class instead of 2"),
        ("cifar100", thin_cifar, "test: 2 images instead of 4"),
        ("cub", break_cub, "images/001.Crow/bird_2.jpg is missing"),
        (
            "cub",
            lengthen_cub,
            (
                "image_class_labels.txt does not list the images of images.txt: it has 10 lines,"
                " images.txt has 11"
            ),
        ),
        ("cub", unsplit_cub, "train_test_split.txt: 5 training images instead of 6"),
        ("awa2", empty_awa2, "JPEGImages/bear has no images"),
        (
            "mnist",
            shorten_mnist,
            "t10k-labels-idx1-ubyte.gz is damaged: 4 bytes of data expected, 3 found",
        ),
        (
            "mnist",
            swap_mnist,
            (
                "train-labels-idx1-ubyte.gz is damaged: "
                "an idx file of 1 dimension begins with the number 2049, this one with 2051"
            ),
        ),
        ("mnist", behead_mnist, "train-images-idx3-ubyte.gz is damaged: it has no idx header"),
        ("mnist", cut_mnist, "train-images-idx3-ubyte.gz is damaged"),
        ("cifar100", relabel_cifar, "test: 1 to 3 images a class instead of 2"),
        ("cifar100", grey_cifar, "test is damaged: 'data' is 4 x 1024 uint8, not N x 3072 uint8"),
    ],
)
def test_a_wrong_structure_is_named(name, harm, message, tmp_path, publish, server, capsys):
    publish(name)
    fetch(name, tmp_path, base=server.url)
    harm(tmp_path)
    assert main(["data", "verify", name, "--data", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"mdmt: {name}: wrong structure: {tmp_path}")
    assert message in err
    assert err.count("\n") == 1


def test_right_structure_other_bytes(tmp_path, publish, server, capsys):
    publish("awa2")
    fetch("awa2", tmp_path, base=server.url)
    picture = tmp_path / "Animals_with_Attributes2" / "JPEGImages" / "bear" / "bear_10003.jpg"
    picture.write_bytes(b"another")
    assert main(["data", "verify", "awa2", "--data", str(tmp_path)]) == 0
    assert (
        "awa2: structure right, bytes differ (Animals_with_Attributes2/JPEGImages/bear"
        in capsys.readouterr().out
    )
    (tmp_path / "AwA2-data.zip").unlink()
    assert verify("awa2", tmp_path).comparison.verdict == "not compared"


def test_a_resized_copy(tmp_path, publish, server):
    from PIL import Image

    publish("cub")
    fetch("cub", tmp_path, base=server.url)
    (tmp_path / "CUB_200_2011.tgz").unlink()
    for path in (tmp_path / "CUB_200_2011" / "images").glob("*/*.jpg"):
        Image.new("RGB", (32, 32)).save(path)
    assert (
        verify("cub", tmp_path).line
        == "cub: structure right, bytes differ (the images are a copy resized to 32x32 pixels)"
    )


def test_mnist_packed_anew(tmp_path, publish, server, monkeypatch):
    given = publish("mnist")
    sums = {
        name.removesuffix(".gz"): hashlib.md5(gzip.decompress(data)).hexdigest()
        for name, data in given.items()
    }
    monkeypatch.setitem(SOURCES, "mnist", replace(SOURCES["mnist"], part_md5=sums))
    fetch("mnist", tmp_path, base=server.url)
    assert (
        verify("mnist", tmp_path).line
        == "mnist: structure right, bytes are the published ones (by the md5 of each file)"
    )
    path = tmp_path / "mnist" / "train-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), 1, mtime=9))
    assert verify("mnist", tmp_path).comparison.reason.endswith(
        "once unpacked; the .gz files were repacked"
    )


def test_substitutes_are_named(tmp_path, publish, server, capsys):
    publish("awa2")
    fetch("awa2", tmp_path, base=server.url)
    assert substitute_note(locate("awa2", tmp_path)) is None
    (tmp_path / "Animals_with_Attributes2" / sources.SUBSTITUTE_NOTE).write_text(
        "These are not\nthe AWA2 images.\n"
    )
    assert substitute_note(locate("awa2", tmp_path)) == "These are not the AWA2 images."
    assert (
        verify("awa2", tmp_path).line
        == "awa2: structure right, bytes differ (substitute images: These are not the AWA2 images.)"
    )
    empty_awa2(tmp_path)
    assert main(["data", "verify", "awa2", "--data", str(tmp_path)]) == 2
    assert "awa2: substitute images: These are not the AWA2 images. (" in capsys.readouterr().err
    assert main(["data", "list", "--data", str(tmp_path)]) == 0
    assert "awa2: substitute images" in capsys.readouterr().out


def test_idx_files_may_be_unpacked(tmp_path, publish):
    (tmp_path / "mnist").mkdir()
    for name, data in publish("mnist").items():
        (tmp_path / "mnist" / name.removesuffix(".gz")).write_bytes(gzip.decompress(data))
    assert locate("mnist", tmp_path).parts[IDX_PARTS[0]].suffix == ""
    assert verify("mnist", tmp_path).figures["train"] == 6


@pytest.mark.parametrize("name", SOURCES)
def test_the_real_data(name):
    folder = os.environ.get("MDMT_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("$MDMT_DATA names no folder with data sets")
    try:
        location = locate(name, folder)
    except ValueError as error:
        pytest.skip(str(error))
    if substitute_note(location) is not None:
        pytest.skip(f"{name} in $MDMT_DATA holds substitute images")
    assert verify(name, folder).figures["train"] == SOURCES[name].counts["train"]
