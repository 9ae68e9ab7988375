"""A second device that needs no hardware, with real numbers: what mixes it with the processor
raises.

Its tensors say that they are on "meta", and hold an ordinary tensor that does the work. `Elsewhere`
is on while a test computes there; it keeps what would make the processor wait for an accelerator.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = torch.device("meta")
HERE = torch.device("cpu")
aten = torch.ops.aten
# Ops whose result has a size that only its numbers tell, so that the processor has to wait for it.
DATA_DEPENDENT = {
    aten.nonzero.default,
    aten.masked_select.default,
    aten._unique2.default,
    aten.bincount.default,
}
INDEXED = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default}
TO_PROCESSOR = "copy to the processor"
FROM_PROCESSOR = "copy from the processor that blocks"


class Mixed(RuntimeError):
    """Tensors of two devices in one operation."""


class Remote(torch.Tensor):
    """A tensor on the second device."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            inner.stride(),
            inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
        )

    def __init__(self, inner):
        self.inner = inner

    @property
    def data(self):
        return torch.Tensor.data.__get__(self)

    @data.setter
    def data(self, value):
        torch.Tensor.data.__set__(self, value)
        self.inner = value.inner

    def tolist(self):
        return self.cpu().tolist()

    def __repr__(self):
        return f"Remote({self.inner!r})"

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), more=None):
        raise Mixed(f"{function} outside of Elsewhere")


def _tensor(*arguments, device=None, **more):
    """torch.tensor, which would leave a tensor on "meta" without numbers."""
    made = TENSOR(*arguments, **more)
    return made if device is None else made.to(device)


def _pin(x):
    """Tensor.pin_memory, which needs an accelerator."""
    pinned = x.clone()
    pinned.is_in_pinned_memory = True
    return pinned


TENSOR = torch.tensor
PIN = torch.Tensor.pin_memory


class Elsewhere(TorchDispatchMode):
    """Computes on the second device; `waits` are the operations that an accelerator's processor
    would wait for.
    """

    def __init__(self):
        super().__init__()
        self.waits = []

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # nothing is compiled, and to skip it takes longer than to compute

    def __enter__(self):
        torch.tensor = _tensor
        torch.Tensor.pin_memory = _pin
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        torch.tensor = TENSOR
        torch.Tensor.pin_memory = PIN

    def __torch_dispatch__(self, function, types, arguments=(), more=None):
        more = more or {}
        tensors = [
            value
            for value in _flat([*arguments, *more.values()])
            if isinstance(value, torch.Tensor)
        ]
        remote = [value for value in tensors if type(value) is Remote]
        target = torch.device(more["device"]) if more.get("device") is not None else None
        if not remote and target != DEVICE:
            return function(*arguments, **more)
        self._refuse_mixing(function, tensors, remote, more)
        self._note_waiting(function, arguments, more, target)
        if target is not None:
            more = (
                {**more, "device": HERE, "non_blocking": False}
                if "non_blocking" in more
                else {**more, "device": HERE}
            )
        inner_more = {key: _inner(value) for key, value in more.items()}
        result = function(*map(_inner, arguments), **inner_more)
        there = bool(remote) if target is None else target == DEVICE
        if function is aten.copy_.default:
            there = type(arguments[0]) is Remote
        known = {id(value.inner): value for value in remote}
        return _outer(result, known) if there else result

    def _refuse_mixing(self, function, tensors, remote, more):
        if isinstance(more.get("generator"), torch.Generator):
            raise Mixed(f"{function}: a generator of the processor for a tensor on {DEVICE}")
        if function in (aten._to_copy.default, aten.copy_.default):
            return
        here = [value for value in tensors if type(value) is not Remote and value.ndim > 0]
        if remote and here:
            raise Mixed(
                f"{function}: tensors on {DEVICE} and on the processor, of shape"
                f" {tuple(here[0].shape)}"
            )

    def _note_waiting(self, function, arguments, more, target):
        if function is aten._local_scalar_dense.default or function in DATA_DEPENDENT:
            self.waits.append(str(function))
        elif function in INDEXED:
            if any(index is not None and index.dtype == torch.bool for index in arguments[1]):
                self.waits.append(f"{function} by a mask")
        elif function is aten._to_copy.default and target is not None:
            self._note_copy(arguments[0], target == DEVICE, more.get("non_blocking"))
        elif function is aten.copy_.default:
            into, source, *non_blocking = arguments
            self._note_copy(source, type(into) is Remote, bool(non_blocking and non_blocking[0]))

    def _note_copy(self, source, goes_there, non_blocking):
        comes_from_there = type(source) is Remote
        if comes_from_there and not goes_there:
            self.waits.append(TO_PROCESSOR)
        if goes_there and not comes_from_there and source.ndim:
            pinned = hasattr(source, "is_in_pinned_memory")
            if not (non_blocking and pinned):
                self.waits.append(FROM_PROCESSOR)


def _flat(values):
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from value
        else:
            yield value


def _inner(value):
    if isinstance(value, (list, tuple)):
        return [_inner(item) for item in value]
    return value.inner if type(value) is Remote else value


def _outer(value, known):
    if isinstance(value, (list, tuple)):
        return [_outer(item, known) for item in value]
    if not isinstance(value, torch.Tensor):
        return value
    return known[id(value)] if id(value) in known else Remote(value)
