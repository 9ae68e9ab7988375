"""How a task is cut into mini-batches, also if the last one would be a single example."""

import pytest
import torch
from torch import nn

import mdmt
from support.helpers import mistake


class Small(nn.Module):
    """A user's network whose batch norm sees one value per channel and example."""

    def __init__(self, norm=nn.BatchNorm2d, side=1):
        super().__init__()
        self.conv, self.norm, self.side = nn.Conv2d(1, 4, 3, stride=2), norm(4), side

    def forward(self, x):
        return self.norm(nn.functional.adaptive_avg_pool2d(self.conv(x), self.side)).flatten(1)


def task(count, name="a"):
    x = torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(count))
    return mdmt.Task(name, x, [i % 2 for i in range(count)])


def batch_sizes(backbone, count, method=None, epochs=1, **more):
    learner = mdmt.Learner(backbone, method or mdmt.VAN(), lr=0.01, epochs=epochs, **more)
    sizes = []
    step = learner.step
    learner.step = lambda batch: (sizes.append(len(batch)), step(batch))[1]
    learner.learn(task(count))
    assert learner.record.steps == len(sizes) == learner.steps_of(task(count))
    return sizes


@pytest.mark.parametrize(
    "norm", [nn.BatchNorm2d, lambda n: mdmt.backbones.BatchNorm(n, start="fast")]
)
def test_a_last_single_example_joins_the_batch_before(norm):
    assert batch_sizes(Small(norm), 31, epochs=2) == [10, 10, 11] * 2
    assert batch_sizes(Small(norm), 32) == [10, 10, 10, 2]
    assert batch_sizes(Small(norm), 30) == [10, 10, 10]


def test_where_one_example_is_enough_nothing_changes():
    assert batch_sizes(Small(side=2), 31) == [10, 10, 10, 1]
    assert batch_sizes(mdmt.backbones.mlp(64), 31) == [10, 10, 10, 1]
    assert batch_sizes(Small(lambda n: mdmt.backbones.BatchNorm(n, start="zero")), 31) == [
        10,
        10,
        10,
        1,
    ]


def test_all_tasks_at_once_end_with_a_joined_batch_too():
    learner = mdmt.Learner(Small(), mdmt.Joint(), lr=0.01)
    learner.run(mdmt.Stream("s", [task(15), task(16, "b")]))
    assert learner.record.steps == 3


def test_an_interrupted_epoch_goes_on_with_the_joined_batch(tmp_path):
    whole = mdmt.Learner(Small(), mdmt.VAN(), lr=0.01, epochs=2)
    first = whole.backbone.state_dict()
    start = {name: value.clone() for name, value in first.items()}
    whole.learn(task(21))

    class Interrupt(Exception):
        pass

    def stop(learner):
        if learner.step_in_task == 3:
            learner.save(tmp_path / "model")
            raise Interrupt

    part = mdmt.Learner(Small(), mdmt.VAN(), lr=0.01, epochs=2)
    part.backbone.load_state_dict(start)
    with pytest.raises(Interrupt):
        part.learn(task(21), on_step=stop)
    again = mdmt.Learner.load(tmp_path / "model", backbone=Small())
    again.learn(task(21))
    assert again.record.steps == 4
    assert torch.equal(again.model.flat, whole.model.flat)


def test_single_examples_that_cannot_be_joined_are_refused_before_the_first_step():
    for learner, examples in (
        (mdmt.Learner(Small(), mdmt.VAN(), batch=1), task(8)),
        (mdmt.Learner(Small(), mdmt.VAN()), task(1)),
        (mdmt.Learner(Small(), mdmt.MER()), task(8)),
    ):
        message = mistake(learner.learn, examples)
        assert "batch norm" in message
        assert learner.tasks == []
