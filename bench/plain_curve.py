"""LCA_10 of fine-tuning on Permuted MNIST with torch and numpy only, to check our learner's.

    python bench/plain_curve.py DATA [SEED ...]  # DATA has the folder mnist; 1 to 2 minutes a seed

Pixels, the order of the examples and the steps without memory are those of the programs behind the
published numbers: one legacy generator of numpy per run, for the 17 permutations and then for the
order of each task. The first weights are torch's.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mdmt.data.readers import read_mnist
from mdmt.metrics import BETA, learning_curve_area

TASKS, BATCH, LR = 17, 10, 0.03
SIZES = (784, 256, 256, 10)


def first_weights() -> list[Tensor]:
    """Truncated normal, sigma .1; biases .1."""
    weights = []
    for inputs, outputs in pairwise(SIZES):
        weight = nn.init.trunc_normal_(torch.empty(outputs, inputs), std=0.1, a=-0.2, b=0.2)
        weights += [weight.requires_grad_(), torch.full((outputs,), 0.1).requires_grad_()]
    return weights


def scores(weights: list[Tensor], images: Tensor) -> Tensor:
    for weight, bias in zip(weights[:-2:2], weights[1:-2:2], strict=True):
        images = F.relu(F.linear(images, weight, bias))
    return F.linear(images, weights[-2], weights[-1])


def learn(
    weights: list[Tensor], train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]
) -> list[float]:
    """Learn one pass over the examples; return the accuracy after 0 to 10 mini-batches."""
    curve = []
    images, labels = train
    for step in range(len(labels) // BATCH):
        if step <= BETA:
            with torch.no_grad():
                curve.append((scores(weights, test[0]).argmax(1) == test[1]).float().mean().item())
        start = step * BATCH % (len(labels) - BATCH)
        batch = slice(start, start + BATCH)
        gradient = torch.autograd.grad(
            F.cross_entropy(scores(weights, images[batch]), labels[batch]), weights
        )
        with torch.no_grad():
            torch._foreach_add_(weights, gradient, alpha=-LR)
    return curve


def main(data: str, *seeds: str) -> None:
    torch.set_num_threads(1)
    mnist = read_mnist(Path(data) / "mnist")
    train, test = (
        (part.images.reshape(-1, 784) / 255, part.labels) for part in (mnist.train, mnist.test)
    )
    areas = []
    for seed in map(int, seeds or range(1234, 1239)):
        generator = np.random.RandomState(seed)
        torch.manual_seed(seed)
        permutations = [np.arange(784) for _ in range(TASKS)]
        for permutation in permutations:
            generator.shuffle(permutation)
        weights = first_weights()
        curves = []
        for permutation in permutations:
            order = np.arange(5000, len(train[1]))
            generator.shuffle(order)
            examples = train[0][order][:, permutation], train[1][order]
            curves.append(learn(weights, examples, (test[0][:, permutation], test[1])))
        areas.append(learning_curve_area(curves) or 0.0)
        print(f"seed {seed}: LCA_10 {areas[-1]:.4f}", flush=True)
    print(f"{len(areas)} seeds: {np.mean(areas):.4f} ± {np.std(areas):.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
