"""The review: all stored examples are learned again at a task's end."""

from collections import Counter

import pytest
import torch

import mdmt
from mdmt.checks import CHECKS, KINDS, Trial
from mdmt.learning.checkpoints import Checkpoints
from mdmt.methods import METHODS
from support.configs import config_for
from support.helpers import outcome, small_stream

NAMES = ["er", "er-ace", "der++", "mega", "a-gem", "mdmt-r"]


def learner_of(name, kept=None, augment="none", **settings):
    return mdmt.Learner(
        mdmt.backbones.reduced_resnet18(1, 2, norm_start="fast"),
        METHODS[name](reference_batch=4, **settings),
        memory=mdmt.memory.Ring(7) if kept is None else kept,
        augment=augment,
        batch=8,
        seed=3,
    )


def watched(learner):
    """The batches that reviews learn, with the length of each step, by task."""
    reviews, close, apply = [], learner._close, learner.apply
    review = learner.method.review_gradient

    def follow_close(task):
        reviews.append([])
        close(task)

    def follow_review(batch):
        reviews[-1].append([batch, None])
        return review(batch)

    def follow_apply(gradient):
        before = learner.model.flat.detach().clone()
        apply(gradient)
        if reviews and reviews[-1] and reviews[-1][-1][1] is None:
            moved = (before - learner.model.flat.detach()).norm()
            reviews[-1][-1][1] = float(moved / gradient.norm())

    learner._close, learner.apply = follow_close, follow_apply
    learner.method.review_gradient = follow_review
    return reviews


@pytest.mark.parametrize("name", NAMES)
def test_every_stored_example_is_learned_as_often_as_asked(name):
    learner = learner_of(name, review=2, last_step=0.5)
    reviews = watched(learner)
    record = learner.run(small_stream("split-digits", tasks=2))
    assert record.steps == 10  # of the tasks alone
    for stored, review in zip((14, 28), reviews, strict=True):
        times = Counter(
            row.numpy().tobytes() for batch, _ in review for row in batch.inputs.flatten(1)
        )
        assert set(times.values()) == {2}
        assert len(times) == stored
        lengths = [length for _, length in review]
        assert len(lengths) == 2 * -(-stored // 8)
        expected = [0.1 * (1 - 0.5 * k / len(lengths)) for k in range(len(lengths))]
        assert lengths == pytest.approx(expected, rel=1e-3)
    first, second = ([len(batch) for batch, _ in reviews[1]][half] for half in (0, 4))
    assert first == second == 8
    order = torch.cat([batch.labels for batch, _ in reviews[1]])
    assert not torch.equal(order[:28], order[28:])


def test_each_method_reviews_with_its_loss_of_old_examples():
    """DER++ has two of them; the others one, with the distillation of MDMT-R."""
    for name in NAMES:
        learner = learner_of(name)
        learner.run(small_stream("split-digits", tasks=2))
        method, model = learner.method, learner.model
        batch = learner.memory.take(learner.memory.available[:9])
        with model.training():
            features = model.features(batch.inputs)
            loss = method.loss(features, batch).mean()
            if name == "der++":
                batch_of_labels = mdmt.tasks.Batch(batch.inputs, batch.labels, batch.tasks)
                loss = (
                    method.alpha * loss
                    + method.beta * method.loss(features, batch_of_labels).mean()
                )
            expected = model.gradient(loss)
            torch.testing.assert_close(method.review_gradient(batch), expected)


def test_reviewed_examples_are_augmented_as_drawn_ones_are():
    learner = learner_of("er", augment="crop-flip", review=1)
    reviews = watched(learner)
    learner.run(small_stream("split-digits", tasks=1))
    stored = {row.numpy().tobytes() for row in learner.memory.inputs.flatten(1)}
    seen = [row.numpy().tobytes() for batch, _ in reviews[0] for row in batch.inputs.flatten(1)]
    assert len(stored & set(seen)) < len(stored) / 2


@pytest.mark.parametrize("where", ["in the review", "before the evaluation", "after it"])
def test_killed_anywhere_it_ends_with_the_same_bits(where, tmp_path):
    def make():
        return learner_of("mdmt-r", review=2, average=0.5)

    stream = small_stream("split-digits", tasks=2)
    straight = make()
    straight.run(stream)
    plain = learner_of("mdmt-r", average=0.5)
    plain.run(stream)
    assert plain.model.sha256() != straight.model.sha256()

    learner = make()
    folder = Checkpoints(tmp_path / "state", every=1)
    calls = [0]

    def killed(*_):
        calls[0] += 1
        if calls[0] == 3:
            raise MemoryError

    if where == "in the review":
        review = learner.method.review_gradient
        learner.method.review_gradient = lambda batch: killed() or review(batch)
    else:
        accuracies = learner.recorder.accuracies
        learner.recorder.accuracies = lambda *given: (
            (killed() if learner.is_closed else None) or accuracies(*given)
        )
    with pytest.raises(MemoryError):
        learner.run(stream, checkpoint=folder)
    saved = tmp_path / "state"
    if where == "after it":  # closed, and saved as an interrupted run does
        assert learner.is_closed
        learner.save(tmp_path / "closed")
        saved = tmp_path / "closed"
    resumed = mdmt.Learner.load(saved)
    resumed.run(stream)
    assert outcome(resumed) == outcome(straight)


def test_the_average_follows_the_steps_of_a_review():
    learner = learner_of("er", review=1, average=0.9)
    weights, apply = [], learner.apply

    def follow(gradient):
        apply(gradient)
        weights.append(learner.model.flat.detach().clone())

    learner.apply = follow
    record = learner.run(small_stream("split-digits", tasks=1))
    assert len(weights) == record.steps + 2  # 14 stored examples, 8 at a time
    mean = weights[0]
    for number, now in enumerate(weights):
        share = max(0.1, 1 / (number + 1))
        mean = (1 - share) * mean + share * now
    torch.testing.assert_close(learner.method.average_weights, mean)


def test_nothing_stored_is_nothing_to_review():
    learners = [learner_of("er", mdmt.memory.Reservoir(0), review=times) for times in (0, 3)]
    for learner in learners:
        learner.run(small_stream("split-digits", tasks=2))
    assert learners[0].model.sha256() == learners[1].model.sha256()


def test_the_header_says_so():
    config = config_for("split-digits", "er", settings={"review": "2", "repeats": "3"})
    assert config.steps_an_example == ", 3 steps an example, 2 reviews of the memory a task"
    assert config_for("split-digits", "er", settings={"review": "0"}).steps_an_example == ""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    ("name", "more"),
    [("der++", {}), ("mdmt-r", {"scale": 4.0, "distance": "cosine"})],
    ids=["der++", "mdmt-r"],
)
def test_the_battery(name, more, check, kind):
    """Growth is compared to 1e-6: a scale of 24 and the ties of L1 make more of rounding errors."""
    check(Trial(lambda: METHODS[name](review=1, reference_batch=12, **more), kind))
