"""Images decoded once into a memory-mapped cache."""

import json
import os
import threading
import time

import numpy as np
import pytest
import torch
from PIL import Image

from mdmt.data import images
from mdmt.data.images import decode, load_images
from support.formats import picture
from support.helpers import mistake


def some(folder, count, size=(12, 9)):
    return [picture(folder / f"{i:05d}.png", i % 256, size) for i in range(count)]


def test_images_are_decoded_once(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    paths, done = some(tmp_path / "in", 100), []
    made = load_images(
        paths,
        6,
        cache=tmp_path / "cache",
        progress=lambda n, total: done.append((n, total)),
    )
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
    message = mistake(load_images, paths, 6, cache=tmp_path / "cache")
    assert message.startswith(f"{bad} is ")
    assert not [p for p in (tmp_path / "cache").glob("*") if p.suffix != ".lock"]
    picture(bad)
    assert len(load_images(paths, 6, cache=tmp_path / "cache").pixels) == 70


def test_an_unfinished_or_cut_cache_is_made_again(tmp_path):
    paths = some(tmp_path / "in", 5)
    load_images(paths, 6, cache=tmp_path / "cache")
    (about,), (pixels,) = ((tmp_path / "cache").glob(f"*.{end}") for end in ("json", "u8"))
    assert len(json.loads(about.read_text())["checksums"]) == 5
    about.unlink()
    assert load_images(paths, 6, cache=tmp_path / "cache").pixels[4, 0, 0, 0] == 4
    os.truncate(pixels, 50)
    assert load_images(paths, 6, cache=tmp_path / "cache").pixels[4, 0, 0, 0] == 4
    killed = about.with_name(f".{about.name}.1.tmp")
    killed.write_bytes(b"half")
    about.write_text("{")
    assert load_images(paths, 6, cache=tmp_path / "cache").pixels[4, 0, 0, 0] == 4
    assert not killed.exists()
    (tmp_path / "file").write_text("")
    assert "cannot store 0.0 GB of decoded images there" in mistake(
        load_images, paths, 6, cache=tmp_path / "file" / "cache"
    )


@pytest.mark.parametrize("damage", ["pixels", "cut", "description"])
def test_damaged_pixels_are_decoded_again(tmp_path, damage):
    paths = some(tmp_path / "in", 5)
    right = load_images(paths, 6, cache=tmp_path / "cache").pixels.clone()
    (about,), (pixels,) = ((tmp_path / "cache").glob(f"*.{end}") for end in ("json", "u8"))
    if damage == "pixels":
        with pixels.open("r+b") as file:
            file.seek(2 * 3 * 6 * 6)  # the third image
            file.write(b"x" * 10)
    elif damage == "cut":
        os.truncate(pixels, 3 * 3 * 6 * 6)
    else:
        about.write_text(about.read_text()[:-9])
    again = load_images(paths, 6, cache=tmp_path / "cache")
    assert torch.equal(again.pixels, right)
    images = {"pixels": "1 image", "cut": "2 images", "description": "5 images"}[damage]
    assert again.notes == (f"{pixels} was damaged: {images} decoded again",)
    after = load_images(paths, 6, cache=tmp_path / "cache")
    assert torch.equal(after.pixels, right)
    assert after.notes == ()


def test_only_the_images_that_are_read_are_decoded(tmp_path, monkeypatch):
    paths, decoded = some(tmp_path / "in", 100), []
    monkeypatch.setattr(
        images, "decode", lambda path, size: (decoded.append(path), decode(path, size))[1]
    )

    def load(rows):
        decoded.clear()
        return load_images(paths, 20, cache=tmp_path / "cache", rows=rows)

    made = load([70, 3, 70, 4])
    assert decoded == [paths[3], paths[4], paths[70]]
    assert made.pixels[:, 0, 0, 0][[3, 4, 70]].tolist() == [3, 4, 70]
    assert made.enlarged == 3
    load([3, 4, 5])
    assert decoded == [paths[5]]
    assert load(None).pixels[:, 0, 0, 0].tolist() == list(range(100))
    assert len(decoded) == 96
    assert load([3, 99]).enlarged == 2
    assert decoded == []


def test_a_broken_image_that_nobody_reads_is_no_mistake(tmp_path):
    paths = some(tmp_path / "in", 5)
    paths[2].write_text("not an image")
    assert load_images(paths, 6, cache=tmp_path / "cache", rows=[0, 4]).pixels[4, 0, 0, 0] == 4
    assert "is not an image" in mistake(load_images, paths, 6, cache=tmp_path / "cache")
    assert load_images(paths, 6, cache=tmp_path / "cache", rows=[0, 4]).pixels[4, 0, 0, 0] == 4


def test_two_at_once_do_the_work_once(tmp_path, monkeypatch):
    paths, calls = some(tmp_path / "in", 4), []

    def slow(path, size):
        calls.append(path)
        time.sleep(0.02)
        return decode(path, size)

    monkeypatch.setattr(images, "decode", slow)
    threads = [
        threading.Thread(target=load_images, args=(paths, 6), kwargs={"cache": tmp_path / "c"})
        for _ in range(3)
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


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_pixels_of_unknown_range_are_refused(tmp_path, kind):
    """Floats in 0 to 1 would become black, and 32-bit numbers white."""
    path = tmp_path / "a.tif"
    Image.fromarray(np.full((4, 5), 1, kind)).save(path)
    told = mistake(load_images, [path], 3, cache=tmp_path / "cache")
    assert told.startswith(
        f"{path} has floating-point, signed or 32-bit pixels, whose range is unknown: "
    )


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
    """Only a few pieces are decoded before they are written."""
    one, written, ahead = picture(tmp_path / "a.png"), [0], []
    decoded = []
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(
        images, "decode", lambda path, size: (decoded.append(1), decode(path, size))[1]
    )

    def progress(done, total):
        written[0] = done
        ahead.append(len(decoded) - done)
        time.sleep(0.001)

    load_images([one] * 2000, 2, cache=tmp_path / "cache", progress=progress)
    assert max(ahead) <= 5 * images.IMAGES_AT_ONCE


def test_sizes_are_checked(tmp_path):
    assert "image_size=0" in mistake(load_images, [tmp_path], 0)
    assert "no images" in mistake(load_images, [], 5)


def test_resizing_is_antialiased(tmp_path):
    """A board of black and white pixels becomes grey; four neighbours would keep it sharp."""
    board = (np.indices((64, 64)).sum(0) % 2 * 255).astype(np.uint8)
    Image.fromarray(board).save(tmp_path / "board.png")
    pixels = load_images([tmp_path / "board.png"], 7, cache=tmp_path / "cache").pixels
    assert pixels.float().sub(127.5).abs().max() < 20
