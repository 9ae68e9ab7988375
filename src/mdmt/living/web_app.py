"""The web application of a server: its requests, and who may ask what."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import torch
import uvicorn
from fastapi import Depends, FastAPI, File, Form, HTTPException, Request, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from torch import Tensor
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mdmt.errors import Mistake
from mdmt.living.jobs import Jobs
from mdmt.living.model_folder import Version
from mdmt.living.requests import (
    Examples,
    Forget,
    Health,
    Inputs,
    Job,
    Name,
    Predictions,
    Refusal,
    To,
)
from mdmt.living.serving import How, Limits, Question, Serving
from mdmt.system.files import JsonObject
from mdmt.words import printable

HOST = "127.0.0.1"
LOCAL = ("127.0.0.1", "localhost", "::1")
PAGE = Path(__file__).parent / "serve_page.html"

Images = Annotated[list[UploadFile], File(min_length=1)]
Given = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]
Gate = Annotated[float | None, Form(ge=0, lt=1)]


def _refused(*codes: int) -> dict[int | str, JsonObject]:
    """The descriptions of answers that refuse; the first three may come from any request."""
    words = {
        401: "The token is missing or wrong.",
        403: "Unknown host.",
        413: "Too large.",
        400: "The body cannot be read.",
        404: "There is no such thing.",
        422: "The request does not fit the model.",
        503: "Too many requests; try again.",
    }
    return {
        code: {"description": words[code], "model": Refusal} for code in (401, 403, 413, *codes)
    }


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
    app.add_middleware(Door, serving=serving, hosts=(*LOCAL, "testserver") if local else None)
    app.add_exception_handler(RequestValidationError, _in_one_line)

    def allowed(given: Given) -> None:
        sent = "" if given is None else given.credentials
        if not token or not hmac.compare_digest(sent.encode(), token.encode()):
            raise HTTPException(
                401,
                "a token is missing or wrong: Authorization: Bearer TOKEN",
                {"WWW-Authenticate": "Bearer"},
            )

    guards = [] if local else [Depends(allowed)]
    _add_answers(app, serving, guards)
    _add_facts(app, serving, guards)
    if serving.jobs is not None:
        _add_lessons(app, serving, serving.jobs, [Depends(allowed)])
        _add_changes(app, serving, serving.jobs, [Depends(allowed)])
    _describe_inputs(app, serving)
    return app


class Door:
    """Lets requests in and counts them.

    It refuses bodies that are too large while they arrive, and other hosts' names: a page of
    another site could otherwise reach a server on this machine by a name that it makes point here.
    """

    def __init__(self, app: ASGIApp, serving: Serving, hosts: tuple[str, ...] | None) -> None:
        self.app = app
        self.serving = serving
        self.limit = serving.limits.bytes
        self.hosts = hosts  # None: any

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, counting the bytes of its body."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                path = getattr(scope.get("route"), "path", "other")
                self.serving.requests.labels(path, str(message["status"])).inc()
            await send(message)

        refusal = self._refusal(dict(scope["headers"]))
        app = self.app if refusal is None else refusal
        await app(scope, self._limited(receive), counted)

    def _refusal(self, headers: dict[bytes, bytes]) -> JSONResponse | None:
        host = headers.get(b"host", b"").decode("latin-1").rsplit(":", 1)[0].strip("[]")
        if self.hosts is not None and host not in self.hosts:
            return JSONResponse({"detail": "unknown host"}, 403)
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self.limit:
            return JSONResponse({"detail": "the request is too large"}, 413)
        return None

    def _limited(self, receive: Receive) -> Receive:
        count = 0

        async def limited() -> Message:
            nonlocal count
            message = await receive()
            count += len(message.get("body", b""))
            if count > self.limit:
                raise HTTPException(413, "the request is too large")
            return message

        return limited


async def _in_one_line(_: Request, error: Exception) -> JSONResponse:
    """The first thing that is wrong with a request."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or first["loc"][0]
    return JSONResponse({"detail": printable(f"{where}: {first['msg']}")}, 422)


def _describe_inputs(app: FastAPI, serving: Serving) -> None:
    """Say in the description of the server which shape its inputs have."""
    for name, schema in app.openapi()["components"]["schemas"].items():
        if name in (Inputs.__name__, Examples.__name__):
            schema["properties"]["inputs"]["items"] = serving.input_schema()


def _add_answers(app: FastAPI, serving: Serving, guards: list[Any]) -> None:
    more: JsonObject = {"dependencies": guards, "responses": _refused(400, 422, 503)}

    @app.post("/predict", response_model=Predictions, **more)
    async def predict(asked: Inputs) -> JSONResponse:
        """Answer for inputs given as numbers."""
        how = How(asked.task, asked.top, asked.reject)
        question = Question(serving.numbers(asked.inputs), how)
        return JSONResponse(await serving.predict(question))

    @app.post("/predict/images", response_model=Predictions, **more)
    async def predict_images(
        files: Images,
        task: Annotated[str | None, Form()] = None,
        top: Annotated[int, Form(ge=1, le=1000)] = 1,
        reject: Annotated[float, Form(ge=0, le=1)] = 0.0,
    ) -> JSONResponse:
        """Answer for uploaded images."""
        question = Question(await _read(serving, files), How(task, top, reject))
        return JSONResponse(await serving.predict(question))


async def _read(serving: Serving, files: list[UploadFile]) -> Tensor:
    return torch.cat(
        [await serving.image(await file.read(), file.filename or "image") for file in files]
    )


def _add_facts(app: FastAPI, serving: Serving, guards: list[Any]) -> None:
    more: JsonObject = {"dependencies": guards, "responses": _refused()}

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
    def versions() -> list[Version]:
        """The versions, with what each forgot."""
        return serving.model.versions

    @app.get("/health", responses=_refused())
    def health() -> Health:
        """Whether the server answers, and with which version."""
        return Health(status="ok", version=serving.snapshot.version)

    @app.get("/metrics", response_class=PlainTextResponse, **more)
    def metrics() -> str:
        """Counters for Prometheus."""
        return generate_latest(serving.registry).decode()


def _add_lessons(app: FastAPI, serving: Serving, jobs: Jobs, guards: list[Any]) -> None:
    accepted: JsonObject = {
        "dependencies": guards,
        "status_code": 202,
        "response_model": Job,
        "responses": _refused(400, 422),
    }

    @app.post("/learn", **accepted)
    def learn(given: Examples) -> JsonObject:
        """Learn examples given as numbers; the job is on the disk when this answers."""
        inputs = serving.numbers(given.inputs)
        if len(inputs) != len(given.labels):
            raise HTTPException(422, "there must be one label for each input")
        about = {"do": "learn", "name": given.name, "max_forgetting": given.max_forgetting}
        return jobs.add(about, (inputs.numpy(), list(given.labels)))

    @app.post("/learn/images", **accepted)
    async def learn_images(
        label: Annotated[Name, Form()],
        files: Images,
        name: Annotated[Name | None, Form()] = None,
        max_forgetting: Gate = None,
    ) -> JsonObject:
        """Learn uploaded images of one class."""
        inputs = await _read(serving, files)
        about = {"do": "learn", "name": name or label, "max_forgetting": max_forgetting}
        return await asyncio.to_thread(jobs.add, about, (inputs.numpy(), [label] * len(inputs)))


def _add_changes(app: FastAPI, serving: Serving, jobs: Jobs, guards: list[Any]) -> None:
    accepted: JsonObject = {"dependencies": guards, "status_code": 202, "response_model": Job}

    @app.post("/rollback", responses=_refused(400, 404, 422), **accepted)
    def rollback(to: To) -> JsonObject:
        """Use another version."""
        if to.version not in serving.model.versions_.numbers():
            raise HTTPException(404, f"there is no version {to.version}")
        return jobs.add({"do": "rollback", "to": to.version})

    @app.post("/forget", responses=_refused(400, 422), **accepted)
    def forget(what: Forget) -> JsonObject:
        """Forget classes or deliveries."""
        if not (what.classes or what.deliveries):
            raise HTTPException(422, "say what to forget: classes or deliveries")
        return jobs.add({"do": "forget", **what.model_dump()})

    @app.get("/jobs/{number}", dependencies=guards, responses=_refused(404, 422))
    def job(number: int) -> Job:
        """The state of a job: waiting, running, done or failed."""
        try:
            return Job(**jobs.read(number))
        except Mistake as error:
            raise HTTPException(404, str(error)) from None


class Connection(HttpToolsProtocol):
    """A connection that ends if an exchange takes too long, and at once if there are too many.

    Clients that send half a request, or do not read their answer, would otherwise hold all of them.
    """

    limits = Limits()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin_exchange()
        if len(self.connections) > 2 * self.limits.connections:
            transport.abort()

    def on_response_complete(self) -> None:
        self._deadline.cancel()
        self._begin_exchange()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)

    def _begin_exchange(self) -> None:
        self._deadline = self.loop.call_later(self.limits.exchange, self.transport.abort)


def make_server(
    serving: Serving, *, host: str = HOST, port: int, token: str | None = None
) -> uvicorn.Server:
    """The server of the web application, which is not started yet."""
    limits = serving.limits
    config = uvicorn.Config(
        make_app(serving, token=token, host=host),
        host=host,
        port=port,
        http=type("LimitedConnection", (Connection,), {"limits": limits}),
        log_level="warning",
        timeout_keep_alive=10,
        limit_concurrency=limits.connections,
        timeout_graceful_shutdown=10,
    )
    return uvicorn.Server(config)
