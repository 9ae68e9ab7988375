"""LCA_10 and A_T of fine-tuning on Permuted MNIST with torch and numpy only, to check ours.

    python bench/plain_curve.py DATA [SEED ...]                # DATA has the folder mnist
    python bench/plain_curve.py DATA [SEED ...] --stream 1234  # as the published runs

It takes 1 to 2 minutes a seed. Pixels, the order of the examples and the steps without memory are
those of the programs behind the published numbers: one legacy generator of numpy per run, for the
17 permutations and then for the order of each task. The first weights are torch's. With --stream
that generator has the given seed in every run, and the seeds are those of the first weights alone:
so are the published runs, since the loader of MNIST set numpy's seed back to 1234.
"""

from __future__ import annotations

import argparse
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
Examples = tuple[Tensor, Tensor]


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


@torch.no_grad()
def accuracy(weights: list[Tensor], test: Examples) -> float:
    return (scores(weights, test[0]).argmax(1) == test[1]).float().mean().item()


def learn(weights: list[Tensor], train: Examples, test: Examples) -> list[float]:
    """Learn one pass over the examples; return the accuracy after 0 to 10 mini-batches."""
    curve = []
    images, labels = train
    for step in range(len(labels) // BATCH):
        if step <= BETA:
            curve.append(accuracy(weights, test))
        start = step * BATCH % (len(labels) - BATCH)
        batch = slice(start, start + BATCH)
        gradient = torch.autograd.grad(
            F.cross_entropy(scores(weights, images[batch]), labels[batch]), weights
        )
        with torch.no_grad():
            torch._foreach_add_(weights, gradient, alpha=-LR)
    return curve


def run(train: Examples, test: Examples, seed: int, stream: int) -> tuple[float, float]:
    """LCA_10 and A_T of one run: first weights by `seed`, tasks and orders by `stream`."""
    generator = np.random.RandomState(stream)
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
    ends = [accuracy(weights, (test[0][:, order], test[1])) for order in permutations]
    return learning_curve_area(curves) or 0.0, float(np.mean(ends))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("seeds", type=int, nargs="*", metavar="SEED", default=range(1234, 1239))
    parser.add_argument("--stream", type=int, metavar="SEED")
    given = parser.parse_args()
    torch.set_num_threads(1)
    mnist = read_mnist(given.data / "mnist")
    train, test = (
        (part.images.reshape(-1, 784) / 255, part.labels) for part in (mnist.train, mnist.test)
    )
    runs = []
    for seed in given.seeds:
        runs.append(run(train, test, seed, seed if given.stream is None else given.stream))
        print(f"seed {seed}: LCA_10 {runs[-1][0]:.4f}, A_T {100 * runs[-1][1]:.2f}", flush=True)
    (area, end), (area_std, end_std) = np.mean(runs, 0), np.std(runs, 0)
    print(
        f"{len(runs)} seeds: LCA_10 {area:.4f} ± {area_std:.4f},"
        f" A_T {100 * end:.2f} ± {100 * end_std:.2f}"
    )


if __name__ == "__main__":
    main()
