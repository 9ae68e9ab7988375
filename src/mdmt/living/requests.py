"""The bodies of requests to a server, and of its answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

# A name ends up in files and on command lines, which have no room for control characters.
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Number = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class Asked(BaseModel):
    """A request; unknown fields and numbers given as text are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Inputs(Asked):
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


class Examples(Asked):
    """A delivery as numbers; all labels are texts, or all are numbers."""

    name: Name
    inputs: list[Any] = Field(min_length=1, max_length=100_000)
    labels: (
        Annotated[list[Name], Field(min_length=1, max_length=100_000)]
        | Annotated[list[Number], Field(min_length=1, max_length=100_000)]
    )
    max_forgetting: float | None = Field(None, ge=0, lt=1)


class To(Asked):
    """A version to use."""

    version: int = Field(ge=1)


class Forget(Asked):
    """Classes and deliveries to forget."""

    classes: list[Name | Number] = Field(default_factory=list, max_length=1000)
    deliveries: list[Name] = Field(default_factory=list, max_length=1000)


class Job(BaseModel):
    """A change of the model: what to do, its state, and what it did or why it failed."""

    model_config = ConfigDict(extra="allow")  # what the change is about

    job: int
    state: Literal["waiting", "running", "done", "failed"]
    do: Literal["learn", "rollback", "forget"]
    result: Any = None
    reason: str | None = None


class Health(BaseModel):
    """Which version answers."""

    status: Literal["ok"]
    version: int


class Refusal(BaseModel):
    """Why a request was refused, in one line."""

    detail: str
