"""MDMT-R with the averaged network as its teacher."""

import pytest
import torch
from torch.nn import functional

import mdmt
from mdmt.checks import CHECKS, KINDS, Trial
from mdmt.methods import MDMTR
from mdmt.tasks import Batch
from support.helpers import mistake, small_stream

NETWORKS = {
    "mlp": lambda: mdmt.backbones.mlp(784, 16),
    "resnet": lambda: mdmt.backbones.reduced_resnet18(1, 2, norm_start="fast"),
}


def learner_of(network, **settings):
    method = MDMTR(**{"teacher": "average", "average": 0.8, "reference_batch": 8} | settings)
    return mdmt.Learner(NETWORKS[network](), method, augment="crop-flip", seed=3)


@pytest.mark.parametrize("distance", ["cosine", "mse", "l1"])
@pytest.mark.parametrize("network", NETWORKS)
def test_it_distils_from_the_averaged_network_in_evaluation_mode(network, distance):
    stream = small_stream("split-digits", tasks=2)
    learner = learner_of(network, distance=distance)
    method, steps = learner.method, []
    gradient, sample = method.gradient, learner.memory.sample
    drawn = []

    def follow(batch):
        """The update written out, before the step is made; batch norm keeps its statistics."""
        model = learner.model
        before = model.statistics_vector()
        update = gradient(batch)
        after = model.statistics_vector()
        if drawn[-1] is not None:
            model.set_values(model.flat.detach().clone(), before)
            old = drawn[-1]
            averaged = model.at(method.average_weights, method.average_statistics)
            with averaged, torch.no_grad(), model.frozen():
                wanted = model.features(old.inputs)
            features = model.features(old.inputs)
            plain = Batch(old.inputs, old.labels, old.tasks)
            loss = method.loss(features, plain).mean()
            gap = features - wanted
            if distance == "cosine":
                loss = loss + (1 - functional.cosine_similarity(features, wanted)).mean()
            else:
                loss = loss + (gap.abs() if distance == "l1" else gap.square()).mean()
            loss = loss + method.loss(model.features(batch.inputs), batch).mean()
            torch.testing.assert_close(update, model.gradient(loss), rtol=1e-3, atol=1e-4)
            model.set_values(model.flat.detach().clone(), after)
            steps.append(float(gap.detach().abs().max()))
        return update

    method.gradient = follow
    learner.memory.sample = lambda count: drawn.append(sample(count)) or drawn[-1]
    learner.run(stream)
    assert len(steps) == 4  # of the second task
    assert max(steps) > 1e-2
    assert learner.memory.features is None
    # Only the augmented images differ from the stored ones.
    stored = {row.numpy().tobytes() for row in learner.memory.inputs.flatten(1)}
    assert not all(row.numpy().tobytes() in stored for row in drawn[-1].inputs.flatten(1))


def test_it_teaches_in_a_review_too():
    learner = learner_of("mlp", review=1, distance="cosine")
    learner.run(small_stream("split-digits", tasks=1))
    method, model = learner.method, learner.model
    batch = learner.memory.take(learner.memory.available[:9])
    wanted = model.embed(batch.inputs)
    features = model.features(batch.inputs)
    far = (1 - functional.cosine_similarity(features, wanted)).mean()
    expected = model.gradient(method.loss(features, batch).mean() + far)
    torch.testing.assert_close(method.review_gradient(batch), expected)
    assert far.item() > 1e-6


def test_it_needs_an_average_and_a_distance():
    expected = (
        "MDMTR: teacher='average' needs an average of the weights and a distance to its features:"
        " set average, such as 0.99, and distance=l1, mse or cosine"
    )
    assert mistake(MDMTR, teacher="average") == expected
    assert mistake(MDMTR, teacher="average", average=0.9, distance="none") == expected
    assert "teacher" not in MDMTR().arguments


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_battery(check, kind):
    settings = {"teacher": "average", "average": 0.8, "distance": "cosine"}
    check(Trial(lambda: MDMTR(reference_batch=12, **settings), kind))
