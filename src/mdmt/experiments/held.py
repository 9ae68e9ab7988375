"""How many bytes some tensors hold at one time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Held:
    """The most bytes that the noted tensors held at one time: whole storages, each once, those of `but` left out."""

    def __init__(self, but: Tensor) -> None:
        self.but = but.untyped_storage().data_ptr()
        self.living: dict[StorageWeakRef, int] = {}
        self.most = 0

    def note(self, tensor: Tensor) -> None:
        """Count a tensor's storage from now on until nothing uses it any more."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() == self.but:
            return
        self.living = {ref: size for ref, size in self.living.items() if not ref.expired()}
        self.living[StorageWeakRef(storage)] = storage.nbytes()
        self.most = max(self.most, sum(self.living.values()))


class Saved(Held, saved_tensors_hooks):
    """What autograd keeps for backward passes inside of `with`."""

    def __init__(self, but: Tensor) -> None:
        Held.__init__(self, but)
        saved_tensors_hooks.__init__(self, self.pack, lambda kept: kept)

    def pack(self, tensor: Tensor) -> Tensor:
        """Note it; detached, since a saved result that knows its own history would never be freed."""
        self.note(tensor)
        return tensor.detach()


class Made(Held, TorchDispatchMode):
    """What operations inside of `with` make, where `counts` says so."""

    def __init__(self, but: Tensor, counts: Callable[[Tensor], bool] = lambda tensor: True) -> None:
        Held.__init__(self, but)
        TorchDispatchMode.__init__(self)
        self.counts = counts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do the operation and note its results."""
        results = func(*args, **(kwargs or {}))
        for result in tree_leaves(results):
            if isinstance(result, Tensor) and self.counts(result):
                self.note(result)
        return results
