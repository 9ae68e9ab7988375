"""A user's inputs and labels: DataFrames, lists, memory-mapped files."""

import datetime
import warnings
from decimal import Decimal

import numpy as np
import pytest
import scipy.sparse
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


@pytest.mark.parametrize(
    "labels",
    [
        [b"owl", b"kite"],
        np.array([b"owl", b"kite"]),
        [datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)],
        np.array(["2026-01-01", "2026-01-02"], "M8[D]"),
        [1j, 2j],
        np.array([1j, 2j]),
        [frozenset([1]), frozenset([2])],
        [Decimal(1), Decimal(2)],
        ["owl", "\ud800"],
        [("a", b"x"), ("a", b"y")],
        [1.0, float("inf")],
        [1, 2**64],
        [1, 10**5000],
    ],
    ids=range(13),
)
def test_labels_that_could_not_be_saved_are_refused_when_the_task_is_made(labels):
    assert "cannot be saved; use numbers or names" in mistake(Task, "a", X[:2], labels)
    with pytest.raises(mdmt.errors.Mistake, match=r"cannot be saved|not a number or a name"):
        Task.from_dataset("a", list(zip(np.array(X[:2]), labels, strict=True)))
    classes = labels if isinstance(labels, list) else labels.tolist()
    line = mistake(Task, "a", X[:2], ["x", "y"], classes=["x", "y", *classes])
    assert line.startswith("task 'a', classes: a label ")


@pytest.mark.parametrize(
    "labels", [[("a", 1), ("b", 2)], [True, False], [-1.5, 2.5], [2**64 - 1, 3], [1, "é"]]
)
def test_labels_that_are_learned_come_back(labels, tmp_path):
    learner = mdmt.Learner(mdmt.backbones.mlp(2, 4), "van")
    learner.learn(Task("a", X[:2], labels))
    learner.save(tmp_path)
    assert mdmt.Learner.load(tmp_path).classes() == learner.classes()


@pytest.mark.parametrize("name", ["\udc80", 3, None, b"a"])
def test_a_name_that_could_not_be_saved_is_refused(name):
    assert mistake(Task, name, X, Y).startswith(f"task name {name!r}: must be a text")
    assert "must be a text" in mistake(Task("a", X, Y).with_view, name, None)


@pytest.mark.parametrize(
    "x",
    [
        np.array(X, np.float32)[::-1].copy()[::-1],
        np.array(X, np.float32)[::-1, ::-1].copy()[::-1, ::-1],
        np.flip(np.array(X, np.float32)[::-1].copy(), 0),
        np.array(X, ">f4"),
        np.array(X, ">f8"),
        [np.array(row, ">f8") for row in X],
        [np.array(row)[::-1].copy()[::-1] for row in X],
    ],
)
def test_strides_and_orders_of_bytes_that_torch_does_not_take(x):
    assert Task("a", x, Y).train.inputs.tolist() == X
    learner = mdmt.Learner(mdmt.backbones.mlp(2, 4), "van")
    learner.learn(Task("a", X, Y))
    assert learner.predict(x) == learner.predict(X)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_sparse_matrices_are_one_line():
    for x, advice in (
        (scipy.sparse.csr_matrix(np.array(X)), "x.toarray()"),
        (scipy.sparse.coo_array(np.array(X)), "x.toarray()"),
        (torch.tensor(X).to_sparse(), "x.to_dense()"),
        (torch.tensor(X).to_sparse_csr(), "x.to_dense()"),
    ):
        line = mistake(Task, "a", x, Y)
        assert (
            line
            == f"task 'a', training examples: inputs are sparse; pass {advice}, or fewer columns"
        )


@pytest.mark.parametrize(
    "mean",
    [np.array([0.5, 1.5]), [0.5, 1.5], np.array([1.5, 0.5], ">f8")[::-1], torch.tensor([0.5, 1.5])],
)
def test_a_mean_may_be_an_array(mean, tmp_path):
    learner = mdmt.Learner(mdmt.backbones.mlp(2, 4), "van", mean=mean, scale=np.float32(2))
    learner.learn(Task("a", X, Y))
    learner.save(tmp_path)
    assert mdmt.Learner.load(tmp_path).model.mean.tolist() == [0.5, 1.5]
    assert mdmt.Stream("s", [Task("a", X, Y)], mean=mean).mean.tolist() == [0.5, 1.5]


@pytest.mark.parametrize("mean", ["x", np.array([1j]), [float("nan")], object(), [[1], [1, 2]]])
def test_a_mean_that_is_none_is_one_line(mean):
    line = "mean must be an array or a tensor of finite numbers"
    assert mistake(mdmt.Learner, mdmt.backbones.mlp(2, 4), mean=mean) == line
    assert mistake(mdmt.Stream, "s", [Task("a", X, Y)], mean=mean) == line


def test_a_mean_of_another_shape_is_one_line():
    learner = mdmt.Learner(mdmt.backbones.mlp(2, 4), mean=np.zeros(3))
    assert (
        mistake(learner.learn, Task("a", X, Y)) == "mean has shape (3,): one input has shape (2,)"
    )


@pytest.mark.parametrize("value", [-1, 2.5, True, "3"])
def test_outputs_are_a_whole_number(value):
    line = f"outputs={value!r}: must be a whole number, 0 or more"
    assert mistake(mdmt.Learner, mdmt.backbones.mlp(2, 4), outputs=value) == line
    assert mistake(mdmt.Stream, "s", [Task("a", X, Y)], outputs=value) == line


@pytest.mark.parametrize("value", [0, float("inf"), "3", True])
def test_the_scale_is_a_number(value):
    line = f"scale={value!r}: must be a finite number other than 0"
    assert mistake(mdmt.Learner, mdmt.backbones.mlp(2, 4), scale=value) == line
