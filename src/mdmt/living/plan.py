"""The arguments of `learn`, checked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import mdmt.living.defaults as defaults
from mdmt.benchmarks.folder import IMAGE_SIZE
from mdmt.errors import Mistake
from mdmt.system.files import JsonObject

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
# Settings of the network and the learner, which only the first delivery can choose.
FIXED = ("heads", "method", "backbone", "weights", "lr", "batch", "image_size", "seed")


@dataclass(frozen=True)
class Plan:
    """How a delivery is learned; None: as before, or the default for the first delivery."""

    memory: int | None = None  # bytes
    holdout: float | None = None
    max_forgetting: float | None = None
    heads: Any = None
    method: str | None = None
    backbone: str | None = None
    weights: str | None = None  # a file of first weights
    lr: float | None = None
    batch: int | None = None
    epochs: int | None = None
    image_size: int | None = None
    seed: int | None = None

    @classmethod
    def make(cls, memory: str | int | None, **settings: Any) -> Plan:
        """Check the arguments of `learn`."""
        unknown = [name for name in settings if name not in cls.__dataclass_fields__]
        if unknown:
            known = ", ".join(cls.__dataclass_fields__)
            raise Mistake(f"learn has no setting {unknown[0]!r}; settings: {known}")
        plan = cls(memory=None if memory is None else parse_bytes(memory), **settings)
        for name in ("holdout", "max_forgetting"):
            value = getattr(plan, name)
            if value is not None and not 0 <= value < 1:
                raise Mistake(f"{name}={value}: must be from 0 to below 1")
        return plan

    @property
    def size(self) -> int | None:
        """The size of images; None for the default, which is twice as large for ResNet-18.

        Its first layer halves them.
        """
        large = self.backbone == "resnet18" or (self.backbone is None and self.weights is not None)
        return self.image_size or (2 * IMAGE_SIZE if large else None)

    def after(self, living: JsonObject) -> Plan:
        """The plan for a model with such a manifest; refuse what cannot change any more."""
        if not living:
            return replace(
                self,
                memory=self.memory or defaults.MEMORY,
                holdout=defaults.HOLDOUT if self.holdout is None else self.holdout,
            )
        for name in FIXED:
            if getattr(self, name) is not None:
                raise Mistake(f"{name} is fixed since the first delivery: leave it out")
        return replace(
            self,
            memory=self.memory or living["budget"],
            holdout=living["holdout"] if self.holdout is None else self.holdout,
        )


def parse_bytes(text: str | int) -> int:
    """A number of bytes.

    >>> parse_bytes("50MB"), parse_bytes("1.5 kB"), parse_bytes(2000)
    (50000000, 1500, 2000)
    """
    plain = str(text).strip().upper().replace(" ", "")
    number = plain.rstrip("KMGB")
    try:
        value = float(number) * UNITS[plain[len(number) :]]
    except (ValueError, KeyError):
        value = -1.0
    if not 0 < value < 2**62:
        raise Mistake(f"memory={text!r}: must be a size such as 50MB")
    return int(value)
