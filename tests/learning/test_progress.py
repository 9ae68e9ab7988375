"""The progress bar counts the steps of the learner."""

import torch
from torch import nn

import mdmt


def test_a_single_last_example_that_joins_the_batch_before_is_no_step(capsys):
    normed = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    learner = mdmt.Learner(normed, mdmt.VAN(), batch=10)
    x = torch.rand(31, 4, generator=torch.Generator().manual_seed(1))
    learner.learn(mdmt.Task("a", x, [0] * 15 + [1] * 16), progress=True)
    assert learner.record.steps == 3
    assert capsys.readouterr().err == "a: 3 steps\na: learned\n"
