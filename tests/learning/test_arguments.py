"""The arguments of a learner, and of its calls."""

import numpy as np
import pytest
import torch

import mdmt
from support.helpers import mistake, outcome, small_stream

NET = mdmt.backbones.mlp(784, 16)


def learner(**more):
    return mdmt.Learner(mdmt.backbones.mlp(784, 16), **{"lr": 0.1, "seed": 1, **more})


def test_a_method_by_its_name_or_class():
    assert learner(method="er").method.arguments == mdmt.ER().arguments
    assert type(learner(method=mdmt.ER).method) is mdmt.ER
    assert type(learner().method) is mdmt.MDMTR
    assert type(learner(memory=mdmt.memory.Reservoir).memory) is mdmt.memory.Reservoir


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "err"}, "method='err': must be one of joint, van"),
        ({"method": mdmt.Task}, "must be a method such as mdmt.ER()"),
        ({"memory": 100}, "memory=100 is ambiguous: mdmt.memory.Reservoir(100)"),
        ({"memory": "ring"}, "memory='ring': must be a memory"),
        ({"device": "cuda:77"}, "device='cuda:77' is not available"),
        ({"device": "gpu"}, "device='gpu' is not available"),
        ({"precision": "fp16"}, "precision='fp16': must be fp32 or bf16"),
        ({"backbone": "resnet18"}, "backbone='resnet18': must be a torch.nn.Module"),
        ({"backbone": torch.nn.Identity}, "backbone=Identity: must be a torch.nn.Module"),
        ({"heads": "one"}, "heads='one'"),
        ({"seed": "a"}, "seed='a': must be a whole number"),
    ],
)
def test_what_cannot_be_is_one_line_at_construction(arguments, message):
    assert message in mistake(mdmt.Learner, **{"backbone": NET, **arguments})


def test_tuples_for_tasks_and_lists_for_streams():
    stream = small_stream(tasks=2)
    whole = learner()
    whole.run(stream)
    parts = learner(scale=stream.scale, outputs=stream.outputs)
    parts.run(list(stream))
    assert outcome(parts) == outcome(whole)
    x = np.zeros((4, 784), np.uint8)
    other = learner()
    other.learn(("a", x, [0, 1, 0, 1]))
    other.learn(("b", x, [0, 1, 0, 1], (x, [0, 1, 0, 1])))
    assert [task.name for task in other.tasks] == ["a", "b"]
    assert other.record.tasks[1]["test"] == 4
    for wrong in ((x, [0, 1, 0, 1]), "a", None):
        assert "pass mdmt.Task(name, x, y)" in mistake(other.learn, wrong)
    assert "pass mdmt.Stream(name, tasks)" in mistake(other.run, "digits")
    assert "pass mdmt.Stream(name, tasks)" in mistake(other.run, stream[0])


@pytest.mark.parametrize("method", ["van", "mdmt-r"])
def test_probabilities_and_predictions(method):
    stream = small_stream(tasks=2)
    known = learner(method=method)
    known.run(stream)
    x = stream[1].test.inputs
    name = stream[1].name
    given = known.predict_proba(x, task=name)
    assert given.shape == (20, 2)
    assert known.classes(name) == [(name, c) for c in stream[1].classes]
    assert np.allclose(given.sum(1), 1, atol=1e-6)
    best = [known.classes(name)[i][1] for i in given.argmax(1)]
    assert best == known.predict(x, task=name)
    free = known.predict_proba(x)
    assert free.shape == (20, 4)
    assert known.classes() == [(task.name, c) for task in stream for c in task.classes]
    answers = known.predict_with_task(x)
    assert [answer.label for answer in answers] == known.predict(x)
    assert {answer.task for answer in answers} <= {task.name for task in stream}
    assert [answer.probability for answer in answers] == free.max(1).tolist()
    assert np.mean([answer.task == name for answer in answers]) > 0.5
    if method == "mdmt-r":
        assert given.max(1).mean() > 0.6  # a softmax over bare cosines would be flat


def test_a_class_that_tasks_share_belongs_to_none_of_them():
    stream = small_stream("permuted-digits", tasks=2, heads="shared")
    known = learner(method="van")
    known.run(stream)
    assert known.classes() == [(None, c) for c in stream[0].classes]
    assert {answer.task for answer in known.predict_with_task(stream[0].test.inputs)} == {None}
    assert {
        a.task for a in known.predict_with_task(stream[0].test.inputs, task=stream[0].name)
    } == {stream[0].name}


def test_a_repr_that_tells():
    stream = small_stream(tasks=2)
    known = mdmt.Learner(torch.nn.Flatten(), method="er", memory=mdmt.memory.Ring(3))
    assert (
        repr(known)
        == "Learner(Flatten, ER(reference_batch=None, reading='code'), Ring(per_class=3), lr=0.1,"
        " batch=10, epochs=1): nothing learned yet"
    )
    known = learner(method="van")
    known.run(stream)
    text = repr(known)
    assert text.startswith(
        "Learner(mlp, VAN(), Ring(per_class=25), lr=0.1, batch=10, epochs=1): learned "
    )
    assert f"{stream[0].name!r} (2 classes), {stream[1].name!r} (2 classes)" in text
    assert text.endswith("8 steps")


def test_progress_is_shown(capsys):
    stream = small_stream(tasks=1)
    plain, shown, steps = learner(), learner(), []
    plain.learn(stream[0])
    shown.learn(stream[0], progress=True, on_step=lambda x: steps.append(x.step_in_task))
    assert outcome(shown) == outcome(plain)
    assert steps == [1, 2, 3, 4]
    name = stream[0].name
    assert capsys.readouterr().err == f"{name}: 4 steps\n{name}: learned\n"


def test_a_device_chosen_by_itself_learns_and_is_loaded(tmp_path):
    x, y = torch.rand(20, 4, generator=torch.Generator().manual_seed(1)), [0, 1] * 10
    learner = mdmt.Learner(mdmt.backbones.mlp(4, 3), mdmt.ER(reference_batch=4), device="auto")
    learner.learn(mdmt.Task("a", x, y))
    learner.save(tmp_path / "model")
    loaded = mdmt.Learner.load(tmp_path / "model", device="auto")
    assert loaded.predict(x) == learner.predict(x)


@pytest.mark.parametrize(
    ("method", "size", "drawn"),
    [
        ("er", 200, 50),  # a quarter of the memory
        (mdmt.ER, 2000, 256),
        (mdmt.AGEM(), 24, 10),
        (mdmt.ER(reference_batch=256), 200, 200),
    ],
)
def test_a_step_rehearses_a_quarter_of_the_memory_unless_told_otherwise(
    method, size, drawn, tmp_path
):
    memory = mdmt.memory.Reservoir(size)
    learner = mdmt.Learner(mdmt.backbones.mlp(4, 3), method, memory=memory, batch=500)
    x = torch.rand(2000, 4, generator=torch.Generator().manual_seed(1))
    learner.learn(("a", x, [0, 1] * 1000))
    learner.save(tmp_path)
    loaded = mdmt.Learner.load(tmp_path)
    for one in (learner, loaded):
        assert len(one.memory) == size
        assert len(one.memory.sample(one.method.reference_batch)) == drawn
