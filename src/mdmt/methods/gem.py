"""GEM (Lopez-Paz and Ranzato, 2017): no past task's loss may rise."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mdmt.inputs.device import send
from mdmt.methods.base import Method, setting
from mdmt.tasks import Batch

DAMPING = 1e-10  # added to the squared lengths of rows, which are 1
COLUMNS_AT_ONCE = 2**13  # their copies in double precision stay in the cache


class GEM(Method):
    """Gradient episodic memory: step along the vector nearest to g that no past task objects to.

    A past task objects if the vector makes an obtuse angle with its gradient, which is computed on
    all of its examples in the memory. The original stores the last examples of a task, whatever
    their classes (`--set policy=TaskRing`); here GEM has the same memory as the other methods, with
    an equal number of examples per class. `margin` is the original's memory strength: a lower bound
    of the dual variables, which pulls the update towards the past. The original program adds 1e-3
    to the diagonal of the Gram matrix to help its solver; ours adds far less (see `solve`).
    """

    name, kind, source = "gem", "rehearsal", "Lopez-Paz and Ranzato, 2017"
    uses_memory = True
    margin: float = setting(default=0.5, least=0.0)

    def gradient(self, batch: Batch) -> Tensor:
        """g, or its projection if a past task objects."""
        past = self.memory.by_task(before=len(self.learner.tasks), without=self.learner.current)
        every = self.grads(*past, batch)[1]
        rows, g = every[:-1], every[-1]
        products = (rows @ g).cpu()
        # `apply` reports numbers that are not finite.
        if not bool((products < 0).any()) or not bool(products.isfinite().all()):
            return g
        gram = gram_matrix(every).cpu()  # the quadratic program is solved on the CPU
        duals = solve(gram[:-1, :-1], gram[:-1, -1], self.margin)
        return g + send(duals.to(g.dtype), g.device) @ rows


def gram_matrix(rows: Tensor) -> Tensor:
    """The products of all pairs of rows, in double precision.

    They are summed over pieces of the rows: a whole copy in double precision would take more memory
    than everything else.
    """
    gram = rows.new_zeros(len(rows), len(rows), dtype=torch.float64)
    for piece in rows.split(COLUMNS_AT_ONCE, dim=1):
        exact = piece.double()
        gram += exact @ exact.T
    return gram


def solve(gram: Tensor, products: Tensor, margin: float) -> Tensor:
    """The v >= margin that minimises v' P v / 2 + q' v.

    P is the Gram matrix of the rows, q holds their products with g. With w = v - margin this is a
    least-squares problem in w >= 0, where P = A'A and A comes from the eigenvectors of P. Rows are
    scaled to length 1, and DAMPING keeps w small if some of them nearly cancel: otherwise rounding
    errors in P would make the update longer than g + margin * (sum of rows), although it is the
    nearest vector to that sum in a cone.
    """
    from scipy.optimize import nnls  # imported here so that importing mdmt does not wait for it

    lengths = gram.diagonal().sqrt()
    lengths = torch.where(lengths > 0, lengths, 1.0)
    shifted = ((products + margin * gram.sum(1)) / lengths).numpy()
    values, vectors = np.linalg.eigh((gram / torch.outer(lengths, lengths)).numpy())
    root: NDArray[np.float64] = np.sqrt(values.clip(0.0) + DAMPING)
    duals = nnls(root[:, None] * vectors.T, -(vectors.T @ shifted) / root)[0]
    return torch.from_numpy(duals) / lengths + margin
