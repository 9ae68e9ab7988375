"""Model folders: answers, the start of `mdmt predict`, and serving, against the bare network.

    python bench/living.py [--only answers start serving]

About four minutes, one thread for each process. A server and its clients are processes of their own
(`clients.py`), so serving needs two cores. It writes results.json and docs/performance.md, like
`speed.py`, which measures the other parts.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import bare
import mdmt
from ours import examples
from timing import Peer, block_of, milliseconds, race, ratio

HERE = Path(__file__).parent
CLIENTS = 16
ROUNDS = 3
SECONDS = 8.0  # of a round of requests
REPLACED_SECONDS = 60.0
INPUTS = 64  # different requests
DIGITS, IMAGES = (784,), (3, 32, 32)
Row = dict[str, Any]


def model_of(shape: tuple[int, ...], folder: Path) -> mdmt.LivingModel:
    """A model of two versions, with its default network and ten classes; 1 is the current one."""
    model = mdmt.LivingModel(folder)
    for number in (1, 2):
        inputs, labels = examples(40, shape, 10, number)
        labels = [f"class {label}" for label in labels.tolist()]
        model.learn((inputs, labels), name=f"delivery {number}", epochs=1)
    model.rollback(1)
    return model


class Bare(nn.Module):
    """The same network as plain torch modules: pixels in, scores out."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        images = len(shape) == 3
        self.body = bare.BareResNet() if images else bare.mlp()
        self.head = nn.Linear(160 if images else 256, 10)
        if images:
            self.to(memory_format=torch.channels_last)
        self.eval()

    def forward(self, pixels: Tensor) -> Tensor:
        return self.head(self.body(pixels.float() / 255))


def in_batches(network: nn.Module, inputs: Tensor, size: int) -> None:
    with torch.inference_mode():
        for batch in inputs.split(size):
            network(batch)


def answers() -> Iterator[Row]:
    """A call for many inputs, against the bare forward pass in batches of the same size."""
    yield from calls("10,000 digits, MLP", *examples(10_000, DIGITS, 10, 5))
    yield from calls("500 images, reduced ResNet-18", *examples(500, IMAGES, 10, 5))


def calls(what: str, inputs: Tensor, _: Tensor) -> Iterator[Row]:
    shape = tuple(inputs.shape[1:])
    network = Bare(shape)
    with tempfile.TemporaryDirectory() as folder:
        model = model_of(shape, Path(folder) / "model")
        size = model.answers().model.chunks(inputs)[0].stop
        times = race(
            {
                "predict": block_of(lambda: model.predict(inputs)),
                "predict_proba": block_of(lambda: model.predict_proba(inputs)),
                "bare": block_of(lambda: in_batches(network, inputs, size)),
            },
            seconds=12,
        )
    for name in ("predict", "predict_proba"):
        over = ratio(times[name], times["bare"])
        yield {"row": f"{name}, {what}", "ms": milliseconds(times[name]), "over bare": over}


def start() -> Iterator[Row]:
    """CPU time of fresh processes, in turns; the fastest of each, for the disk's cache."""
    with tempfile.TemporaryDirectory() as folder:
        model_of(IMAGES, Path(folder) / "model")
        inputs, _ = examples(1, IMAGES, 10, 5)
        Image.fromarray(inputs[0].permute(1, 2, 0).numpy()).save(f"{folder}/image.png")
        commands = {
            "mdmt": ["-m", "mdmt", "predict", f"{folder}/model", f"{folder}/image.png"],
            "torch": ["-c", "import torch"],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(6):
            for name, command in commands.items():
                begin = children_seconds()
                subprocess.run([sys.executable, *command], check=True, capture_output=True)
                times[name].append(children_seconds() - begin)
    fastest = {name: min(values) for name, values in times.items()}
    yield {
        "row": "mdmt predict, one image, reduced ResNet-18",
        "ms": fastest["mdmt"] * 1e3,
        "over torch alone": fastest["mdmt"] / fastest["torch"],
    }


def children_seconds() -> float:
    """The CPU time of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# Serving.


@contextmanager
def server(folder: Path) -> Iterator[tuple[int, int]]:
    """The port and the process of `mdmt serve`, which ends with the block."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    command = [sys.executable, "-m", "mdmt", "serve", str(folder), "--port", str(port)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(600):
                try:
                    get(port, "/health")
                    break
                except ConnectionError:
                    time.sleep(0.1)
            yield port, process.pid
        finally:
            process.terminate()


def get(port: int, path: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path)
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def batches(port: int) -> tuple[float, float]:
    """How many inputs the server answered, in how many batches."""
    lines = (line.split() for line in get(port, "/metrics").splitlines() if line[0] != "#")
    found = {name: float(value) for name, value in lines}
    return found["mdmt_batch_size_sum"], found["mdmt_batch_size_count"]


def as_numbers(pixels: Tensor) -> bytes:
    body = json.dumps({"inputs": [pixels.tolist()]}).encode()
    return request("/predict", "application/json", body)


def as_image(pixels: Tensor) -> bytes:
    content = io.BytesIO()
    Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(content, "PNG")
    edge = b"--edge"
    about = b'\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n'
    body = edge + about + content.getvalue() + b"\r\n" + edge + b"--\r\n"
    return request("/predict/images", "multipart/form-data; boundary=edge", body)


def request(path: str, kind: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def write_requests(model: mdmt.LivingModel, inputs: Tensor, form: Any, file: Path) -> None:
    """Each input as a request, with the right answer of each version."""
    right = {v.number: model.answers(v.number).answers(inputs) for v in model.versions}
    items = [
        [
            base64.b64encode(form(inputs[i])).decode(),
            {v: [found[i].label, found[i].probability] for v, found in right.items()},
        ]
        for i in range(len(inputs))
    ]
    file.write_text(json.dumps(items))


def bare_seconds(
    network: nn.Module, inputs: Tensor, size: int, seconds: float
) -> tuple[float, float]:
    """Seconds of an input in the forward pass alone, by the wall clock and of CPU time."""
    in_batches(network, inputs[:size], size)
    count, begin, own = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - begin < seconds:
        in_batches(network, inputs[:size], size)
        count += size
    return (time.perf_counter() - begin) / count, (time.process_time() - own) / count


def serving(seconds: float = SECONDS, replaced: float = REPLACED_SECONDS) -> Iterator[Row]:
    """16 clients with one input a request; the last row while the model is replaced twice."""
    peer = Peer(Path(sys.executable), HERE / "clients.py")
    for what, shape, form, rounds in (
        ("images as files, reduced ResNet-18", IMAGES, as_image, ROUNDS),
        ("images as numbers, reduced ResNet-18", IMAGES, as_numbers, ROUNDS),
        ("digits as numbers, MLP", DIGITS, as_numbers, ROUNDS),
        (f"images as files, replaced twice in {replaced:.0f} s", IMAGES, as_image, 0),
    ):
        with tempfile.TemporaryDirectory() as folder:
            model = model_of(shape, Path(folder) / "model")
            inputs, _ = examples(INPUTS, shape, 10, 5)
            file = Path(folder) / "requests.json"
            write_requests(model, inputs, form, file)
            with server(Path(folder) / "model") as (port, pid):
                ask = {"port": port, "clients": CLIENTS, "file": str(file)}
                peer.ask(**ask, seconds=1.0)  # warms up
                if rounds:
                    row = compared(peer, ask, pid, inputs, rounds, seconds)
                    yield {"row": what, **row}
                else:
                    yield {"row": what, **while_replaced(peer, ask, model, replaced)}
    peer.close()


def compared(peer: Peer, ask: Row, pid: int, inputs: Tensor, rounds: int, seconds: float) -> Row:
    """Requests a second and CPU time, against the bare network in batches of the same size."""
    network = Bare(tuple(inputs.shape[1:]))
    found, shares, times, sizes = [], [], [], []
    for _ in range(rounds):
        before, cpu = batches(ask["port"]), cpu_seconds(pid)
        found.append(peer.ask(**ask, seconds=seconds))
        cpu = cpu_seconds(pid) - cpu
        count, number = (b - a for a, b in zip(before, batches(ask["port"]), strict=True))
        sizes.append(count / number)
        wall, own = bare_seconds(network, inputs, round(count / number), seconds / 4)
        shares.append(wall * len(found[-1]["seconds"]) / found[-1]["elapsed"])
        times.append(cpu / count / own)
    return {
        **measured(found),
        "inputs in a batch": statistics.median(sizes),
        "of the bare network's rate": statistics.median(shares),
        "CPU time over bare": statistics.median(times),
    }


def cpu_seconds(pid: int) -> float:
    """The CPU time of all threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def while_replaced(peer: Peer, ask: Row, model: mdmt.LivingModel, seconds: float) -> Row:
    """The same while another version becomes the current one, and back."""
    timers = [
        threading.Timer(seconds * part, model.rollback, (version,))
        for part, version in ((1 / 3, 2), (2 / 3, 1))
    ]
    for timer in timers:
        timer.start()
    found = peer.ask(**ask, seconds=seconds)
    for timer in timers:
        timer.join()
    if sorted(found["versions"]) != ["1", "2"]:
        raise RuntimeError(f"only these versions answered: {sorted(found['versions'])}")
    return measured([found])


def measured(found: list[Row]) -> Row:
    seconds = np.concatenate([one["seconds"] for one in found])
    middle, slow = np.percentile(seconds, [50, 99]).tolist()
    return {
        "requests/s": len(seconds) / sum(one["elapsed"] for one in found),
        "p50, ms": middle * 1e3,
        "p99 over p50": slow / middle,
        "failed": sum(one["failed"] for one in found),
        "mixed": sum(one["mixed"] for one in found),
    }


PARTS = {"answers": answers, "start": start, "serving": serving}

if __name__ == "__main__":
    import speed

    speed.main(default=list(PARTS))
