"""The server's page in a real browser: ask, teach a class, choose a version."""

import os
import shutil
import socket
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import mdmt
from support.processes import soon

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
httpx = pytest.importorskip("httpx", reason="httpx is not installed")
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]
COLOURS = {"red": (200, 30, 30), "green": (30, 180, 30), "blue": (30, 30, 200)}


def images(colour, count, seed=0):
    noise = np.random.default_rng(seed).integers(-25, 25, (count, 8, 8, 3))
    return np.clip(np.array(COLOURS[colour]) + noise, 0, 255).astype(np.uint8)


@pytest.fixture
def address(tmp_path):
    """A server that learns, of a model that knows red and green."""
    model = mdmt.LivingModel(tmp_path / "model")
    x = np.concatenate([images("red", 30), images("green", 30)]).transpose(0, 3, 1, 2)
    model.learn((x, ["red"] * 30 + ["green"] * 30), name="first", epochs=4)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    command = [sys.executable, "-m", "mdmt", "serve", str(tmp_path / "model"), "--port", str(port)]
    environment = {**os.environ, "MDMT_TOKEN": "secret"}
    with subprocess.Popen([*command, "--learn"], env=environment) as process:
        try:

            def up():
                try:
                    return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
                except httpx.TransportError:
                    return False

            assert soon(up)
            yield f"http://127.0.0.1:{port}/"
        finally:
            process.terminate()


def saved(folder, colour, count):
    paths = []
    for number, pixels in enumerate(images(colour, count, seed=9)):
        paths.append(folder / f"{colour} {number}.png")
        Image.fromarray(pixels).save(paths[-1])
    return paths


def test_ask_teach_and_choose_a_version(address, tmp_path):
    troubles = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 390, "height": 800})
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.goto(address)
        page.wait_for_selector("#versions tr")
        page.set_input_files("#files", saved(tmp_path, "red", 1) + saved(tmp_path, "green", 1))
        page.wait_for_selector(".answer:nth-child(2)")
        found = page.locator(".answer").all_inner_texts()
        assert "red" in found[0]
        assert "green" in found[1]
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        page.fill("#label", "blue")
        page.set_input_files("#examples", saved(tmp_path, "blue", 12))
        page.click("#teach-button")
        page.wait_for_function("document.getElementById('job').textContent.includes('token')")
        page.fill("#token", "secret")
        page.click("#teach-button")
        page.wait_for_function("document.getElementById('about').textContent.includes('blue')")
        assert page.locator("#versions tr").count() == 2
        box = page.locator("#versions button").bounding_box()
        assert box["x"] + box["width"] <= 390  # in sight on a telephone
        page.locator("#versions button").click()  # back to version 1
        page.wait_for_function("!document.getElementById('about').textContent.includes('blue')")
        browser.close()
    assert troubles == []
