"""The buffers of a method: tensors that are saved, restored, moved and grown automatically."""

from __future__ import annotations

from typing import Any, Literal, overload

import torch
from torch import Tensor

from mdmt.errors import Mistake
from mdmt.inputs.saved import check_finite, saved_tensor
from mdmt.methods.settings import Configurable, class_name
from mdmt.network.model import Model
from mdmt.words import printable


class Buffer:
    """A tensor that a method remembers between steps; zeros at first.

    `Buffer(like="params")` is as long as the vector of all parameters, and is padded with zeros
    when the head grows; `Buffer(like="statistics")` has a place for each of batch norm's running
    statistics; `Buffer(3)` has shape (3,). `Buffer(..., when="x")` exists only if the
    setting x is neither 0 nor None nor false. With `counts` the buffer stays on the CPU, so that
    reading it does not wait for a device.
    """

    def __init__(
        self,
        *shape: int,
        like: Literal["params", "statistics"] | None = None,
        when: str | None = None,
        counts: bool = False,
    ) -> None:
        self.shape = shape
        self.like = like
        self.when = when
        self.counts = counts

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, method: None, owner: type) -> Buffer: ...

    @overload
    def __get__(self, method: Remembering, owner: type) -> Tensor: ...

    def __get__(self, method: Remembering | None, owner: type) -> Tensor | Buffer:
        """The tensor of a method, or the declaration if accessed on the class."""
        if method is None:
            return self
        value: Tensor = method.__dict__[self.name]
        return value

    def __set__(self, method: Remembering, value: Tensor) -> None:
        method.__dict__[self.name] = value


class Remembering(Configurable):
    """Creates, saves, restores and grows the buffers that its class declares."""

    model: Model

    @classmethod
    def buffers(cls) -> dict[str, Buffer]:
        """The declared buffers by name."""
        return {
            name: buffer
            for base in cls.__mro__
            for name, buffer in vars(base).items()
            if isinstance(buffer, Buffer)
        }

    def used_buffers(self) -> dict[str, Buffer]:
        """The buffers that exist with the current settings."""
        declared = self.buffers().items()
        return {name: b for name, b in declared if b.when is None or getattr(self, b.when)}

    @property
    def buffer_bytes(self) -> int:
        """The size of all buffers in bytes."""
        tensors: list[Tensor] = [getattr(self, name) for name in self.used_buffers()]
        return sum(tensor.nbytes for tensor in tensors)

    def create_buffers(self) -> None:
        """Create every buffer, filled with zeros."""
        flat = self.model.flat
        for name, buffer in self.used_buffers().items():
            shape = self._shape(buffer)
            setattr(self, name, torch.zeros(shape, dtype=flat.dtype, device=self._device(buffer)))

    def _shape(self, buffer: Buffer) -> tuple[int, ...]:
        if buffer.like == "params":
            return tuple(self.model.flat.shape)
        if buffer.like == "statistics":
            return tuple(self.model.statistics_vector().shape)
        return buffer.shape

    def grow(self) -> None:
        """Pad the buffers that are as long as the parameters after the head has grown."""
        for name, buffer in self.used_buffers().items():
            if buffer.like == "params":
                old: Tensor = getattr(self, name)
                gained = self.model.flat.numel() - old.numel()
                setattr(self, name, torch.cat([old, old.new_zeros(gained)]))

    def release(self, positions: Tensor, rows: Tensor) -> None:
        """Forget what is remembered of `rows` of the head, at these positions of the parameters."""
        for name, buffer in self.used_buffers().items():
            if buffer.like == "params":
                value: Tensor = getattr(self, name)
                value[positions.to(value.device)] = 0

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The buffers by name, and the method's class and arguments."""
        tensors = {name: getattr(self, name) for name in self.used_buffers()}
        return tensors, {"name": class_name(self), "arguments": self.arguments}

    def load_state(self, tensors: dict[str, Tensor], _: dict[str, Any]) -> None:
        """Restore what `state` gave."""
        used = self.used_buffers()
        for name in {**used, **tensors}:
            if name not in used:
                raise Mistake(f"method.{printable(name)} is not what {class_name(self)} keeps")
            buffer, dtype = used[name], self.model.flat.dtype
            shape = self._shape(buffer)
            ours = ":" not in class_name(self)
            if not ours and not buffer.like and name in tensors:  # it may have changed its shape
                shape, dtype = tensors[name].shape, tensors[name].dtype
            value = saved_tensor(tensors, name, shape, dtype, whose="method.")
            if ours:
                check_finite(f"method.{name}", value)
            setattr(self, name, value.to(self._device(buffer)))

    def _device(self, buffer: Buffer) -> torch.device:
        return torch.device("cpu") if buffer.counts else self.model.flat.device
