"""Settings that every method has: what it answers with, and how long its steps are."""

import pytest
import torch

import mdmt
from mdmt.checks import CHECKS, KINDS, Trial
from mdmt.methods import ER, MDMTR, METHODS
from support.configs import config_for
from support.helpers import mistake, small_stream


def learner_of(method, **more):
    return mdmt.Learner(
        mdmt.backbones.mlp(784, 16), method, memory=mdmt.memory.Ring(3), seed=3, **more
    )


@pytest.mark.parametrize("name", ["van", "ewc", "er", "mdmt-r"])
def test_the_model_answers_with_the_running_mean_of_its_weights(name):
    learner, weights = learner_of(METHODS[name](average=0.6)), []
    step = learner.method.step

    def follow(batch):
        weights.append(learner.model.flat.detach().clone())
        step(batch)

    learner.method.step = follow
    stream = small_stream("permuted-digits", tasks=2)
    record = learner.run(stream)
    weights.append(learner.model.flat.detach().clone())
    steps = (len(weights) - 1) // 2  # of each task
    mean = weights[0]
    for number, now in enumerate(weights[1:]):
        share = max(0.4, 1 / (number % steps + 1))  # at first the mean of the task's own steps
        mean = (1 - share) * mean + share * now
    assert torch.allclose(learner.method.average_weights, mean, atol=1e-6)
    # The same answers as a network that has those weights, and other ones than the weights that
    # learn give.
    x = stream[0].view(stream[0].test.inputs)
    answered = learner.features(x)
    live = learner.model.flat.detach().clone()
    learner.model.answer_weights = lambda: None
    learning = learner.features(x)
    with torch.no_grad():
        learner.model.flat.copy_(mean)
    assert torch.allclose(answered, learner.features(x), atol=1e-5)
    assert not torch.allclose(answered, learning, atol=1e-3)
    assert learner.evaluate(stream[0])[0] == pytest.approx(record.accuracy[-1][0])
    with torch.no_grad():
        learner.model.flat.copy_(live)


def test_stored_representations_are_those_of_the_averaged_weights():
    learner = learner_of(MDMTR(average=0.6, reference_batch=8))
    stored = learner.with_features
    differences = []

    def follow(batch):
        result = stored(batch)
        model = learner.model
        with torch.no_grad(), model.frozen():
            learning = model.features(batch.inputs)
            with model.at(learner.method.average_weights):
                averaged = model.features(batch.inputs)
        assert torch.allclose(result.features, averaged, atol=1e-5)
        differences.append(float((averaged - learning).abs().max()))
        return result

    learner.with_features = follow
    learner.run(small_stream("permuted-digits", tasks=2))
    assert max(differences) > 1e-2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_battery(check, kind):
    settings = {"average": 0.8, "last_step": 0.2, "warm_up": 3, "statistics": "memory"}
    check(Trial(lambda: MDMTR(reference_batch=12, **settings), kind))


def test_batch_norm_answers_with_the_mean_of_its_statistics():
    learner = mdmt.Learner(
        mdmt.backbones.reduced_resnet18(1, width=4), ER(average=0.6, reference_batch=8), seed=3
    )
    seen = []
    step = learner.method.step

    def follow(batch):
        step(batch)
        seen.append(learner.model.statistics_vector())

    learner.method.step = follow
    stream = small_stream("split-digits", tasks=2)
    learner.run(stream)
    steps = len(seen) // 2
    mean = seen[0]
    for number, now in enumerate(seen):
        share = max(0.4, 1 / (number % steps + 1))
        mean = (1 - share) * mean + share * now
    assert torch.allclose(learner.method.average_statistics, mean, rtol=1e-4, atol=1e-6)
    live = learner.model.statistics_vector()
    assert not torch.allclose(mean, live, rtol=1e-2)
    with learner.model.evaluating():
        assert torch.equal(learner.model.statistics_vector(), learner.method.average_statistics)
    assert torch.equal(learner.model.statistics_vector(), live)


def test_joint_has_an_average_of_all_rows():
    learner = learner_of(METHODS["joint"](average=0.9))
    learner.run(small_stream("split-digits", tasks=2))
    head = learner.method.average_weights[-learner.model.head.numel() :]
    assert head.view_as(learner.model.head)[:, :-1].abs().amax(1).min() > 0


@pytest.mark.parametrize(
    ("method", "more"),
    [
        (MDMTR, {}),
        (ER, {}),
        (ER, {"optimiser": "SGD", "optimiser_arguments": {"dampening": 0.0}}),
    ],
    ids=["mdmt-r", "er", "an optimiser of torch"],
)
def test_steps_lengthen_and_shorten_evenly_within_a_task(method, more):
    expected = [0.1 * share for share in (1.0, 0.875, 0.75, 0.625)] * 2
    assert lengths_of_steps(method(last_step=0.5), **more) == pytest.approx(expected, rel=1e-3)
    expected = [0.1 * share for share in (1 / 3, 2 / 3, 1.0, 1.0)] * 2
    assert lengths_of_steps(method(warm_up=3), **more) == pytest.approx(expected, rel=1e-3)
    expected = [0.1 * share for share in (1 / 3, 2 / 3 * 0.875, 0.75, 0.625)] * 2
    both = lengths_of_steps(method(last_step=0.5, warm_up=3), **more)
    assert both == pytest.approx(expected, rel=1e-3)


def lengths_of_steps(method, **more):
    """The length of each step for a gradient of length 1."""
    learner = learner_of(method, **more)
    lengths = []
    apply = learner.apply

    def follow(gradient):
        before = learner.model.flat.detach().clone()
        apply(gradient)
        lengths.append(float((before - learner.model.flat.detach()).norm() / gradient.norm()))

    learner.apply = follow
    learner.run(small_stream("permuted-digits", tasks=2))
    return lengths


def test_unset_they_are_no_part_of_a_configuration():
    assert set(MDMTR().arguments) == set(config_for("permuted-mnist", "mdmt-r").arguments)
    assert not {"average", "last_step", "average_weights"} & {
        *MDMTR().arguments,
        *MDMTR().used_buffers(),
    }
    assert MDMTR(average=0.9).arguments["average"] == 0.9
    assert (
        config_for("permuted-mnist", "mdmt-r[average=0]").hash
        == config_for("permuted-mnist", "mdmt-r").hash
    )
    assert (
        config_for("permuted-mnist", "mdmt-r[average=0.5]").hash
        != config_for("permuted-mnist", "mdmt-r").hash
    )
    assert mistake(MDMTR, average=1.0) == "MDMTR: average=1.0: must be less than 1.0"


@pytest.mark.parametrize("augment", ["none", "crop-flip"])
def test_repeats_learn_a_mini_batch_again_with_other_old_examples_and_crops(augment):
    stream = small_stream("split-digits", tasks=2)
    learner = mdmt.Learner(
        mdmt.backbones.reduced_resnet18(1, 2),
        ER(reference_batch=4, repeats=3),
        memory=mdmt.memory.Reservoir(20),
        augment=augment,
    )
    passed, observed = [], []
    grad, observe = learner.method.grad, learner.memory.observe
    learner.method.grad = lambda batch: passed.append(batch) or grad(batch)
    learner.memory.observe = lambda *given: observed.append(given[0]) or observe(*given)
    record = learner.run(stream)
    assert len(passed) == 3 * record.steps
    assert len(observed) == record.steps
    last = [batch.inputs for batch in passed[-3:]]  # the old examples and the new ones
    new = len(observed[-1])
    same = [torch.equal(one[-new:], last[0][-new:]) for one in last[1:]]
    assert same == [augment == "none"] * 2
    assert not any(torch.equal(one[:-new], last[0][:-new]) for one in last[1:])
    assert (
        config_for("split-digits", "er", settings={"repeats": "3"}).steps_an_example
        == ", 3 steps an example"
    )
    assert config_for("split-digits", "er").steps_an_example == ""


def first_statistics(learner, weights):
    """The mean that the first batch norm sees of all stored examples, with these weights."""
    norm = next(m for m in learner.backbone.modules() if hasattr(m, "running_mean"))
    seen = []
    hook = norm.register_forward_pre_hook(lambda _, values: seen.append(values[0]))
    model = learner.model
    with model.at(weights), torch.no_grad():
        model.features(learner.memory.take(learner.memory.available).inputs)
    hook.remove()
    return norm, seen[0].mean((0, 2, 3))


def test_batch_norm_answers_with_statistics_of_the_stored_examples_of_all_classes():
    stream = small_stream("split-digits", tasks=3)
    networks = [mdmt.backbones.reduced_resnet18(1, width=4) for _ in range(3)]
    plain = mdmt.Learner(networks[0], ER(reference_batch=8), seed=3)
    plain.run(stream)
    ring = mdmt.memory.Ring(4)  # 24 examples at the end: one batch
    even = mdmt.Learner(
        networks[1], ER(reference_batch=8, average=0.6, statistics="memory"), memory=ring, seed=3
    )
    record = even.run(stream)
    norm, learning = first_statistics(even, even.model.flat.detach().clone())
    assert torch.allclose(norm.running_mean, learning, rtol=1e-4, atol=1e-6)
    norm, averaged = first_statistics(even, even.method.average_weights)
    assert not torch.allclose(averaged, learning, rtol=1e-2)
    with even.model.evaluating():
        assert torch.allclose(norm.running_mean, averaged, rtol=1e-4, atol=1e-6)
        assert even.recorder.accuracies(stream[0], even.model)[0] == record.accuracy[-1][0]
    assert torch.allclose(norm.running_mean, learning, rtol=1e-4, atol=1e-6)
    norm, later = first_statistics(plain, plain.model.flat.detach().clone())
    assert not torch.allclose(norm.running_mean, later, rtol=1e-2)
    # Nothing stored: the running ones stay.
    empty = mdmt.Learner(
        networks[2], ER(statistics="memory"), memory=mdmt.memory.Reservoir(0), seed=3
    )
    empty.run(stream)


def test_a_method_without_memory_has_no_statistics_of_it():
    assert (
        mistake(METHODS["van"], statistics="memory")
        == "VAN: statistics='memory': this method stores no examples"
    )
    assert "statistics" not in ER().arguments


@pytest.mark.parametrize("name", ["er", "mdmt-r"])
def test_an_image_is_answered_by_the_mean_of_its_features_and_its_mirror_images(name, tmp_path):
    stream = small_stream("split-digits", tasks=2)

    def learned(**settings):
        learner = mdmt.Learner(
            mdmt.backbones.reduced_resnet18(1, width=4),
            METHODS[name](reference_batch=8, **settings),
            memory=mdmt.memory.Ring(3),
            seed=3,
        )
        return learner, learner.run(stream)

    (plain, _), (learner, record) = learned(), learned(mirror=True)
    # It changes answers alone: nothing that is learned, and no stored representation.
    assert learner.model.sha256() == plain.model.sha256()
    x = stream[0].test.inputs
    expected = (plain.features(x) + plain.features(x.flip(3))) / 2
    assert torch.allclose(learner.features(x), expected, atol=1e-6)
    assert not torch.allclose(expected, plain.features(x), rtol=1e-2)
    with torch.no_grad():
        best = plain.model.scores(expected)[:, plain.tasks[0].rows].argmax(1)
    right = best == stream[0].test.labels
    assert record.accuracy[-1][0] == pytest.approx(right.double().mean().item())
    assert learner.predict(x, task=stream[0].name) == [stream[0].classes[i] for i in best]
    learner.save(tmp_path / "saved")
    again = mdmt.Learner.load(tmp_path / "saved")
    assert again.predict_proba(x).tolist() == learner.predict_proba(x).tolist()


def test_what_is_no_image_has_no_mirror_image():
    learner = learner_of(ER(mirror=True))
    stream = small_stream("permuted-digits", tasks=1)
    message = mistake(learner.run, stream)
    assert message == (
        "mirror=True needs images of shape (N, channels, height, width), but inputs are"
        " 2-dimensional"
    )
    assert learner.network is None
    message = mistake(config_for, "permuted-digits", "er[mirror=true]")
    assert message == "mirror=true: permuted-digits has no images to mirror"
    assert config_for("split-digits", "er[mirror=true]").arguments["mirror"] is True
