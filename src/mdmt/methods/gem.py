"""GEM (Lopez-Paz and Ranzato, 2017): no past task's loss may rise."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mdmt.methods.base import Method, setting
from mdmt.placement import send
from mdmt.tasks import Batch

PIECE = 2**13  # columns whose copy in double precision stays in the cache


class GEM(Method):
    """Gradient episodic memory: the vector nearest to g that makes no obtuse angle with any past task's gradient.

    One gradient per past task, on all that the memory holds of it. The original keeps the last examples
    of a task, whatever their classes (`--set policy=TaskRing`); here it shares the other methods' memory,
    so many of each class. `margin` is the original's memory strength: the dual variables are at least
    that, which pulls the update towards the past. Its program adds 1e-3 to the diagonal of the Gram
    matrix, for its solver's sake; ours takes singular matrices as they are.
    """

    name, kind, source = "gem", "rehearsal", "Lopez-Paz and Ranzato, 2017"
    uses_memory = True
    margin: float = setting(default=0.5, least=0.0)

    def gradient(self, batch: Batch) -> Tensor:
        """g, or its projection where a past task objects."""
        past = self.memory.by_task(before=len(self.learner.tasks), without=self.learner.current)
        every = self.grads(*past, batch)[1]
        rows, g = every[:-1], every[-1]
        products = (rows @ g).cpu()
        if not bool((products < 0).any()) or not bool(products.isfinite().all()):  # what is not finite, `apply` finds
            return g
        gram = gram_matrix(every).cpu()  # the program is solved on the processor
        duals = solve(gram[:-1, :-1], gram[:-1, -1], self.margin)
        return g + send(duals.to(g.dtype), g.device) @ rows


def gram_matrix(rows: Tensor) -> Tensor:
    """The products of rows with each other in double precision, piece by piece: whole, the copy would outweigh the rest."""
    gram = rows.new_zeros(len(rows), len(rows), dtype=torch.float64)
    for piece in rows.split(PIECE, dim=1):
        exact = piece.double()
        gram += exact @ exact.T
    return gram


def solve(gram: Tensor, products: Tensor, margin: float) -> Tensor:
    """The v >= margin that minimises v' P v / 2 + q' v, for the Gram matrix P and the products q of its rows with g.

    With w = v - margin this is a least-squares problem with w >= 0: P = A'A from its eigenvectors, singular or not, since q
    lies in the range of P.
    """
    from scipy.optimize import nnls  # here, so that importing mdmt does not wait for it

    values, vectors = np.linalg.eigh(gram.numpy())
    kept = values > values.max(initial=0.0) * len(values) * np.finfo(float).eps
    root: NDArray[np.float64] = np.sqrt(values[kept])[:, None] * vectors[:, kept].T
    shifted = products.numpy() + gram.numpy().sum(1) * margin
    target = -(vectors[:, kept].T @ shifted) / np.sqrt(values[kept])
    duals = nnls(root, target)[0] if kept.any() else np.zeros(len(values))
    return torch.from_numpy(duals + margin)
