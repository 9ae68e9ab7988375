"""A server for a model folder: answers, versions, and learning if it is allowed.

Answers come from an immutable snapshot of a version. A new version is loaded beside it and then
takes its place, so that no answer is mixed or lost. Requests are answered in batches.
"""

from __future__ import annotations

import asyncio
import io
import math
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from fastapi import HTTPException
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from torch import Tensor

from mdmt.backbones import folded
from mdmt.errors import Mistake
from mdmt.living.answers import Answer, Answers
from mdmt.living.batching import Batcher, Busy
from mdmt.living.jobs import Jobs
from mdmt.living.model_folder import LivingModel
from mdmt.living.questions import as_image, as_model
from mdmt.system.files import JsonObject

LARGEST = float(np.finfo(np.float32).max)
POLL = 0.5  # seconds between two looks at the current version
DECODED_AT_ONCE = 2**16  # pixels; a larger image is decoded by a thread, which costs its own time


@dataclass(frozen=True)
class Limits:
    """What a request may take."""

    bytes: int = 20_000_000  # of a request's body
    pixels: int = 50_000_000  # of an image
    seconds: float = 30.0  # until an answer
    queue: int = 1024  # inputs that wait
    connections: int = 256  # more are answered "busy", and twice as many are closed at once
    exchange: float = 90.0  # seconds from a connection, or an answer, until the next answer is read


class How(NamedTuple):
    """How a request wants to be answered."""

    task: str | None = None
    top: int = 1
    reject: float = 0.0

    def answers(self, snapshot: Answers, scores: Tensor) -> list[Answer]:
        """The answers to scores of the network."""
        return snapshot.from_scores(scores, self.task, top=self.top, reject=self.reject)


class Question(NamedTuple):
    """Inputs of one request."""

    inputs: Tensor
    how: How


class Serving:
    """The state of a server: the snapshot that answers, the batcher, the jobs, the counters."""

    def __init__(
        self,
        model: LivingModel,
        *,
        learn: bool = False,
        more: list[str] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.model = model
        self.limits = limits or Limits()
        self.snapshot = self._snapshot()
        self.shape = tuple(self.snapshot.model.input[0])
        self.kind = self.snapshot.model.input[1]
        self.batcher = Batcher(self._answer, limit=self.limits.queue)
        self.jobs = Jobs(model.versions_.path, more or []) if learn else None
        self.registry = CollectorRegistry()
        about = {"registry": self.registry}
        self.requests = Counter("mdmt_requests", "Requests.", ["path", "status"], **about)  # type: ignore[arg-type]
        self.seconds = Histogram("mdmt_predict_seconds", "Seconds until an answer.", **about)  # type: ignore[arg-type]
        self.batch = Histogram(
            "mdmt_batch_size",
            "Inputs in a batch.",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128),
            registry=self.registry,
        )
        self.version = Gauge("mdmt_version", "The version that answers.", **about)  # type: ignore[arg-type]
        self.version.set(self.snapshot.version)
        self._ending = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self._watcher.start()
        if self.jobs is not None:
            self.jobs.start()

    def stop(self) -> None:
        self._ending.set()
        if self.jobs is not None:
            self.jobs.stop()

    def refresh(self) -> None:
        """Load the current version if another one answers."""
        if self.model.version != self.snapshot.version:
            self.snapshot = self._snapshot()
            self.version.set(self.snapshot.version)

    def _snapshot(self) -> Answers:
        """The current version, with a network that answers faster."""
        snapshot = self.model.answers()
        snapshot.model.backbone = folded(snapshot.model.backbone)
        return snapshot

    def _watch(self) -> None:
        while not self._ending.wait(POLL):
            try:
                self.refresh()
            except (Mistake, OSError):
                continue  # the old version goes on answering

    def _answer(self, questions: list[Question]) -> list[JsonObject | HTTPException]:
        """The answers of one version to some questions, in one pass of the network."""
        snapshot = self.snapshot
        inputs = torch.cat([one.inputs for one in questions])
        self.batch.observe(len(inputs))
        with snapshot.model.evaluating():
            scores = snapshot.model.scores(snapshot.model.embed(inputs, to_answer=True))
        parts = scores.split([len(one.inputs) for one in questions])
        found: dict[int, JsonObject | HTTPException] = {}
        for how in {one.how for one in questions}:
            alike = [place for place, one in enumerate(questions) if one.how == how]
            try:
                answers = iter(how.answers(snapshot, torch.cat([parts[i] for i in alike])))
                found |= {i: _predictions(snapshot, answers, len(parts[i])) for i in alike}
            except Mistake as error:  # an unknown task
                found |= dict.fromkeys(alike, HTTPException(422, str(error)))
        return [found[place] for place in range(len(questions))]

    async def predict(self, question: Question) -> JsonObject:
        """The answers for some inputs, all of one version, in the form of `Predictions`."""
        begin = time.monotonic()
        try:
            async with asyncio.timeout(self.limits.seconds):
                answers: JsonObject = await self.batcher.ask(question, len(question.inputs))
        except Busy:
            raise HTTPException(
                503, "too many requests are waiting", {"Retry-After": "1"}
            ) from None
        except TimeoutError:
            raise HTTPException(503, "no answer in time", {"Retry-After": "5"}) from None
        self.seconds.observe(time.monotonic() - begin)
        return answers

    # Reading requests.

    async def image(self, data: bytes, name: str) -> Tensor:
        """An uploaded image as the model reads it."""
        pixels = self._pixels(data, name)
        if pixels <= DECODED_AT_ONCE:
            return self._decoded(data, name)
        return await asyncio.to_thread(self._decoded, data, name)

    def _pixels(self, data: bytes, name: str) -> int:
        """The number of pixels that an image says it has; too many are refused."""
        from PIL import Image

        try:
            with Image.open(io.BytesIO(data)) as opened:
                pixels: int = opened.width * opened.height
        except Exception:
            raise HTTPException(422, f"{name!r} is not an image") from None
        if pixels > self.limits.pixels:
            raise HTTPException(413, f"{name!r} has {pixels:,} pixels: too many")
        return pixels

    def _decoded(self, data: bytes, name: str) -> Tensor:
        try:
            return as_image(name, io.BytesIO(data), self.shape, self.kind)
        except Mistake as error:
            raise HTTPException(422, str(error)) from None

    def numbers(self, inputs: list[Any]) -> Tensor:
        """Inputs given as lists of numbers."""
        try:
            array = np.array(inputs)
        except (ValueError, OverflowError):  # lists of several lengths, numbers without end
            array = np.array(None)
        if array.dtype.kind not in "iuf":
            raise HTTPException(422, "inputs are not numbers, or not all of one shape")
        pixels = self.kind == "torch.uint8"
        if pixels and ((array < 0) | (array > 255) | (array % 1 != 0)).any():
            raise HTTPException(422, "pixels are whole numbers from 0 to 255")
        with np.errstate(over="ignore"):
            array = array.astype(np.uint8 if pixels else np.float32)
        if not np.isfinite(array).all():
            raise HTTPException(422, "inputs must be finite numbers")
        try:
            return as_model("inputs", array, self.shape, self.kind)
        except Mistake as error:
            raise HTTPException(422, str(error)) from None

    def input_schema(self) -> JsonObject:
        """One input, as JSON schema."""
        whole, largest = (True, 255) if self.kind == "torch.uint8" else (False, LARGEST)
        schema: JsonObject = {
            "type": "integer" if whole else "number",
            "minimum": 0 if whole else -largest,
            "maximum": largest,
        }
        for size in reversed(self.shape):
            schema = {"type": "array", "items": schema, "minItems": size, "maxItems": size}
        return schema


def _predictions(
    snapshot: Answers, answers: Iterator[Answer], count: int
) -> JsonObject | HTTPException:
    """The next answers, in the form of `Predictions`."""
    mine = [vars(answer) for answer in islice(answers, count)]
    if any(math.isnan(one["probability"]) for one in mine):
        return HTTPException(422, "the inputs are too large: the network overflows")
    return {"version": snapshot.version, "predictions": mine}


def token_from_environment() -> str | None:
    """The token that callers must send, from $MDMT_TOKEN."""
    return os.environ.get("MDMT_TOKEN") or None
