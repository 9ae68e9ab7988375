"""Publishers of small data sets: their files, and a server on this machine that misbehaves when
asked to.
"""

import gzip
import hashlib
import http.server
import io
import pickle
import re
import struct
import tarfile
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mdmt.data.fetch import fetch
from mdmt.data.sources import SOURCES, locate

PIXEL = b"\xff\xd8 a very small picture \xff\xd9"


def idx(train=6, test=4, classes=2):
    files = {}
    for stem, count in (("train", train), ("t10k", test)):
        pixels = np.random.RandomState(count).randint(0, 256, count * 784, np.uint8).tobytes()
        labels = bytes(i % classes for i in range(count))
        files[f"{stem}-images-idx3-ubyte.gz"] = struct.pack(">IIII", 2051, count, 28, 28) + pixels
        files[f"{stem}-labels-idx1-ubyte.gz"] = struct.pack(">II", 2049, count) + labels
    return {name: gzip.compress(data, mtime=0) for name, data in files.items()}


def cifar(train=6, test=4, classes=2):
    files = {"meta": {b"fine_label_names": [b"cat", b"dog"]}}
    for split, count in (("train", train), ("test", test)):
        labels = [i % classes for i in range(count)]
        files[split] = {b"data": np.full((count, 3072), 7, np.uint8), b"fine_labels": labels}
    return {
        f"cifar-100-python/{name}": pickle.dumps(content, protocol=3)
        for name, content in files.items()
    }


def cub():
    names = [f"{c}/bird_{i}.jpg" for c in ("001.Crow", "002.Jay") for i in range(5)]
    lines = {
        "images.txt": names,
        "image_class_labels.txt": [1 + (i > 4) for i in range(10)],
        "train_test_split.txt": [int(i % 5 < 3) for i in range(10)],
        "classes.txt": ["001.Crow", "002.Jay"],
    }
    files = {
        name: "".join(f"{i} {v}\n" for i, v in enumerate(rows, 1)).encode()
        for name, rows in lines.items()
    }
    files |= {f"images/{name}": PIXEL for name in names}
    return {f"CUB_200_2011/{name}": data for name, data in files.items()} | {
        "attributes.txt": b"not in the folder"
    }


def awa2(each=10):
    files = {"classes.txt": b"       1\tbear\n       2\tkiller+whale\n"}
    for c in ("bear", "killer+whale"):
        files |= {f"JPEGImages/{c}/{c}_{10001 + i}.jpg": PIXEL for i in range(each)}
    return {f"Animals_with_Attributes2/{name}": data for name, data in files.items()}


def tar(files, extra=()):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for member in extra:
            archive.addfile(member, io.BytesIO(b"x" * member.size))
    return out.getvalue()


def zipped(files, extra=(), how=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", how) as archive:
        for name, data in [*files.items(), *extra]:
            archive.writestr(name, data)
    return out.getvalue()


SMALL = {
    "mnist": (idx, None, {"train": 6, "test": 4, "classes": 2}),
    "fashion-mnist": (idx, None, {"train": 6, "test": 4, "classes": 2}),
    "cifar100": (cifar, tar, {"train": 6, "test": 4, "classes": 2}),
    "cub": (cub, tar, {"train": 6, "test": 4, "classes": 2}),
    "awa2": (awa2, zipped, {"train": 14, "validation": 4, "test": 2, "classes": 2}),
}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def do_GET(self):
        server = self.server
        name = self.path.lstrip("/")
        server.asked.append((name, self.headers.get("Range")))
        how = server.trouble.pop(0) if server.trouble else None
        if how == "404" or name.removeprefix("moved/") not in server.files:
            self.send_error(404)
        elif isinstance(how, tuple):
            self.send_response(302)
            self.send_header("Location", how[1])
            self.end_headers()
        else:
            self.answer(server.files[name.removeprefix("moved/")], how)

    def answer(self, data, how):
        start = 0
        if (wanted := self.headers.get("Range")) and how != "no ranges":
            start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])
            if start >= len(data):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            self.send_response(200)
        data = bytes(len(data)) if how == "other bytes" else data
        body = data[start:]
        if (how or "").startswith("nothing"):
            body = b""
        if how not in ("no length", "nothing, no length"):
            self.send_header("Content-Length", str(len(body) + (5 if how == "wrong length" else 0)))
        self.end_headers()
        self.wfile.write(
            body[: len(body) // 2] if how == "break" else body + b"more" * (how == "no length")
        )

    def log_message(self, *_):
        pass


def left(folder):
    return sorted(str(p.relative_to(folder)) for p in Path(folder).rglob("*") if p.is_file())


def fails(name, folder, server):
    """The one line of a fetch that fails, after which the data set is not there."""
    with pytest.raises(ValueError) as caught:
        fetch(name, folder, base=server.url)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="is not in"):
        locate(name, folder)
    assert not (folder / SOURCES[name].folders[0]).exists()
    return str(caught.value)


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.files, server.trouble, server.asked = {}, [], []
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def publish(monkeypatch, server):
    """Put a small data set on the server, and its sizes and checksums into the registry."""

    def publish(name, content=None):
        files, pack, counts = SMALL[name]
        source = SOURCES[name]
        given = files() if pack is None else {source.files[0].name: pack(files())}
        given = given if content is None else {source.files[0].name: content}
        changed = tuple(
            replace(
                f,
                size=len(given[f.name]),
                exact=True,
                sha256=None,
                md5=hashlib.md5(given[f.name]).hexdigest(),
            )
            for f in source.files
        )
        made = replace(
            source,
            files=changed,
            counts=counts,
            part_md5={},
            max_bytes=100_000,
            folders=source.folders[:1],
        )
        monkeypatch.setitem(SOURCES, name, made)
        server.files |= given
        return given

    return publish
