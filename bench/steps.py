"""Time of a training step, as a ratio to a bare PyTorch loop on the same numbers of samples, measured in one run.

The two are timed in turns, many times over, and the medians compared, so that a busy machine slows both alike.
"""

from __future__ import annotations

import statistics
import time

import torch
from torch import nn

import mdmt
from mdmt.benchmarks import make

ROUNDS, STEPS = 15, 40


def bare(samples: int):
    """Forward, backward and SGD step of the same network on so many samples, written by hand."""
    net = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    optimiser, loss = torch.optim.SGD(net.parameters(), lr=0.01), nn.CrossEntropyLoss()
    x, y = torch.randint(0, 255, (samples, 784), dtype=torch.uint8), torch.randint(0, 10, (samples,))

    def step() -> None:
        optimiser.zero_grad()
        loss(net(x.float() / 255), y).backward()
        optimiser.step()

    return step


def learner_step(method: mdmt.Method):
    """A step of ours in the second task, with a full memory of 250."""
    stream = make("permuted-digits", tasks=2)
    learner = mdmt.Learner(mdmt.backbones.mlp(784), method, heads="shared", lr=0.01)
    learner.learn(stream[0])
    learner._open(stream[1], ())
    learner.model.backbone.train()
    batches = iter(())

    def step() -> None:
        nonlocal batches
        batch = next(batches, None)
        if batch is None:
            learner.step_in_task = 0
            batches = learner._batches(stream[1])
            batch = next(batches)
        learner.step(batch)
        learner.step_in_task += 1

    return step


def timed(step) -> float:
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
    return (time.perf_counter() - start) / STEPS * 1e3


def main() -> None:
    torch.set_num_threads(1)
    print(f"{'row':34} {'ours ms':>8} {'bare ms':>8} {'ratio':>6}")
    for name, ours, theirs in (
        ("van, 10 samples", learner_step(mdmt.VAN()), bare(10)),
        ("mdmt-r, 10 + 250 from memory", learner_step(mdmt.MDMTR()), bare(260)),
    ):
        pairs = [(timed(ours), timed(theirs)) for _ in range(ROUNDS)]
        a, b = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"{name:34} {a:8.2f} {b:8.2f} {a / b:6.2f}")


if __name__ == "__main__":
    main()
