"""Random examples of a task, chosen at its end or before it: so many, or so many bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mdmt.errors import Mistake
from mdmt.memory.base import READ_AT_ONCE, Memory, Read, Spec
from mdmt.tasks import Batch


class AtTaskEnd(Memory):
    """`per_class` random examples of each class, chosen at a task's end (StoreMem, Algorithm 1)."""

    observes = False

    def __init__(self, per_class: int = 20) -> None:
        super().__init__(per_class, "per_class")

    def close_task(self, labels: Tensor, read: Read) -> None:
        """Choose examples, and store them with their features at the end of the task."""
        chosen: list[int] = []
        for row in labels.unique().tolist():
            of_class = (labels == row).nonzero()[:, 0].numpy()
            picked = self.generator.choice(of_class, min(self.size, len(of_class)), replace=False)
            chosen += picked.tolist()
        if not chosen:
            return
        base = len(self.available)
        slots = {base + i: i for i in range(len(chosen))}
        self._write(slots, read(torch.tensor(chosen)), base + len(chosen), None)
        self.available = torch.arange(base + len(chosen))

    def _select(self, places: Tensor) -> Tensor:
        """Random examples of the group, old or new."""
        count = min(self.size, len(places))
        return places[torch.from_numpy(self.generator.choice(len(places), count, replace=False))]


class Balanced(Memory):
    """As many examples as fit into `bytes`, shared evenly by all classes.

    Examples are chosen at random at a task's end. As classes come, the largest ones give way. Where
    a class has fewer examples than its share, classes are drawn evenly all the same. The bytes
    count everything that is stored of an example: input, label, task, features and its slot.
    """

    observes = False
    OVERHEAD = 24  # bytes of an example's label, task and slot

    def __init__(self, bytes: int = 50_000_000) -> None:
        super().__init__(bytes, "bytes")
        self._grouped: tuple[Tensor, list[NDArray[np.int64]]] | None = None  # slots by class

    @classmethod
    def budget(cls, per_class: int, classes: int) -> Spec:
        """Refuse: its size is one of bytes."""
        raise Mistake(
            f"policy={cls.__name__} is a memory of bytes: use it in Python, or mdmt learn"
        )

    def close_task(self, labels: Tensor, read: Read) -> None:
        """Choose examples of the task, and drop stored ones, so that all classes have one share."""
        if not len(labels):
            return
        slots = self.slots_for(read(torch.tensor([0])))
        stored = [] if self.labels is None else self.labels.tolist()
        shares = even_shares(Counter([*stored, *labels.tolist()]), slots)
        keep: list[int] = []
        chosen: list[int] = []
        for row, share in shares.items():
            old = np.array([slot for slot, label in enumerate(stored) if label == row], np.int64)
            new = (labels == row).nonzero()[:, 0].numpy()
            # Old and new examples of a class have the same chance to stay.
            picked = self.generator.permutation(len(old) + len(new))[:share]
            keep += old[picked[picked < len(old)]].tolist()
            chosen += new[picked[picked >= len(old)] - len(old)].tolist()
        if self.labels is not None:
            self._compact(torch.tensor(sorted(keep), dtype=torch.int64))
        base = len(self.available)
        for start in range(0, len(chosen), READ_AT_ONCE):
            index = torch.tensor(chosen[start : start + READ_AT_ONCE])
            first = base + start
            rows = {first + i: i for i in range(len(index))}
            self._write(rows, read(index), base + len(chosen), None)
        self.available = torch.arange(base + len(chosen))

    def choose(self, count: int) -> Tensor:
        """The slots of `count` different random examples, about equally many of each class."""
        if count >= len(self.available):
            return self.available
        of_class = self._slots_of_classes()
        sizes = np.array([len(slots) for slots in of_class])
        if sizes.max() - sizes.min() <= 1:
            return super().choose(count)
        shares = even_draws(sizes, count, self.generator)
        picked = [
            slots[self.generator.choice(len(slots), share, replace=False, shuffle=False)]
            for slots, share in zip(of_class, shares, strict=True)
        ]
        return torch.from_numpy(np.concatenate(picked))

    def _slots_of_classes(self) -> list[NDArray[np.int64]]:
        """The slots of each class, grouped anew after a change."""
        if self._grouped is None or self._grouped[0] is not self.available:
            labels = self._column("labels")[self.available]
            rows = labels.unique().tolist()
            self._grouped = (
                self.available,
                [self.available[labels == row].numpy() for row in rows],
            )
        return self._grouped[1]

    def slots_for(self, example: Batch) -> int:
        """The number of examples like this one that fit, at the width that stored ones have."""
        features = 0 if example.features is None else example.features[0].nbytes
        return self.size // (example.inputs[0].nbytes + features + self.OVERHEAD)

    def trim_task(self, task: int) -> None:
        """Keep everything: `close_task` has evened it out."""


class BalancedFirst(Balanced):
    """The same, but chosen before a task is learned: its classes are rehearsed while they are new.

    So they compete with the earlier ones in what is drawn from the memory. It is not for methods
    that store representations, which would be those of a network that has not learned the task.
    """

    chooses_first = True

    def choose_first(self, labels: Tensor, read: Read) -> None:
        """Choose examples of the task, and drop stored ones."""
        super().close_task(labels, read)

    def close_task(self, labels: Tensor, read: Read) -> None:
        """Keep what was chosen."""


def even_draws(
    sizes: NDArray[np.int64], count: int, draws: np.random.Generator
) -> NDArray[np.int64]:
    """How many of `count` draws each class gets, of which there are so many examples.

    Classes get equally many, and those that are too small all they have; of what is left, random
    classes get one each.
    """
    shares = np.zeros_like(sizes)
    while count:
        larger = np.flatnonzero(shares < sizes)
        if count < len(larger):
            shares[draws.permutation(larger)[:count]] += 1
            break
        more = np.minimum(count // len(larger), sizes[larger] - shares[larger])
        shares[larger] += more
        count -= int(more.sum())
    return shares


def even_shares(counts: Mapping[int, int], total: int) -> dict[int, int]:
    """How many of `total` places each class gets: equal shares, less for those that have less.

    >>> even_shares({0: 100, 1: 2, 2: 100}, 12)
    {0: 5, 1: 2, 2: 5}
    """
    shares = dict.fromkeys(sorted(counts), 0)
    open_classes = sorted(counts, key=lambda row: (counts[row], row))
    for number, row in enumerate(open_classes):
        shares[row] = min(counts[row], total // (len(open_classes) - number))
        total -= shares[row]
    return shares
