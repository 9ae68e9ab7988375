"""A server for a model folder: answers, versions, and learning if it is allowed.

Answers come from an immutable snapshot of a version. A new version is loaded beside it and then
takes its place, so that no answer is mixed or lost. Requests are answered in batches.
"""

from __future__ import annotations

import asyncio
import hmac
import io
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from fastapi import Depends, FastAPI, File, Form, HTTPException, Request, UploadFile
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from torch import Tensor

from mdmt.errors import Mistake
from mdmt.living.answers import Answer, Answers
from mdmt.living.batching import Batcher, Busy
from mdmt.living.jobs import Jobs
from mdmt.living.model_folder import LivingModel
from mdmt.living.questions import as_image, as_model
from mdmt.living.requests import Answered, Examples, Forget, Inputs, Predictions, To
from mdmt.system.files import JsonObject

HOST = "127.0.0.1"
LOCAL = ("127.0.0.1", "localhost", "::1")
POLL = 0.5  # seconds between two looks at the current version
PAGE = Path(__file__).parent / "serve_page.html"


@dataclass(frozen=True)
class Limits:
    """What a request may take."""

    bytes: int = 20_000_000  # of a request's body
    pixels: int = 50_000_000  # of an image
    seconds: float = 30.0  # until an answer
    queue: int = 1024  # inputs that wait


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
        self.snapshot: Answers = self.model.answers()
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
            self.snapshot = self.model.answers()
            self.version.set(self.snapshot.version)

    def _watch(self) -> None:
        while not self._ending.wait(POLL):
            try:
                self.refresh()
            except (Mistake, OSError):
                continue  # the old version goes on answering

    def _answer(self, inputs: Tensor) -> list[tuple[Answers, Any]]:
        """All probabilities of each input, with the version that gave them."""
        snapshot = self.snapshot
        self.batch.observe(len(inputs))
        with snapshot.model.evaluating():
            scores = snapshot.model.scores(snapshot.model.embed(inputs))
        return [(snapshot, row) for row in scores]

    async def predict(self, inputs: Tensor, asked: Inputs) -> Predictions:
        """The answers for some inputs, all of one version."""
        begin = time.monotonic()
        try:
            async with asyncio.timeout(self.limits.seconds):
                pairs = await self.batcher.ask(inputs)
        except Busy:
            raise HTTPException(
                503, "too many requests are waiting", {"Retry-After": "1"}
            ) from None
        except TimeoutError:
            raise HTTPException(503, "no answer in time", {"Retry-After": "5"}) from None
        snapshot = pairs[0][0]
        scores = torch.stack([row for _, row in pairs])
        answers = snapshot.from_scores(scores, asked.task, top=asked.top, reject=asked.reject)
        self.seconds.observe(time.monotonic() - begin)
        return _predictions(snapshot.version, answers)

    # Reading requests.

    def image(self, data: bytes, name: str) -> Tensor:
        """An uploaded image as the model reads it."""
        from PIL import Image

        try:
            with Image.open(io.BytesIO(data)) as opened:
                pixels = opened.width * opened.height
        except Exception:
            raise HTTPException(422, f"{name!r} is not an image") from None
        if pixels > self.limits.pixels:
            raise HTTPException(413, f"{name!r} has {pixels:,} pixels: too many")
        try:
            return as_image(name, io.BytesIO(data), self.shape, self.kind)
        except Mistake as error:
            raise HTTPException(422, str(error)) from None

    def numbers(self, inputs: list[Any]) -> Tensor:
        """Inputs given as lists of numbers."""
        try:
            kind = np.uint8 if self.kind == "torch.uint8" else np.float32
            array = np.array(inputs, dtype=np.float64)
            if kind is np.uint8 and ((array < 0) | (array > 255) | (array % 1 != 0)).any():
                raise HTTPException(422, "pixels are whole numbers from 0 to 255")
            if not np.isfinite(array).all():
                raise HTTPException(422, "inputs must be finite numbers")
            return as_model("inputs", array.astype(kind), self.shape, self.kind)
        except (ValueError, TypeError, OverflowError) as error:
            message = str(error) if isinstance(error, Mistake) else "inputs are not numbers"
            raise HTTPException(422, message) from None


def _predictions(version: int, answers: list[Answer]) -> Predictions:
    return Predictions(
        version=version, predictions=[Answered(**asdict(answer)) for answer in answers]
    )


class BodyLimit:
    """Refuses request bodies that are too large while they arrive, and other hosts' names.

    A page of another site could otherwise reach a server on this machine by a name that it makes
    point here.
    """

    def __init__(self, app: ASGIApp, limit: int, hosts: tuple[str, ...] | None) -> None:
        self.app = app
        self.limit = limit
        self.hosts = hosts  # None: any

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, counting the bytes of its body."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").rsplit(":", 1)[0].strip("[]")
        if self.hosts is not None and host not in self.hosts:
            await JSONResponse({"detail": "unknown host"}, 403)(scope, receive, send)
            return
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self.limit:
            await JSONResponse({"detail": "the request is too large"}, 413)(scope, receive, send)
            return
        count = 0

        async def counted() -> Message:
            nonlocal count
            message = await receive()
            count += len(message.get("body", b""))
            if count > self.limit:
                raise HTTPException(413, "the request is too large")
            return message

        await self.app(scope, counted, send)


def make_app(serving: Serving, *, token: str | None = None, host: str = HOST) -> FastAPI:
    """The web application; on another address than this machine's own it needs a token."""
    local = host in LOCAL
    if not local and not token:
        raise Mistake(f"--host {host} is open to others: give a token, $MDMT_TOKEN")
    if serving.jobs is not None and not token:
        raise Mistake("--learn changes the model: give a token, $MDMT_TOKEN")

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        serving.start()
        answering = asyncio.create_task(serving.batcher.run())
        yield
        answering.cancel()
        serving.stop()

    app = FastAPI(title="mdmt", summary="A model that goes on learning.", lifespan=life)
    app.add_middleware(
        BodyLimit,
        limit=serving.limits.bytes,
        hosts=(*LOCAL, "testserver") if local else None,
    )

    def allowed(request: Request) -> None:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not token or not hmac.compare_digest(given.encode(), token.encode()):
            raise HTTPException(401, "a token is missing or wrong: Authorization: Bearer TOKEN")

    guards = [] if local else [Depends(allowed)]
    _count(app, serving)
    _add_answers(app, serving, guards)
    _add_facts(app, serving, guards)
    if serving.jobs is not None:
        _add_lessons(app, serving, serving.jobs, [Depends(allowed)])
        _add_changes(app, serving, serving.jobs, [Depends(allowed)])
    return app


def _count(app: FastAPI, serving: Serving) -> None:
    @app.middleware("http")
    async def count(request: Request, proceed: Any) -> Any:
        response = await proceed(request)
        route = request.scope.get("route")
        path = getattr(route, "path", "other")
        serving.requests.labels(path, str(response.status_code)).inc()
        return response


REFUSED: dict[int | str, JsonObject] = {
    401: {"description": "The token is missing or wrong."},
    403: {"description": "Unknown host."},
    413: {"description": "Too large."},
    422: {"description": "The inputs do not fit the model."},
    503: {"description": "Too many requests; try again."},
}


def _add_answers(app: FastAPI, serving: Serving, guards: list[Any]) -> None:
    more: JsonObject = {"dependencies": guards, "responses": REFUSED}

    @app.post("/predict", response_model=Predictions, **more)
    async def predict(asked: Inputs) -> Predictions:
        """Answer for inputs given as numbers."""
        _check_task(serving, asked.task)
        return await serving.predict(serving.numbers(asked.inputs), asked)

    @app.post("/predict/images", response_model=Predictions, **more)
    async def predict_images(
        files: Annotated[list[UploadFile], File()],
        task: Annotated[str | None, Form()] = None,
        top: Annotated[int, Form(ge=1, le=1000)] = 1,
        reject: Annotated[float, Form(ge=0, le=1)] = 0.0,
    ) -> Predictions:
        """Answer for uploaded images."""
        _check_task(serving, task)
        inputs = torch.cat([await _read(serving, file) for file in files])
        asked = Inputs(inputs=[0], task=task, top=top, reject=reject)
        return await serving.predict(inputs, asked)


async def _read(serving: Serving, file: UploadFile) -> Tensor:
    data = await file.read()
    return await asyncio.to_thread(serving.image, data, file.filename or "image")


def _check_task(serving: Serving, task: str | None) -> None:
    if task is not None:
        try:
            serving.snapshot.model.heads.number(task)
        except Mistake as error:
            raise HTTPException(422, str(error)) from None


def _add_facts(app: FastAPI, serving: Serving, guards: list[Any]) -> None:
    more: JsonObject = {"dependencies": guards, "responses": {401: REFUSED[401]}}

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    def page() -> str:
        return PAGE.read_text(encoding="utf-8")

    @app.get("/info", **more)
    def info() -> JsonObject:
        """What the model is, and what it keeps."""
        return {
            **serving.model.info(),
            "answers": serving.snapshot.version,
            "learns": bool(serving.jobs),
        }

    @app.get("/classes", **more)
    def classes() -> list[Any]:
        """The classes that the model knows."""
        return [label for _, label in serving.snapshot.predictor.classes()]

    @app.get("/versions", **more)
    def versions() -> list[JsonObject]:
        """The versions, with what each forgot."""
        return [asdict(version) for version in serving.model.versions]

    @app.get("/health")
    def health() -> JsonObject:
        """Whether the server answers, and with which version."""
        return {"status": "ok", "version": serving.snapshot.version}

    @app.get("/metrics", response_class=PlainTextResponse, **more)
    def metrics() -> str:
        """Counters for Prometheus."""
        return generate_latest(serving.registry).decode()


def _add_lessons(app: FastAPI, serving: Serving, jobs: Jobs, guards: list[Any]) -> None:
    accepted: JsonObject = {"dependencies": guards, "status_code": 202, "responses": REFUSED}

    @app.post("/learn", **accepted)
    def learn(given: Examples) -> JsonObject:
        """Learn examples given as numbers; the job is on the disk when this answers."""
        inputs = serving.numbers(given.inputs)
        if len(inputs) != len(given.labels):
            raise HTTPException(422, "there must be one label for each input")
        about = {"do": "learn", "name": given.name, "max_forgetting": given.max_forgetting}
        return jobs.add(about, (inputs.numpy(), given.labels))

    @app.post("/learn/images", **accepted)
    async def learn_images(
        label: Annotated[str, Form(min_length=1, max_length=200)],
        files: Annotated[list[UploadFile], File()],
        name: Annotated[str | None, Form(max_length=200)] = None,
        max_forgetting: Annotated[float | None, Form(ge=0, lt=1)] = None,
    ) -> JsonObject:
        """Learn uploaded images of one class."""
        inputs = torch.cat([await _read(serving, file) for file in files])
        about = {"do": "learn", "name": name or label, "max_forgetting": max_forgetting}
        return await asyncio.to_thread(jobs.add, about, (inputs.numpy(), [label] * len(inputs)))


def _add_changes(app: FastAPI, serving: Serving, jobs: Jobs, guards: list[Any]) -> None:
    accepted: JsonObject = {"dependencies": guards, "status_code": 202, "responses": REFUSED}

    @app.post("/rollback", **accepted)
    def rollback(to: To) -> JsonObject:
        """Use another version."""
        if to.version not in serving.model.versions_.numbers():
            raise HTTPException(422, f"there is no version {to.version}")
        return jobs.add({"do": "rollback", "to": to.version})

    @app.post("/forget", **accepted)
    def forget(what: Forget) -> JsonObject:
        """Forget classes or deliveries."""
        if not (what.classes or what.deliveries):
            raise HTTPException(422, "say what to forget: classes or deliveries")
        return jobs.add({"do": "forget", **what.model_dump()})

    @app.get(
        "/jobs/{number}", dependencies=guards, responses={404: {"description": "No such job."}}
    )
    def job(number: int) -> JsonObject:
        """The state of a job: waiting, running, done or failed."""
        try:
            return jobs.read(number)
        except Mistake as error:
            raise HTTPException(404, str(error)) from None


def serve(
    serving: Serving, *, host: str, port: int, token: str | None, ready: Callable[[str], None]
) -> None:
    """Serve until a signal."""
    import uvicorn

    app = make_app(serving, token=token, host=host)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        timeout_keep_alive=10,
        limit_concurrency=256,
        timeout_graceful_shutdown=10,
    )
    ready(f"http://{host}:{port}")
    uvicorn.Server(config).run()


def token_from_environment() -> str | None:
    """The token that callers must send, from $MDMT_TOKEN."""
    return os.environ.get("MDMT_TOKEN") or None
