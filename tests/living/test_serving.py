"""The server: answers, limits, tokens, jobs that survive a crash, versions taken up while asked."""

import asyncio
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager, suppress

import numpy as np
import pytest
import torch
from PIL import Image

import mdmt
from mdmt.errors import Mistake
from support.deliveries import delivery
from support.processes import soon

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
testclient = pytest.importorskip("fastapi.testclient", reason="httpx is not installed")

from mdmt.living import web_app  # noqa: E402
from mdmt.living.batching import Batcher, Busy  # noqa: E402
from mdmt.living.jobs import Jobs  # noqa: E402
from mdmt.living.serving import How, Limits, Question, Serving  # noqa: E402
from mdmt.living.web_app import make_app, make_server  # noqa: E402

TOKEN = "a secret"
AUTH = {"Authorization": f"Bearer {TOKEN}"}


def vectors(folder, classes=("owl", "kite")):
    model = mdmt.LivingModel(folder)
    model.learn(delivery(classes), name="january")
    return model


def pictures(classes, count=6, seed=0):
    """Small images of one colour a class, with noise."""
    random = np.random.default_rng(seed)
    x, y = [], []
    for c in classes:
        colour = np.random.default_rng(sum(map(ord, c))).integers(40, 215, 3)[:, None, None]
        noise = random.integers(-30, 30, (count, 3, 8, 8))
        x.append(np.clip(colour + noise, 0, 255).astype(np.uint8))
        y += [c] * count
    return np.concatenate(x), y


def png(array):
    content = io.BytesIO()
    Image.fromarray(array.transpose(1, 2, 0)).save(content, "PNG")
    return content.getvalue()


@pytest.fixture
def client(tmp_path):
    """A function that opens the app of a model."""
    opened = []

    def open_(model, *, token=None, **more):
        app = make_app(Serving(model, **more), token=token)
        made = testclient.TestClient(app)
        made.__enter__()
        opened.append(made)
        return made

    yield open_
    for made in opened:
        made.__exit__(None, None, None)


def test_answers_are_those_of_the_model(client, tmp_path):
    model = vectors(tmp_path / "m")
    asked = client(model)
    x, _ = delivery(["owl", "kite"], seed=9)
    answer = asked.post("/predict", json={"inputs": x.tolist(), "top": 2}).json()
    assert answer["version"] == 1
    assert [one["label"] for one in answer["predictions"]] == model.predict(x)
    shares = model.predict_proba(x)
    given = [dict(map(tuple, one["top"])) for one in answer["predictions"]]
    assert np.allclose([[one[c] for c in model.classes] for one in given], shares, atol=1e-6)
    unknown = asked.post("/predict", json={"inputs": x[:1].tolist(), "reject": 1.0}).json()
    assert unknown["predictions"][0]["label"] in (None, "owl")


def test_questions_of_one_batch_are_answered_each_in_its_way(tmp_path):
    model = vectors(tmp_path / "m")
    serving = Serving(model)
    x = torch.tensor(delivery(["owl", "kite"], count=2, seed=9)[0])
    far = torch.full((1, 12), 3.4e38)

    async def ask():
        asked = asyncio.gather(
            *(
                serving.predict(Question(inputs, how))
                for inputs, how in (
                    (x[:1], How()),
                    (x, How(top=2)),
                    (x[3:], How(reject=1.1)),
                    (x[:1], How(task="nowhere")),
                    (far, How()),
                    (x[3:], How()),
                )
            ),
            return_exceptions=True,
        )
        answering = asyncio.create_task(serving.batcher.run())  # after all have asked
        found = await asked
        answering.cancel()
        return found

    one, all_, unknown, nowhere, too_large, last = asyncio.run(ask())
    assert serving.registry.get_sample_value("mdmt_batch_size_count") == 1
    assert [answer["label"] for answer in one["predictions"]] == ["owl"]
    assert [answer["label"] for answer in all_["predictions"]] == ["owl", "owl", "kite", "kite"]
    assert all(len(answer["top"]) == 2 for answer in all_["predictions"])
    assert [answer["label"] for answer in unknown["predictions"]] == [None]
    assert [answer["label"] for answer in last["predictions"]] == ["kite"]
    assert "nowhere" in nowhere.detail
    assert "overflows" in too_large.detail


def test_the_next_batch_does_not_wait_for_the_event_loop():
    second = threading.Event()

    def work(requests):
        if requests == ["second"]:
            second.set()
        return requests

    async def ask():
        batcher = Batcher(work, largest=1)
        asked = [asyncio.create_task(batcher.ask(name, 1)) for name in ("first", "second")]
        answering = asyncio.create_task(batcher.run())
        answers = await asyncio.gather(*asked[:1], _block_loop_until(second))
        answers.append(await asked[1])
        answering.cancel()
        return answers

    assert asyncio.run(ask()) == ["first", True, "second"]


async def _block_loop_until(event):
    return event.wait(10)


def test_a_batch_that_fails_and_a_client_that_left_disturb_no_other():
    def work(requests):
        if "bad" in requests:
            raise ValueError("bad")
        return [OSError("refused") if one == "refused" else one for one in requests]

    async def ask():
        batcher = Batcher(work, largest=2, limit=5)
        names = ("left", "good", "bad", "other", "refused")
        asked = [asyncio.create_task(batcher.ask(name, 1)) for name in names]
        too_many = asyncio.create_task(batcher.ask("one too many", 1))
        await asyncio.wait([too_many])
        asked[0].cancel()
        answering = asyncio.create_task(batcher.run())
        found = await asyncio.gather(*asked, too_many, return_exceptions=True)
        answering.cancel()
        return [one if isinstance(one, str) else type(one) for one in found]

    assert asyncio.run(ask()) == [
        asyncio.CancelledError, "good", ValueError, ValueError, OSError, Busy
    ]  # fmt: skip


def test_images_are_decoded_as_the_model_reads_them(client, tmp_path):
    model = mdmt.LivingModel(tmp_path / "m")
    x, y = pictures(["red", "blue"], 20)
    model.learn((x, y), name="colours", epochs=3)
    asked = client(model)
    files = [("files", ("a.png", png(x[0]))), ("files", ("b.png", png(x[-1])))]
    found = asked.post("/predict/images", files=files).json()["predictions"]
    assert [one["label"] for one in found] == model.predict(x[[0, -1]])
    large = png(x[-1].repeat(40, 1).repeat(40, 2))  # decoded by a thread
    (one,) = asked.post("/predict/images", files=[("files", ("c.png", large))]).json()[
        "predictions"
    ]
    assert one["label"] == model.predict(x[-1:])[0]
    answer = asked.post("/predict/images", files=[("files", ("a.txt", b"no image"))])
    assert answer.status_code == 422
    assert "not an image" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"inputs": [[1.0, 2.0]]}, "shape"),
        ({"inputs": [["a"] * 12]}, "not numbers"),
        ({"inputs": [["1"] * 12]}, "not numbers"),
        ({"inputs": [[1.0] * 12, [1.0]]}, "not all of one shape"),
        ({"inputs": [[1e300] * 12]}, "finite"),
        ({"inputs": [[3.4e38] * 12]}, "the network overflows"),
        ({"inputs": [[1.0] * 12], "task": "nowhere"}, "nowhere"),
        ({"inputs": [[1.0] * 12], "task": "\ud800"}, "task"),
        ({"inputs": []}, "inputs"),
        ({"inputs": [[1.0] * 12], "top": 0}, "top"),
        ({"inputs": [[1.0] * 12], "rejects": 0.5}, "rejects"),
        ({}, "inputs"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(client, tmp_path, body, words):
    asked = client(vectors(tmp_path / "m"))
    kind = {"Content-Type": "application/json"}
    answer = asked.post("/predict", content=json.dumps(body), headers=kind)
    assert answer.status_code == 422
    assert words in answer.json()["detail"]


def test_large_requests_and_other_hosts_are_refused(client, tmp_path):
    asked = client(vectors(tmp_path / "m"), limits=Limits(bytes=2000))
    assert asked.post("/predict", content=b"x" * 3000).status_code == 413

    def endless():
        for _ in range(10):
            yield b" " * 500

    assert asked.post("/predict", content=endless()).status_code in (400, 413)
    assert asked.get("/health", headers={"Host": "evil.example"}).status_code == 403


@contextmanager
def served(model, **limits):
    """A real server; yields a function that connects to it and sends some bytes."""
    server = make_server(Serving(model, limits=Limits(**limits)), port=0)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert soon(lambda: server.started)
        address = server.servers[0].sockets[0].getsockname()
        with ExitStack() as stack:

            def connect(sent=b""):
                made = stack.enter_context(socket.create_connection(address, 10))
                # A system with much memory would take a whole answer in for a client.
                made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                made.sendall(sent)
                return made

            yield connect
    finally:
        server.should_exit = True
        thread.join()


HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def test_clients_that_send_half_a_request_are_left(tmp_path):
    body = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"
    with served(vectors(tmp_path / "m"), exchange=0.2) as connect:
        for sent in (b"", HEALTH[:-4], body):
            slow = connect(sent)
            with suppress(ConnectionResetError):
                assert slow.recv(100) == b""  # before, this waited for ever
        again = connect(HEALTH.replace(b"close", b"keep-alive"))
        assert b"200 OK" in again.recv(1000)
        again.sendall(HEALTH[:-4])
        with suppress(ConnectionResetError):
            while again.recv(1000):
                pass


def test_a_client_that_does_not_read_its_answer_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(web_app, "PAGE", tmp_path / "page.html")
    web_app.PAGE.write_text("x" * 2 * 10**7)
    with served(vectors(tmp_path / "m"), connections=2, exchange=0.3) as connect:
        connect(HEALTH.replace(b"/health", b"/"))
        assert b"503 Service Unavailable" in connect(HEALTH).recv(1000)
        assert soon(lambda: b"200 OK" in connect(HEALTH).recv(1000), 20)


def test_connections_have_a_limit(tmp_path):
    with served(vectors(tmp_path / "m"), connections=3) as connect:
        idle = [connect() for _ in range(2)]
        assert b"503 Service Unavailable" in connect(HEALTH).recv(1000)
        idle += [connect() for _ in range(4)]
        with suppress(ConnectionError):
            assert connect(HEALTH).recv(1000) == b""
        for one in idle:
            one.close()
        assert soon(lambda: b"200 OK" in connect(HEALTH).recv(1000), 20)


def test_facts_and_counters(client, tmp_path):
    asked = client(vectors(tmp_path / "m"))
    assert asked.get("/health").json() == {"status": "ok", "version": 1}
    assert sorted(asked.get("/classes").json()) == ["kite", "owl"]
    assert asked.get("/versions").json()[0]["change"] == "learned january"
    assert asked.get("/info").json()["learns"] is False
    asked.post("/predict", json={"inputs": [[0.0] * 12]})
    assert 'mdmt_requests_total{path="/predict",status="200"} 1.0' in asked.get("/metrics").text
    assert "/predict" in asked.get("/openapi.json").json()["paths"]
    assert "Drop images" in asked.get("/").text
    assert asked.post("/learn", json={}).status_code == 404


def test_changes_need_a_token(tmp_path, client):
    model = vectors(tmp_path / "m")
    with pytest.raises(Mistake, match="token"):
        make_app(Serving(model, learn=True))
    with pytest.raises(Mistake, match="token"):
        make_app(Serving(model), host="0.0.0.0")
    asked = client(model, token=TOKEN, learn=True)
    x, y = delivery(["robin"])
    body = {"name": "february", "inputs": x.tolist(), "labels": y}
    assert asked.post("/learn", json=body).status_code == 401
    wrong = {"Authorization": "Bearer no"}
    assert asked.post("/learn", json=body, headers=wrong).status_code == 401
    assert asked.get("/jobs/1", headers=AUTH).status_code == 404


def test_learning_rolling_back_and_forgetting_while_answering(tmp_path, client):
    asked = client(vectors(tmp_path / "m"), token=TOKEN, learn=True)
    x, y = delivery(["robin"])

    def finished(answer):
        assert answer.status_code == 202
        number = answer.json()["job"]
        over = soon(
            lambda: (
                (job := asked.get(f"/jobs/{number}", headers=AUTH).json())["state"]
                in ("done", "failed")
                and job
            ),
            180,
        )
        assert over["state"] == "done", over
        return over

    body = {"name": "february", "inputs": x.tolist(), "labels": y}
    job = finished(asked.post("/learn", json=body, headers=AUTH))
    assert job["result"]["version"] == 2
    assert soon(lambda: asked.get("/health").json()["version"] == 2)
    assert asked.post("/predict", json={"inputs": x[:1].tolist()}).json()["version"] == 2
    finished(asked.post("/rollback", json={"version": 1}, headers=AUTH))
    assert soon(lambda: asked.get("/health").json()["version"] == 1)
    finished(asked.post("/rollback", json={"version": 2}, headers=AUTH))
    finished(asked.post("/forget", json={"classes": ["robin"]}, headers=AUTH))
    assert soon(lambda: sorted(asked.get("/classes").json()) == ["kite", "owl"])
    assert not list((tmp_path / "m" / "jobs").rglob("*.npz"))


def test_a_job_that_cannot_start_does_not_stop_the_others(tmp_path):
    vectors(tmp_path / "m")
    jobs = Jobs(tmp_path / "m", [])
    jobs.add({"do": "forget", "classes": ["a\0b"], "deliveries": []})
    jobs.add({"do": "rollback", "to": 1})
    jobs.start()
    assert soon(lambda: jobs.read(2)["state"] == "done", 180)
    assert "null byte" in jobs.read(1)["reason"]
    jobs.stop()


def test_labels_are_all_texts_or_all_numbers(client, tmp_path):
    asked = client(vectors(tmp_path / "m"), token=TOKEN, learn=True)
    for labels in (["owl", 3], [2**63, 1], ["a\0b"] * 2):
        body = {"name": "february", "inputs": [[0.0] * 12] * 2, "labels": labels}
        assert asked.post("/learn", json=body, headers=AUTH).status_code == 422


def port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.mark.long
def test_an_acknowledged_job_survives_a_kill(tmp_path):
    import httpx

    vectors(tmp_path / "m")
    number = port()
    command = [sys.executable, "-m", "mdmt", "serve", str(tmp_path / "m"), "--port", str(number)]
    environment = {**os.environ, "MDMT_TOKEN": TOKEN}
    address = f"http://127.0.0.1:{number}"

    def start():
        process = subprocess.Popen([*command, "--learn"], env=environment)

        def up():
            try:
                return httpx.get(f"{address}/health").status_code == 200
            except httpx.TransportError:
                return False

        assert soon(up)
        return process

    x, y = delivery(["robin"])
    body = {"name": "february", "inputs": x.tolist(), "labels": y}
    process = start()
    assert httpx.post(f"{address}/learn", json=body, headers=AUTH).status_code == 202
    process.send_signal(signal.SIGKILL)
    process.wait()
    process = start()
    try:
        assert soon(lambda: httpx.get(f"{address}/health").json()["version"] == 2, 180)
        assert httpx.get(f"{address}/jobs/1", headers=AUTH).json()["state"] in ("running", "done")
    finally:
        process.terminate()
        process.wait()
