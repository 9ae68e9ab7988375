"""The published streams: class orders, sizes, normalisation, and names for each reduction."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

import mdmt
from mdmt.benchmarks import split_awa, split_cifar, split_cub
from mdmt.benchmarks.permuted_mnist import permuted_mnist, pixel_orders
from mdmt.benchmarks.splits import draw_rows
from mdmt.data.images import decode
from mdmt.data.readers import read_awa2, read_cifar100
from support.formats import write_awa, write_cifar, write_cub, write_mnist

REAL = os.environ.get("MDMT_DATA", "")
real = pytest.mark.skipif(
    not Path(REAL or "?").is_dir(),
    reason="the published data is not here: $MDMT_DATA names its folder",
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MDMT_CACHE", str(tmp_path / "cache"))


# Class orders need no data.


def test_class_orders_are_the_published_ones():
    assert split_cifar.class_order(1234)[:2] == [[86, 66, 82, 74, 50], [87, 48, 78, 25, 76]]
    assert split_cifar.class_order(1235)[0] == [97, 15, 40, 89, 24]
    assert split_cub.class_order(1234)[0] == [87, 81, 139, 180, 163, 78, 70, 159, 124, 131]
    assert split_awa.class_order(1234)[0] == [43, 22, 15, 20, 17]


@pytest.mark.parametrize(
    ("module", "pool", "held_out"), [(split_cifar, (15, 100), 15), (split_cub, (30, 200), 30)]
)
def test_every_class_is_used_once(module, pool, held_out):
    order = module.class_order(1236)
    assert len(order) == 17
    assert sorted(c for task in order for c in task) == list(range(*pool))
    apart = module.class_order(1236, cross_validation=True)
    assert len(apart) == 3
    assert sorted(c for task in apart for c in task) == list(range(held_out))


def test_awa_draws_each_task_anew():
    order = split_awa.class_order(1234)
    assert [len(set(task)) for task in order] == [5] * 17
    assert {c for task in order for c in task} <= set(range(15, 50))
    assert {c for task in split_awa.class_order(1234, cross_validation=True) for c in task} <= set(
        range(15)
    )


def test_orders_of_pixels():
    random = np.random.RandomState(1234)
    for order in pixel_orders(1234, 0, 20):
        expected = np.arange(784)
        random.shuffle(expected)
        assert order.tolist() == expected.tolist()
    assert pixel_orders(1234, 17, 3)[0].tolist() == pixel_orders(1234, 0, 18)[17].tolist()


# Small data in the published formats.


def test_permuted_mnist(tmp_path):
    write_mnist(tmp_path / "mnist", 5040, 30)
    stream = permuted_mnist(1234, data=tmp_path)
    assert [(len(t.train), len(t.test)) for t in stream] == [
        (40, 30)
    ] * 17  # the first 5,000 are left out
    assert (stream.outputs, stream.evaluate, stream.heads, stream.scale, stream.mean) == (
        10,
        "all",
        "shared",
        1 / 255,
        None,
    )
    assert len({t.train.inputs.data_ptr() for t in stream}) == 1
    assert [t.view.order.tolist() for t in stream] == [
        o.tolist() for o in pixel_orders(1234, 0, 17)
    ]
    assert [t.name for t in stream][:2] == ["permutation 1", "permutation 2"]
    assert stream.reduced == {"images": "substitute images"}
    apart = permuted_mnist(1234, data=tmp_path / "mnist", cross_validation=True)
    assert [t.view.order.tolist() for t in apart] == [o.tolist() for o in pixel_orders(1234, 17, 3)]
    assert apart.reduced == {"cross_validation": True, "tasks": 3, "images": "substitute images"}
    few = permuted_mnist(1234, 2, "per-task", data=tmp_path, subset=20)
    assert (len(few), few.outputs, few.evaluate) == (2, 20, "seen")
    assert torch.bincount(few[0].train.labels).tolist() == [2] * 10
    assert few.reduced == {"tasks": 2, "subset": 20, "images": "substitute images"}
    fewer = permuted_mnist(1234, 1, data=tmp_path, subset=3)  # not an example of every class
    assert (len(fewer[0].train), fewer.outputs) == (3, 10)


def test_split_cifar(tmp_path):
    write_cifar(tmp_path / "cifar-100-python")
    stream = split_cifar.split_cifar(1234, data=tmp_path)
    assert [t.classes for t in stream] == [tuple(c) for c in split_cifar.class_order(1234)]
    assert [(len(t.train), len(t.test)) for t in stream] == [(15, 5)] * 17
    assert (stream.outputs, stream.heads, stream.scale, stream.evaluate) == (
        100,
        "per-task",
        1 / 255,
        "seen",
    )
    whole = read_cifar100(tmp_path / "cifar-100-python").train
    assert torch.allclose(stream.mean, whole.images.double().mean(0).float() / 255)
    task = stream[3]
    for label, row in zip(
        task.train.labels.tolist(), task.train.inputs[torch.arange(15)], strict=True
    ):
        assert any(
            torch.equal(row, image) for image in whole.images[whole.labels == task.classes[label]]
        )
    apart = split_cifar.split_cifar(1234, 2, data=tmp_path, cross_validation=True)
    assert [set(t.classes) < set(range(15)) for t in apart] == [True, True]
    assert len(split_cifar.split_cifar(1234, 1, data=tmp_path, subset=7)[0].train) == 7


def test_split_cub(tmp_path):
    write_cub(tmp_path / "CUB_200_2011")
    stream = split_cub.split_cub(1234, 2, data=tmp_path, image_size=8)
    assert stream[0].classes == tuple(split_cub.class_order(1234)[0])
    assert [(len(t.train), len(t.test)) for t in stream] == [(20, 10)] * 2
    assert stream[0].train.inputs.shape == (20, 3, 8, 8)
    # An image's red is its class.
    red = stream[0].test.inputs[torch.arange(10)][:, 0].float().mean((1, 2))
    named = torch.tensor(stream[0].classes)[stream[0].test.labels]
    assert (red - named).abs().max() < 3
    assert (stream.outputs, stream.scale, stream.per_class) == (200, 1.0, False)
    assert stream.mean.flatten().tolist() == pytest.approx([103.94, 116.78, 123.68])
    assert stream.reduced == {"tasks": 2, "image_size": 8, "images": "substitute images"}


def test_split_awa_shares_a_class_over_its_tasks(tmp_path):
    listed = read_awa2(write_awa(tmp_path / "Animals_with_Attributes2"))
    order = split_awa.class_order(1234)
    stream = split_awa.split_awa(1234, data=tmp_path, image_size=8)
    flat = [c for task in order for c in task]
    used = [
        (order[i][label], row)
        for i, t in enumerate(stream)
        for label, row in zip(t.train.labels, t.train.inputs.index.tolist(), strict=True)
    ]
    for c in set(flat):
        rows = [row for label, row in used if label == c]
        whole = listed.train[listed.labels[listed.train] == c].tolist()
        # Consecutive, in order, none twice.
        assert rows == whole[: len(whole) // flat.count(c) * flat.count(c)]
    assert [len(t.test) for t in stream] == [15] * 17
    assert (stream.outputs, stream.per_class) == (850, True)
    assert stream.reduced == {"image_size": 8, "images": "substitute images"}
    two = split_awa.split_awa(1234, 2, data=tmp_path, image_size=8)
    assert [len(t.train) for t in two] == [len(t.train) for t in stream][:2]


@pytest.mark.parametrize(
    ("make", "write", "place"),
    [
        (split_cub.split_cub, write_cub, "CUB_200_2011"),
        (split_awa.split_awa, write_awa, "Animals_with_Attributes2"),
    ],
)
def test_only_the_images_that_are_read_are_decoded(tmp_path, monkeypatch, make, write, place):
    """A short stream decodes its own images, and a full one the rest; both have the same pixels."""
    decoded = []

    def count(path, size):
        decoded.append(path)
        return decode(path, size)

    def short():
        decoded.clear()
        return make(1234, 1, data=tmp_path, image_size=8, subset=7)[0]

    def pixels(task):
        return [part.inputs[torch.arange(len(part))] for part in (task.train, task.test)]

    write(tmp_path / place)
    monkeypatch.setattr("mdmt.data.images.decode", count)
    first = short()
    assert len(decoded) == len(set(decoded)) == 7 + len(first.test)
    full = make(1234, data=tmp_path, image_size=8)
    assert (
        len(decoded)
        == len(set(decoded))
        == len(
            {
                row
                for task in full
                for part in (task.train, task.test)
                for row in part.inputs.index.tolist()
            }
        )
    )
    again = short()
    assert decoded == []
    for one, other in zip(pixels(first), pixels(again), strict=True):
        assert torch.equal(one, other)
        assert one.flatten(1).any(1).all()  # no black image, which nobody decoded


def test_a_damaged_cache_is_told(tmp_path):
    write_cub(tmp_path / "CUB_200_2011")
    assert split_cub.split_cub(1234, 1, data=tmp_path, image_size=8).notes == ()
    (pixels,) = (tmp_path / "cache" / "images").glob("*.u8")
    pixels.write_bytes(bytes(pixels.stat().st_size))
    assert split_cub.split_cub(1234, 1, data=tmp_path, image_size=8).notes == (
        f"{pixels} was damaged: 30 images decoded again",
    )


def test_a_stream_is_learned_from_the_map(tmp_path, monkeypatch):
    write_awa(tmp_path / "Animals_with_Attributes2")
    stream = split_awa.split_awa(1234, 2, data=tmp_path, image_size=16)

    def refuse(*_):
        raise AssertionError("a step decoded an image")

    monkeypatch.setattr("PIL.Image.open", refuse)
    learner = mdmt.Learner(
        mdmt.backbones.reduced_resnet18(width=2), memory=mdmt.memory.AtTaskEnd(per_class=2), lr=0.01
    )
    record = learner.run(stream)
    assert [t["classes"] for t in record.tasks] == split_awa.class_order(1234)[:2]
    assert 0 <= record.accuracy[1][0] <= 1


def test_mistakes_are_named(tmp_path):
    for call, message in (
        (lambda: permuted_mnist(1, data=tmp_path), "mnist is not in"),
        (
            lambda: split_cifar.split_cifar(1, 18, data=tmp_path),
            "tasks=18: split-cifar takes 1 to 17",
        ),
        (lambda: split_cub.split_cub(1, 0, data=tmp_path), "tasks=0"),
        (lambda: permuted_mnist(1, data=write_mnist(tmp_path / "mnist"), subset=0), "subset=0"),
        (lambda: split_awa.split_awa(1, data=write_awa(tmp_path, 3)), "lists 3 classes"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_a_subset_is_stratified_and_seeded():
    labels = torch.arange(300) % 7
    kept = draw_rows(labels, 30, seed=1)
    assert kept.tolist() == draw_rows(labels, 30, seed=1).tolist() == sorted(set(kept.tolist()))
    assert sorted(torch.bincount(labels[kept]).tolist()) == [4] * 5 + [5] * 2
    assert kept.tolist() != draw_rows(labels, 30, seed=2).tolist()
    assert draw_rows(labels, 30, seed=1, number=1).tolist() != kept.tolist()
    assert set(draw_rows(labels, 20, seed=1).tolist()) < set(kept.tolist())
    assert len(draw_rows(labels, 999, seed=1)) == 300


# The published data itself.


@real
def test_real_sizes_mnist_and_cifar():
    mnist = permuted_mnist(1234, data=REAL)
    assert [(len(t.train), len(t.test)) for t in mnist] == [(55_000, 10_000)] * 17
    assert mnist.reduced is None
    cifar = split_cifar.split_cifar(1234, data=REAL)
    assert [(len(t.train), len(t.test)) for t in cifar] == [(2_500, 500)] * 17
    assert cifar.reduced is None
    assert cifar.mean.mean((1, 2)).tolist() == pytest.approx([0.5071, 0.4865, 0.4409], abs=1e-4)


@real
def test_real_sizes_cub_and_awa():
    cub = split_cub.split_cub(1234, data=REAL, image_size=16)
    assert all(298 <= len(t.train) <= 300 and 270 <= len(t.test) <= 300 for t in cub)
    assert cub.reduced == {"image_size": 16}
    awa = split_awa.split_awa(1234, data=REAL, image_size=16)
    assert len(awa) == 17
    assert set(awa.reduced) in ({"image_size"}, {"image_size", "images"})
