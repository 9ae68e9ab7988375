"""`answer="ncm"`: the nearest mean of the features of stored examples answers."""

import numpy as np
import pytest
import torch

import mdmt
from mdmt.checks import CHECKS, KINDS, Trial
from mdmt.living.answers import Answers
from mdmt.living.module import AnswerModule
from mdmt.methods import METHODS
from mdmt.network.class_means import nearest_mean_head
from support.helpers import mistake, outcome, small_stream

NAMES = ["er", "mdmt-r"]  # a linear and a cosine head


def learner_of(name, heads="per-task", **settings):
    return mdmt.Learner(
        mdmt.backbones.reduced_resnet18(1, 2, norm_start="fast"),
        METHODS[name](**{"reference_batch": 8, "answer": "ncm"} | settings),
        memory=mdmt.memory.Ring(4),
        heads=heads,
        seed=3,
    )


def nearest(learner, features, rows):
    """By loops: the row whose stored examples' mean is nearest to each feature vector."""
    stored = learner.memory.take(learner.memory.available)
    known = learner.features(stored.inputs)
    means = {}
    for row in rows:
        mine = [f for f, label in zip(known, stored.labels.tolist(), strict=True) if label == row]
        if learner.method.cosine:
            mine = [f / f.norm() for f in mine]
        means[row] = torch.stack(mine).mean(0)
    answers = []
    for f in features:
        if learner.method.cosine:
            far = {row: 1 - torch.cosine_similarity(f, m, 0).item() for row, m in means.items()}
        else:
            far = {row: (f - m).norm().item() for row, m in means.items()}
        answers.append(min(far, key=far.get))
    return answers


@pytest.mark.parametrize("more", [{}, {"average": 0.8}, {"mirror": True}], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_between_tasks_the_nearest_mean_answers_and_the_head_before(name, more, tmp_path):
    stream = small_stream("split-digits", tasks=3)
    plain = learner_of(name, **more, answer="head")
    learner = learner_of(name, **more)
    before, record = plain.run(stream), learner.run(stream)
    assert learner.model.sha256() == plain.model.sha256()  # it answers, and changes nothing
    assert record.curve == before.curve
    for place, task in enumerate(stream):
        x, rows = task.test.inputs, learner.tasks[place].rows.tolist()
        features = learner.features(x)
        assert torch.equal(features, plain.features(x))
        given, free = nearest(learner, features, rows), nearest(learner, features, range(6))
        right = torch.tensor(rows)[task.test.labels].tolist()
        shares = [np.mean(np.array(found) == right) for found in (given, free)]
        assert learner.predict(x, task.name) == [task.classes[rows.index(r)] for r in given]
        assert learner.evaluate(task) == pytest.approx(shares)
        assert record.accuracy[-1][place] == pytest.approx(shares[0])
        assert record.accuracy_task_free[-1][place] == pytest.approx(shares[1])
    assert record.accuracy_task_free != before.accuracy_task_free
    learner.save(tmp_path / "saved")
    again = mdmt.Learner.load(tmp_path / "saved")
    x = stream[0].test.inputs
    assert again.predict_proba(x).tolist() == learner.predict_proba(x).tolist()
    if not more:
        answers = Answers(learner.model, scale=learner.predictor.scale)
        np.testing.assert_allclose(
            AnswerModule(answers)(x).numpy(), learner.predict_proba(x), atol=1e-5
        )


def test_more_data_of_a_task_move_the_means():
    stream = small_stream("split-digits", tasks=2)
    learner = learner_of("er")
    learner.run(stream)
    old = learner.method.mean_weights.clone()
    seen = []
    learner.learn(
        stream[0], more=True, on_step=lambda x: seen.append(x.model.answer_weights() is None)
    )
    assert seen
    assert all(seen)
    assert not torch.equal(learner.method.mean_weights, old)
    x = stream[1].test.inputs
    rows = learner.tasks[1].rows.tolist()
    found = learner.predict(x, stream[1].name)
    expected = nearest(learner, learner.features(x), rows)
    assert found == [stream[1].classes[rows.index(r)] for r in expected]


def test_stopped_before_the_evaluation_it_ends_with_the_same_bits(tmp_path):
    stream = small_stream("split-digits", tasks=2)
    straight, learner = learner_of("mdmt-r"), learner_of("mdmt-r")
    straight.run(stream)
    accuracies = learner.recorder.accuracies

    def stop(*given):
        if learner.is_closed and len(learner.tasks) == 2:
            raise MemoryError
        return accuracies(*given)

    learner.recorder.accuracies = stop
    with pytest.raises(MemoryError):
        learner.run(stream)
    learner.save(tmp_path / "closed")
    resumed = mdmt.Learner.load(tmp_path / "closed")
    resumed.run(stream)
    assert outcome(resumed) == outcome(straight)


@pytest.mark.parametrize("cosine", [False, True])
def test_a_class_without_examples_never_answers(cosine):
    features = torch.rand(12, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(12) % 3 * 2  # rows 0, 2 and 4 of 6
    head = nearest_mean_head(features, labels, 6, cosine=cosine)
    x = torch.rand(200, 5, generator=torch.Generator().manual_seed(1)).double()
    weight, bias = head[:, :-1], head[:, -1]
    scores = torch.cosine_similarity(x[:, None], weight[None], 2) if cosine else x @ weight.T + bias
    assert head.isfinite().all()
    assert set(scores.argmax(1).tolist()) == {0, 2, 4}


def test_a_forgotten_class_never_answers_and_the_others_as_before():
    stream = small_stream("split-digits", tasks=2)
    learner = learner_of("er", heads="shared")
    learner.run(stream)
    gone = stream[0].classes[0]
    x = torch.cat([task.test.inputs for task in stream])
    before = learner.predict_proba(x)
    kept = [i for i, (_, label) in enumerate(learner.classes()) if label != gone]
    learner.forget([gone])
    after = learner.predict_proba(x)
    expected = before[:, kept] / before[:, kept].sum(1, keepdims=True)
    np.testing.assert_allclose(after, expected, atol=1e-5)


def test_a_method_without_memory_and_an_empty_memory():
    assert (
        mistake(METHODS["ewc"], answer="ncm") == "EWC: answer='ncm': this method stores no examples"
    )
    assert not {"answer", "mean_weights"} & {
        *METHODS["er"]().arguments,
        *METHODS["er"]().used_buffers(),
    }
    stream = small_stream("split-digits", tasks=2)
    empty = mdmt.Learner(
        mdmt.backbones.mlp(784, 8), METHODS["er"](answer="ncm"), memory=mdmt.memory.Reservoir(0)
    )
    empty.run(stream)
    assert empty.model.answer_weights() is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_the_battery(name, check, kind):
    check(Trial(lambda: METHODS[name](answer="ncm", reference_batch=12), kind))
