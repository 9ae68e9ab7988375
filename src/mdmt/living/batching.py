"""Requests that wait together are answered together: one pass of the network for many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Busy(Exception):
    """So many inputs wait already that a new one is refused."""


class Waiting(NamedTuple):
    """Inputs of one request, and where its answer goes."""

    inputs: Tensor
    answer: asyncio.Future[Any]


class Batcher:
    """Answers requests in batches: while one batch is computed, the next one gathers.

    `work` maps a tensor of inputs to a list of answers, in a thread of its own.
    """

    def __init__(
        self, work: Callable[[Tensor], list[Any]], *, largest: int = 64, limit: int = 1024
    ) -> None:
        self.work = work
        self.largest = largest  # inputs in a batch
        self.limit = limit  # inputs that may wait
        self.waiting: list[Waiting] = []
        self.count = 0
        self._arrived = asyncio.Event()

    async def ask(self, inputs: Tensor) -> list[Any]:
        """The answers for these inputs."""
        if self.count and self.count + len(inputs) > self.limit:
            raise Busy
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting.append(Waiting(inputs, answer))
        self.count += len(inputs)
        self._arrived.set()
        found: list[Any] = await answer
        return found

    async def run(self) -> None:
        """Answer batch after batch, until cancelled."""
        while True:
            await self._arrived.wait()
            batch = self._next()
            try:
                joined = torch.cat([one.inputs for one in batch])
                answers = await asyncio.to_thread(self.work, joined)
            except Exception as error:
                for one in batch:
                    if not one.answer.done():
                        one.answer.set_exception(error)
                continue
            for one in batch:
                mine, answers = answers[: len(one.inputs)], answers[len(one.inputs) :]
                if not one.answer.done():  # its client may have gone
                    one.answer.set_result(mine)

    def _next(self) -> list[Waiting]:
        """The requests of the next batch; at least one, whatever its size."""
        batch: list[Waiting] = []
        size = 0
        while self.waiting and (not batch or size + len(self.waiting[0].inputs) <= self.largest):
            batch.append(self.waiting.pop(0))
            size += len(batch[-1].inputs)
        self.count -= size
        if not self.waiting:
            self._arrived.clear()
        return batch
