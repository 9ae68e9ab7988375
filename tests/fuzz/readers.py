"""Everything that reads what others wrote: files, folders and requests, each with whole examples.

A reader takes bytes and a folder of its own, and gives a value or raises one of `ALLOWED`; anything
else is a crash. `test_readers.py` tries some changed examples, `run.py` millions.
"""

import io
import json
import pickle
import shutil
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from PIL import Image
from safetensors.numpy import save

import mdmt
import mdmt.report.features as features
from mdmt.data.archives import unpack
from mdmt.data.cache import Description
from mdmt.data.images import decode
from mdmt.data.pickles import read_pickle
from mdmt.data.readers import pickle_entry, read_cub, read_idx
from mdmt.errors import Mistake
from mdmt.living.deliveries import read_delivery
from mdmt.living.questions import read_files
from mdmt.living.versions import Versions
from mdmt.network.first_weights import read_weights
from mdmt.runs.folder import RunFolder
from mdmt.runs.snapshots import Snapshots
from mdmt.runs.step_log import Step, StepLog
from mdmt.system.state import StateFolder
from support.deliveries import delivery
from support.run_folders import leave, snapshots

ALLOWED = (Mistake,)
Read = Callable[[bytes, Path], object]


@dataclass(frozen=True)
class Reader:
    """What reads bytes, and some that are whole."""

    examples: Callable[[], list[bytes]]
    read: Read
    allowed: tuple[type[Exception], ...] = ALLOWED
    slow: bool = False  # takes milliseconds


def attempt(name: str, data: bytes, folder: Path) -> bool:
    """Let a reader read; whether it could. A crash raises its error."""
    reader = READERS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            reader.read(data, folder)
        except reader.allowed as error:
            if "\n" in str(error):
                raise AssertionError(f"a message of several lines: {error}") from None
            return False
    return True


def written(name: str, use: Callable[[Path], object]) -> Read:
    """A reader of a file."""

    def read(data: bytes, folder: Path) -> object:
        path = folder / name
        path.write_bytes(data)
        return use(path)

    return read


# Run folders.


@cache
def run_folder() -> Path:
    return leave(_place() / "runs", "mdmt-r")


def _run_file(name: str) -> list[bytes]:
    return [(run_folder() / name).read_bytes()]


def _record(path: Path) -> None:
    json.dumps(RunFolder(path.parent).record.to_json(), allow_nan=False)


def _snapshots(data: bytes, _: Path) -> None:
    found = Snapshots.from_bytes(data)
    record = SimpleNamespace(tasks=[None] * 2)
    for heads in ("shared", "per-task"):
        run = SimpleNamespace(snapshots=found, record=record, config=SimpleNamespace(heads=heads))
        features.class_centres(run)
        features.groups_by_task(run)
        features.groups_by_time(run)
    for after in range(3):
        features.angles_to_own_centre(found, after)


def _points() -> list[bytes]:
    file = io.BytesIO()
    np.save(file, np.random.default_rng(1).normal(size=(7, 2)))
    return [file.getvalue()]


def _steps() -> list[bytes]:
    rows = [Step(1, number, 0.5, -1e-3, 2.0, 3.0) for number in range(1, 4)]
    return [StepLog(rows).to_csv().encode(), b"task,step,loss,gradient,seconds\n1,1,0.5,nan,0.1\n"]


# Saved learners and model folders. Their manifests are signed, or no change would be noticed.


@cache
def learner_folder() -> Path:
    learner = mdmt.Learner(
        mdmt.backbones.mlp(6, 4),
        mdmt.MDMTR(average=0.9, reference_batch=4),
        memory=mdmt.memory.Ring(2),
        optimiser="Adam",
    )
    draw = np.random.default_rng(0)
    tasks = []
    for name, classes in (("a", "pq"), ("b", "rs")):
        x = draw.random((12, 6)).astype(np.float32)
        tasks.append(mdmt.Task(name, x, list(classes * 6), test=(x, list(classes * 6))))
    learner.run(mdmt.Stream("s", tasks))
    learner.save(_place() / "learner")
    return _place() / "learner"


@cache
def model_folder() -> Path:
    model = mdmt.LivingModel(_place() / "model")
    model.learn(delivery("ab", count=10), "first", epochs=1, backbone="mlp")
    return _place() / "model"


def _manifest(folder: Path, name: str) -> list[bytes]:
    return [json.dumps(StateFolder(folder).open(name).rest).encode()]


def _json(data: bytes) -> dict:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise Mistake("not JSON") from None
    if not isinstance(content, dict):
        raise Mistake("not an object")
    return content


def _use_learner(folder: Path) -> None:
    learner = mdmt.Learner.load(folder)
    assert np.isfinite(learner.predict_proba(np.zeros((1, 6), np.float32))).all()


def _learner_manifest(data: bytes, folder: Path) -> None:
    rest = _json(data)
    saved = StateFolder(learner_folder()).open()
    parts = [(name, saved.part(name)) for name in saved.files]
    StateFolder(folder).write_as("state.json", parts, rest)
    _use_learner(folder)


def _learner_tensors(data: bytes, folder: Path) -> None:
    saved = StateFolder(learner_folder()).open()
    parts = {name: saved.part(name) for name in saved.files} | {"model": data}
    StateFolder(folder).write_as("state.json", parts.items(), saved.rest)
    _use_learner(folder)


def _version_manifest(data: bytes, folder: Path) -> None:
    rest = _json(data)
    saved = Versions(model_folder()).open(1)
    parts = [(name, saved.part(name)) for name in saved.files]
    StateFolder(folder).write_as("version-1.json", parts, rest)
    (folder / "current.json").write_text('{"version": 1, "last": 1}')
    model = mdmt.LivingModel(folder)
    model.info()
    _ = model.versions
    model.predict(np.zeros((1, 12), np.float32))


def _current(path: Path) -> None:
    versions = Versions(path.parent)
    (path.parent / "change.json").write_bytes(path.read_bytes())
    with versions.writing():
        _ = versions.current


def _weights(suffix: str) -> list[bytes]:
    file = io.BytesIO()
    if suffix == ".pt":
        torch.save({"a": torch.zeros(2), "b": torch.ones(3)}, file)
        return [file.getvalue()]
    return [save({"a": np.zeros(2, np.float32), "b": np.ones(3, np.float16)})]


# Data sets.


def _tar() -> list[bytes]:
    made = []
    for mode in ("w", "w:gz", "w:xz"):
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode=mode) as archive:
            for name in ("a/b.txt", "c" * 120, "d.txt"):
                info = tarfile.TarInfo(name)
                info.size = 20
                archive.addfile(info, io.BytesIO(b"x" * 20))
        made.append(file.getvalue())
    return made


def _zip() -> list[bytes]:
    made = []
    for how in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", how) as archive:
            archive.writestr("a/b.txt", b"x" * 50)
            archive.writestr("c.txt", b"y" * 50)
        made.append(file.getvalue())
    return made


def _idx() -> list[bytes]:
    import gzip

    images = (2051).to_bytes(4) + (2).to_bytes(4) + 2 * (28).to_bytes(4) + bytes(2 * 784)
    return [images, gzip.compress(images)]


def _pickles() -> list[bytes]:
    content = {b"data": np.arange(6, dtype=np.uint8).reshape(2, 3), b"fine_labels": [1, 2]}
    return [pickle.dumps(content, protocol) for protocol in range(3, 6)]


def _pickle(path: Path) -> None:
    pickle_entry(path, read_pickle(path), "fine_labels", list)


def _images() -> list[bytes]:
    made = []
    pixels = np.random.default_rng(0).integers(0, 255, (9, 9, 3), np.uint8)
    for kind, mode in (
        ("PNG", "RGB"),
        ("PNG", "P"),
        ("JPEG", "RGB"),
        ("GIF", "P"),
        ("BMP", "RGB"),
        ("TIFF", "RGB"),
        ("WEBP", "RGB"),
    ):
        file = io.BytesIO()
        Image.fromarray(pixels).convert(mode).save(file, kind)
        made.append(file.getvalue())
    return made


def _cub(data: bytes, folder: Path) -> None:
    content = {"images": data, "image_class_labels": b"1 1\n2 2\n", "classes": b"1 a\n2 b\n"}
    for name, lines in {**content, "train_test_split": b"1 1\n2 0\n"}.items():
        (folder / f"{name}.txt").write_bytes(lines)
    read_cub(folder)


def _description() -> list[bytes]:
    about = {"folder": "x", "size": 8, "checksums": [1, None], "enlarged": [0]}
    return [json.dumps({**about, "broken": {"1": "no image"}, "format": 2}).encode()]


# Deliveries and questions.


def _npz() -> list[bytes]:
    made = []
    for write in (np.savez, np.savez_compressed):
        file = io.BytesIO()
        write(file, x=np.zeros((4, 3), np.float32), y=np.array(["a", "b", "a", "b"]))
        made.append(file.getvalue())
    return made


def _npy() -> list[bytes]:
    made = []
    for array in (np.zeros((2, 3), np.float32), np.asfortranarray(np.ones((2, 3), ">f8"))):
        file = io.BytesIO()
        np.save(file, array)
        made.append(file.getvalue())
    return made


def _ask(path: Path) -> None:
    read_files([path], (3,), "torch.float32")


# Requests.


@cache
def image_folder() -> Path:
    """A model that reads images; they are so small that its network is an MLP."""
    x = np.random.default_rng(0).integers(0, 255, (20, 3, 7, 7), np.uint8)
    model = mdmt.LivingModel(_place() / "images")
    model.learn((x, ["a", "b"] * 10), "first", epochs=1)
    return _place() / "images"


@cache
def _client(folder: Path):
    """A client of a server that is running, until `clean` ends it."""
    from fastapi.testclient import TestClient

    from mdmt.living.serving import Serving
    from mdmt.living.web_app import make_app

    return _OPEN.enter_context(TestClient(make_app(Serving(mdmt.LivingModel(folder)))))


def _post(folder: Path, path: str, data: bytes, kind: str) -> None:
    """Send a body; an answer that blames the server is a crash."""
    answer = _client(folder).post(path, content=data, headers={"content-type": kind})
    if answer.status_code >= 500:
        raise AssertionError(f"status {answer.status_code}")
    if answer.status_code >= 400:
        raise Mistake("refused")


def _request(data: bytes, _: Path) -> None:
    _post(model_folder(), "/predict", data, "application/json")


def _upload(data: bytes, _: Path) -> None:
    _post(image_folder(), "/predict/images", data, "multipart/form-data; boundary=x")


def _requests() -> list[bytes]:
    return [
        json.dumps({"inputs": [[0.5] * 12], "task": None, "top": 2, "reject": 0.1}).encode(),
        json.dumps({"inputs": [[1] * 12, [2] * 12], "task": "first"}).encode(),
    ]


def _uploads() -> list[bytes]:
    head = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n'
    more = b'\r\n--x\r\nContent-Disposition: form-data; name="top"\r\n\r\n2\r\n--x--\r\n'
    return [head + _images()[0] + more]


@cache
def _place() -> Path:
    return Path(tempfile.mkdtemp(prefix="mdmt-fuzz-"))


_OPEN = ExitStack()  # servers


def clean() -> None:
    """End what was started, and remove what the examples were made from."""
    _OPEN.close()
    shutil.rmtree(_place(), ignore_errors=True)


READERS = {
    "config": Reader(
        lambda: _run_file("config.json"),
        written("config.json", lambda path: RunFolder(path.parent).config),
    ),
    "record": Reader(lambda: _run_file("record.json"), written("record.json", _record)),
    "steps": Reader(_steps, lambda data, _: StepLog.from_csv(data.decode(errors="replace"))),
    "snapshots": Reader(
        lambda: [save(snapshots(np.random.default_rng(0), 2, 3, 4, False))], _snapshots
    ),
    "points": Reader(_points, written("a.npy", lambda path: features._read_points(path, 7))),
    "learner-manifest": Reader(
        lambda: _manifest(learner_folder(), "state.json"), _learner_manifest, slow=True
    ),
    "learner-tensors": Reader(
        lambda: [StateFolder(learner_folder()).open().part("model")], _learner_tensors, slow=True
    ),
    "version-manifest": Reader(
        lambda: _manifest(model_folder(), "version-1.json"), _version_manifest, slow=True
    ),
    "current": Reader(
        lambda: [b'{"version": 1, "last": 3, "adding": 3, "removing": [2]}'],
        written("current.json", _current),
    ),
    "weights": Reader(
        lambda: _weights(".safetensors"), written("w.safetensors", lambda path: read_weights(path))
    ),
    "weights-pt": Reader(lambda: _weights(".pt"), written("w.pt", lambda path: read_weights(path))),
    "tar": Reader(_tar, written("a.tgz", lambda path: unpack(path, path.parent / "out", 10**6))),
    "zip": Reader(_zip, written("a.zip", lambda path: unpack(path, path.parent / "out", 10**6))),
    "idx": Reader(_idx, written("idx", lambda path: read_idx(path, (28, 28)))),
    "pickle": Reader(_pickles, written("train", _pickle)),
    "image": Reader(_images, lambda data, _: decode(io.BytesIO(data), 8, "image")),
    "cub": Reader(lambda: [b"1 a/b.jpg\n2 c/d.jpg\n"], _cub),
    "cache": Reader(
        _description, written("a.json", lambda path: Description.read(path)), (Mistake, ValueError)
    ),
    "csv": Reader(
        lambda: [b"x,c,z\n1,owl,2\n0.5,kite,-1e3\n", b'"x",c\n"1","a\nb"\n'],
        written("a.csv", lambda path: read_delivery(path, label="c")),
    ),
    "csv-question": Reader(lambda: [b"a,b,c\n1,2,3\n4,5,6\n"], written("a.csv", _ask)),
    "npz": Reader(_npz, written("a.npz", lambda path: read_delivery(path))),
    "npz-question": Reader(_npz, written("a.npz", _ask)),
    "npy": Reader(_npy, written("a.npy", _ask)),
    "request": Reader(_requests, _request, slow=True),
    "upload": Reader(_uploads, _upload, slow=True),
}
