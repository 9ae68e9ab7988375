"""The bodies of requests to a server, and of its answers."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class Inputs(BaseModel):
    """Inputs as numbers, one list for each."""

    inputs: list[Any] = Field(min_length=1, max_length=10_000)
    task: str | None = None
    top: int = Field(1, ge=1, le=1000)
    reject: float = Field(0.0, ge=0, le=1)


class Answered(BaseModel):
    """The answer for one input."""

    label: Any  # null: unknown
    probability: float
    top: list[tuple[Any, float]]


class Predictions(BaseModel):
    """The answers of one version."""

    version: int
    predictions: list[Answered]


class Examples(BaseModel):
    """A delivery as numbers."""

    name: str = Field(min_length=1, max_length=200)
    inputs: list[Any] = Field(min_length=1, max_length=100_000)
    labels: list[str | int] = Field(min_length=1, max_length=100_000)
    max_forgetting: float | None = Field(None, ge=0, lt=1)


class To(BaseModel):
    """A version to use."""

    version: int = Field(ge=1)


class Forget(BaseModel):
    """Classes and deliveries to forget."""

    classes: list[str | int] = Field(default_factory=list, max_length=1000)
    deliveries: list[str] = Field(default_factory=list, max_length=1000)
