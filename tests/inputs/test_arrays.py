"""A user's inputs and labels: DataFrames, lists, memory-mapped files."""

import warnings

import numpy as np
import pytest
import torch
from PIL import Image

import mdmt
import mdmt.inputs.maps as maps
from mdmt import Task
from support.helpers import mistake

X = [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
Y = ["owl", "kite", "owl"]


def test_float64_lists_and_lists_of_arrays_tensors_and_images():
    for x in (
        X,
        np.array(X),
        [np.array(row) for row in X],
        [torch.tensor(row, dtype=torch.float64) for row in X],
        [[0, 1], [2, 3], [4, 5]],
        [tuple(row) for row in X],
    ):
        inputs = Task("a", x, Y).train.inputs
        assert (inputs.dtype, inputs.tolist()) == (torch.float32, X)
    images = Task("a", [Image.new("RGB", (5, 4), (1, 2, 3))] * 3, tuple(Y)).train.inputs
    assert (images.shape, images.dtype) == ((3, 3, 4, 5), torch.uint8)
    learner = mdmt.Learner(mdmt.backbones.mlp(2, 4), mdmt.VAN())
    learner.learn(Task("a", X, Y))
    assert len(learner.predict(X)) == len(learner.predict(np.array(X))) == 3


def test_frames_and_series():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"a": [0.0, 2.0, 4.0], "b": [1, 3, 5], "bird": Y}, index=[7, 8, 9])
    for y in (frame["bird"], frame["bird"].astype("category"), frame["bird"].astype("string")):
        task = Task("a", frame[["a", "b"]], y, test=(frame[["a", "b"]], frame["bird"]))
        assert (task.classes, task.train.labels.tolist()) == (("kite", "owl"), [1, 0, 1])
        assert (task.train.inputs.dtype, task.train.inputs.tolist()) == (torch.float32, X)
    # Whole numbers of a table are numbers.
    assert Task("a", frame[["b"]], frame["b"]).classes == (
        1,
        3,
        5,
    )
    learner = mdmt.Learner(mdmt.backbones.mlp(2, 4), mdmt.VAN())
    learner.learn(task)
    assert len(learner.predict(frame[["a", "b"]])) == 3
    assert "column 'bird' holds text" in mistake(Task, "a", frame, Y)
    frame.loc[8, "b"] = None
    assert "example 1 has NaN" in mistake(Task, "a", frame[["a", "b"]], Y)
    frame.loc[8, "bird"] = None
    assert "example 1 has no label" in mistake(Task, "a", X, frame["bird"])


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X, ["owl", None, "owl"], "training examples: example 1 has no label (None)"),
        (X, np.array(["owl", "owl", None], object), "example 2 has no label (None)"),
        (X, [1.0, 2.0, float("nan")], "example 2 has no label (nan)"),
        (X, np.array([1.0, np.nan, 2.0]), "example 1 has no label (nan)"),
        ([[1.0], [2.0, 3.0], [4.0]], Y, "inputs differ in shape"),
        ([np.zeros(2), np.zeros(3), np.zeros(2)], Y, "input 1 has shape (3,)"),
        ([["a"], ["b"], ["c"]], Y, "inputs are not numbers"),
        (["a.jpg", "b.jpg", "c.jpg"], Y, "inputs are not numbers"),
        ("photos", Y, "cannot read inputs of type str; pass an array, tensor, DataFrame or list"),
        (None, Y, "cannot read inputs of type NoneType"),
        (X, None, "cannot read labels of type NoneType"),
        (X, "owl", "cannot read labels of type str"),
    ],
)
def test_mistakes_are_named(x, y, message):
    assert message in mistake(Task, "a", x, y)


def test_a_read_only_array_gives_no_warning():
    x = np.array(X, np.float32)
    x.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Task("a", x, Y).train.inputs.tolist() == X


def pages_of(file):
    """The bytes of a mapped file that are in memory."""
    with open("/proc/self/smaps") as lines:
        found = 0
        inside = False
        for line in lines:
            if "-" in line.split()[0]:
                inside = line.rstrip().endswith(str(file))
            elif inside and line.startswith("Rss:"):
                found += int(line.split()[1]) * 1024
        return found


@pytest.mark.parametrize("kind", ["cache", "memmap"])
def test_pages_of_mapped_files_are_given_back(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(maps, "BUDGET", 2**20)
    content = np.random.default_rng(0).integers(0, 255, (2000, 4096), np.uint8)
    file = tmp_path / "pixels.u8"
    content.tofile(file)
    if kind == "cache":
        x = maps.map_file(file, content.size).view(2000, 4096)
    else:
        x = np.memmap(file, np.uint8, "r", shape=(2000, 4096))
    task = Task("a", x, np.arange(2000) % 2)
    most = 0
    for start in range(0, 2000, 50):
        index = torch.arange(start, start + 50)
        assert np.array_equal(task.inputs("train", index).numpy(), content[start : start + 50])
        most = max(most, pages_of(file))
    assert 0 < most < 6 * 2**20
    assert np.array_equal(task.inputs("train", torch.arange(2000)).numpy(), content)


def test_a_persons_own_writes_to_a_private_map_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(maps, "BUDGET", 1)
    np.zeros((4, 8), np.uint8).tofile(tmp_path / "a")
    x = np.memmap(tmp_path / "a", np.uint8, "c", shape=(4, 8))
    x[:] = 7
    task = Task("a", x, [0, 1, 0, 1])
    for _ in range(3):
        assert task.inputs("train", torch.arange(4)).float().mean() == 7
