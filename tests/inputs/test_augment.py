"""Random crops and flips: new draws each time, and the same ones after an interruption."""

import numpy as np
import pytest
import torch

import mdmt
from mdmt.inputs.augment import augment
from support.helpers import mistake, outcome


def plain(image, shift_y, shift_x, flip):
    """The same augmentation by a loop over pixels."""
    size = image.shape[1]

    def mirrored(place):
        place = abs(place)
        return 2 * (size - 1) - place if place >= size else place

    moved = torch.empty_like(image)
    for y in range(size):
        for x in range(size):
            column = size - 1 - x if flip else x
            moved[:, y, x] = image[:, mirrored(y + shift_y), mirrored(column + shift_x)]
    return moved


def test_each_image_is_shifted_and_flipped_by_its_own_draw():
    images = torch.randint(
        256, (6, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    )
    changed = augment("crop-flip", images, np.random.default_rng(3))
    draws = np.random.default_rng(3)
    rows, columns = draws.integers(-2, 3, 6), draws.integers(-2, 3, 6)
    flips = draws.random(6) < 0.5
    assert 0 < flips.sum() < 6
    assert changed.dtype == torch.uint8
    for number in range(6):
        expected = plain(images[number], rows[number], columns[number], flips[number])
        assert torch.equal(changed[number], expected)


class Eye(mdmt.VAN):
    """Records the inputs that pass."""

    name = "eye"
    uses_memory = True

    def gradient(self, batch):
        reference = self.memory.sample(4)
        self.learner.seen.append(
            (batch.inputs.clone(), None if reference is None else reference.inputs.clone())
        )
        return super().gradient(batch)


def images(name, seed):
    drawn = torch.randint(
        256, (12, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed)
    )
    return mdmt.Task(name, drawn, torch.arange(12) % 2, test=(drawn, torch.arange(12) % 2))


def learner_of(augment="crop-flip", method=None):
    learner = mdmt.Learner(
        mdmt.backbones.mlp(192, 8),
        method or Eye(),
        memory=mdmt.memory.Ring(2),
        batch=4,
        epochs=2,
        augment=augment,
    )
    learner.seen = []
    return learner


def test_new_and_old_examples_are_drawn_anew_and_the_memory_keeps_them_whole():
    first, second = images("first", 1), images("second", 2)
    learner = learner_of()
    learner.learn(first)
    learner.learn(second)
    originals = {bytes(image.numpy()) for image in (*first.train.inputs, *second.train.inputs)}
    new = [bytes(image.contiguous().numpy()) for batch, _ in learner.seen for image in batch]
    assert len(set(new)) > 40  # of 48: two epochs of two tasks
    old = [
        bytes(image.contiguous().numpy())
        for _, batch in learner.seen
        if batch is not None
        for image in batch
    ]
    assert not set(old) <= originals
    kept = learner.memory.take(learner.memory.available)
    assert {bytes(image.numpy()) for image in kept.inputs} <= originals


@pytest.mark.parametrize("stop", [3, 8])
def test_resumed_anywhere_it_draws_the_same(stop, tmp_path):
    def learn(learner, enough=None):
        def after_step(learner):
            if learner.record.steps == enough:
                learner.save(tmp_path)
                raise KeyboardInterrupt

        for task in (images("first", 1), images("second", 2)):
            if task.name not in learner.heads.names[: len(learner.record.accuracy)]:
                learner.learn(
                    task, on_step=after_step, earlier=[images("first", 1)][: learner.current]
                )
        return learner

    method = mdmt.MDMTR(reference_batch=3)
    whole = learn(learner_of(method=method))
    with pytest.raises(KeyboardInterrupt):
        learn(learner_of(method=mdmt.MDMTR(reference_batch=3)), stop)
    assert outcome(learn(mdmt.Learner.load(tmp_path)))[-2:] == outcome(whole)[-2:]


def test_only_images_have_borders():
    learner = mdmt.Learner(mdmt.backbones.mlp(4), mdmt.VAN(), augment="crop-flip")
    task = mdmt.Task("rows", np.zeros((4, 4), np.float32), [0, 1, 0, 1])
    assert "needs images of shape" in mistake(learner.learn, task)
    assert "augment='blur': must be one of none, crop-flip" in mistake(learner_of, "blur")
