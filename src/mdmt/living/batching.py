"""Requests that wait together are answered together: one pass of the network for many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, NamedTuple, TypeVar

Request = TypeVar("Request")


class Busy(Exception):
    """So many inputs wait already that a new one is refused."""


class Waiting(NamedTuple, Generic[Request]):
    """A request, the number of its inputs, and where its answer goes."""

    request: Request
    size: int
    answer: asyncio.Future[Any]


class Batcher(Generic[Request]):
    """Answers requests in batches: while one batch is computed, the next one gathers.

    `work` maps some requests to a list of answers, in a thread of its own; an answer that is an
    exception is raised for its request alone.
    """

    def __init__(
        self, work: Callable[[list[Request]], list[Any]], *, largest: int = 64, limit: int = 1024
    ) -> None:
        self.work = work
        self.largest = largest  # inputs in a batch
        self.limit = limit  # inputs that may wait
        self.waiting: list[Waiting[Request]] = []
        self.count = 0
        self._arrived = asyncio.Event()

    async def ask(self, request: Request, size: int) -> Any:
        """The answer to a request of so many inputs."""
        if self.count and self.count + size > self.limit:
            raise Busy
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting.append(Waiting(request, size, answer))
        self.count += size
        self._arrived.set()
        return await answer

    async def run(self) -> None:
        """Answer batch after batch, until cancelled."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as thread:
            while True:
                await self._arrived.wait()
                batch = self._next()
                requests = [one.request for one in batch]
                try:
                    answers = await loop.run_in_executor(thread, self.work, requests)
                except Exception as error:
                    answers = [error] * len(batch)
                for one, answer in zip(batch, answers, strict=True):
                    if one.answer.done():  # its client has gone
                        continue
                    if isinstance(answer, Exception):
                        one.answer.set_exception(answer)
                    else:
                        one.answer.set_result(answer)

    def _next(self) -> list[Waiting[Request]]:
        """The requests of the next batch; at least one, whatever its size."""
        batch: list[Waiting[Request]] = []
        size = 0
        while self.waiting and (not batch or size + self.waiting[0].size <= self.largest):
            batch.append(self.waiting.pop(0))
            size += batch[-1].size
        self.count -= size
        if not self.waiting:
            self._arrived.clear()
        return batch
