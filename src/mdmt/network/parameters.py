"""All weights in one flat vector.

Every weight is a view of `flat`, so a gradient is one vector, a projection is a dot product and an
update is one call. The head comes last: when it grows, `flat` and every vector that runs along it
are padded at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Parameters:
    """The weights of a backbone and a head as views of one vector.

    Flatten after moving or casting the backbone: a later move or cast would cut the views.
    """

    def __init__(self, backbone: nn.Module, head: nn.Parameter, *, channels_last: bool) -> None:
        self.head = head
        self.channels_last = channels_last
        self.leaves = [p for p in backbone.parameters() if p.requires_grad] + [head]
        self.flat = nn.Parameter(self.flatten([leaf.detach() for leaf in self.leaves]))
        self.sizes: list[int] = []
        self.shapes: list[torch.Size] = []

    def grow(self, rows: Tensor) -> None:
        """Append rows to the head."""
        width = self.head.shape[1]
        capacity = len(self.head) + len(rows)
        self.head.data = torch.empty(capacity, width, device=self.flat.device)
        self.flat.data = torch.cat([self.flat.data, rows.to(self.flat).flatten()])
        self.sizes = [leaf.numel() for leaf in self.leaves]
        self.shapes = [leaf.shape for leaf in self.leaves]
        for leaf, view in zip(self.leaves, self.views(self.flat.data), strict=True):
            leaf.data = view

    def views(self, vector: Tensor) -> list[Tensor]:
        """Views of a vector along `flat` in the shapes of the weights."""
        pieces = zip(vector.split(self.sizes), self.shapes, strict=True)
        return [self._unflatten(piece, shape) for piece, shape in pieces]

    def flatten(self, values: Sequence[Tensor]) -> Tensor:
        """One vector along `flat` of tensors in the shapes of the weights."""
        return torch.cat([self._flatten(value) for value in values])

    def _flatten(self, x: Tensor) -> Tensor:
        kernel = self.channels_last and x.ndim == 4
        return (x.permute(0, 2, 3, 1) if kernel else x).reshape(-1)

    def _unflatten(self, piece: Tensor, shape: torch.Size) -> Tensor:
        if not self.channels_last or len(shape) != 4:
            return piece.view(shape)
        return piece.view(shape[0], shape[2], shape[3], shape[1]).permute(0, 3, 1, 2)
