"""A server answers, is taught a new class over HTTP, and then knows it.

python examples/server_that_learns.py [FOLDER PORT]
"""

import os
import subprocess
import sys
import tempfile
import time

import httpx

import mdmt
from mdmt.benchmarks.digits import digits

flat, labels = digits().train.images.flatten(1), digits().train.labels
folder, port = sys.argv[1:] or (tempfile.mkdtemp(), "8000")
mdmt.LivingModel(folder).learn((flat[labels < 2], labels[labels < 2]), name="zeros and ones")
command = [sys.executable, "-m", "mdmt", "serve", folder, "--port", port, "--learn"]
with subprocess.Popen(command, env={**os.environ, "MDMT_TOKEN": "secret"}) as process:
    token = {"Authorization": "Bearer secret"}
    patient = httpx.HTTPTransport(retries=9)  # the server takes a moment to start
    server = httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=token, transport=patient)

    def ask():
        return [
            one["label"] for one in server.post("/predict", json=question).json()["predictions"]
        ]

    question = {"inputs": flat[labels == 7][-3:].tolist()}
    print("before:", ask())
    lesson = {"name": "sevens", "inputs": flat[labels == 7][:50].tolist(), "labels": [7] * 50}
    server.post("/learn", json=lesson)
    while server.get("/health").json()["version"] == 1:
        time.sleep(0.2)
    print("after:", ask())
    server.close()
    process.terminate()
