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
PIECE = 2**13  # columns whose copy in double precision stays in the cache


class GEM(Method):
    """Gradient episodic memory: the vector nearest to g that makes no obtuse angle with any past
    task's gradient.

    One gradient per past task, on all that the memory holds of it. The original keeps the last
    examples of a task, whatever their classes (`--set policy=TaskRing`); here it shares the other
    methods' memory, so many of each class. `margin` is the original's memory strength: the dual
    variables are at least that, which pulls the update towards the past. Its program adds 1e-3 to
    the diagonal of the Gram matrix, for its solver's sake; ours far less (see `solve`).
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
        if not bool((products < 0).any()) or not bool(
            products.isfinite().all()
        ):  # what is not finite, `apply` finds
            return g
        gram = gram_matrix(every).cpu()  # the program is solved on the processor
        duals = solve(gram[:-1, :-1], gram[:-1, -1], self.margin)
        return g + send(duals.to(g.dtype), g.device) @ rows


def gram_matrix(rows: Tensor) -> Tensor:
    """The products of rows with each other in double precision, piece by piece: whole, the copy
    would outweigh the rest.
    """
    gram = rows.new_zeros(len(rows), len(rows), dtype=torch.float64)
    for piece in rows.split(PIECE, dim=1):
        exact = piece.double()
        gram += exact @ exact.T
    return gram


def solve(gram: Tensor, products: Tensor, margin: float) -> Tensor:
    """The v >= margin that minimises v' P v / 2 + q' v, for the Gram matrix P and the products q of
    its rows with g.

    With w = v - margin this is a least-squares problem with w >= 0, for P = A'A from its
    eigenvectors. Rows count as of length 1, and DAMPING keeps w small where some of them nearly
    cancel: else rounding errors of P would make the update longer than g + margin * (sum of rows),
    whose nearest vector it is.
    """
    from scipy.optimize import nnls  # here, so that importing mdmt does not wait for it

    lengths = gram.diagonal().sqrt()
    lengths = torch.where(lengths > 0, lengths, 1.0)
    shifted = ((products + margin * gram.sum(1)) / lengths).numpy()
    values, vectors = np.linalg.eigh((gram / torch.outer(lengths, lengths)).numpy())
    root: NDArray[np.float64] = np.sqrt(values.clip(0.0) + DAMPING)
    duals = nnls(root[:, None] * vectors.T, -(vectors.T @ shifted) / root)[0]
    return torch.from_numpy(duals) / lengths + margin
