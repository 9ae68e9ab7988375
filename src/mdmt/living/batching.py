"""Requests that wait together are answered together: one pass of the network for many."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
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

    `work` maps some requests to a list of answers; an answer that is an exception is raised for its
    request alone. It runs in a thread that takes the next batch by itself, so that it does not wait
    for an event loop which is busy with requests.
    """

    def __init__(
        self, work: Callable[[list[Request]], list[Any]], *, largest: int = 64, limit: int = 1024
    ) -> None:
        self.work = work
        self.largest = largest  # inputs in a batch
        self.limit = limit  # inputs that may wait
        self.waiting: deque[Waiting[Request]] = deque()
        self.count = 0
        self._arrived = threading.Condition()
        self._ending = False

    async def ask(self, request: Request, size: int) -> Any:
        """The answer to a request of so many inputs."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        with self._arrived:
            if self.count and self.count + size > self.limit:
                raise Busy
            self.waiting.append(Waiting(request, size, answer))
            self.count += size
            self._arrived.notify()
        return await answer

    async def run(self) -> None:
        """Answer batch after batch, until cancelled."""
        loop = asyncio.get_running_loop()
        thread = threading.Thread(target=self._work, args=(loop,), daemon=True)
        self._ending = False
        thread.start()
        try:
            await loop.create_future()  # until cancelled
        finally:
            with self._arrived:
                self._ending = True
                self._arrived.notify()
            thread.join()

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while batch := self._next():
            try:
                answers = self.work([one.request for one in batch])
            except Exception as error:
                answers = [error] * len(batch)
            loop.call_soon_threadsafe(_give, batch, answers)

    def _next(self) -> list[Waiting[Request]]:
        """The requests of the next batch, at least one, whatever its size; none at the end."""
        batch: list[Waiting[Request]] = []
        size = 0
        with self._arrived:
            while not self.waiting and not self._ending:
                self._arrived.wait()
            if self._ending:
                return []
            while self.waiting and (not batch or size + self.waiting[0].size <= self.largest):
                batch.append(self.waiting.popleft())
                size += batch[-1].size
            self.count -= size
        return batch


def _give(batch: list[Waiting[Any]], answers: list[Any]) -> None:
    for one, answer in zip(batch, answers, strict=True):
        if one.answer.done():  # its client has gone
            continue
        if isinstance(answer, Exception):
            one.answer.set_exception(answer)
        else:
            one.answer.set_result(answer)
