"""Tasks made from a user's data, and the one-line messages for wrong data."""

import numpy as np
import pytest
import torch

from mdmt import Stream, Task
from mdmt.tasks import Permutation, RowView
from support.helpers import mistake

X = np.zeros((4, 3), np.float32)


def test_names_and_numbers_as_classes():
    assert Task("a", X, np.array([3, 1, 3, 2])).classes == (1, 2, 3)
    assert Task("a", X, torch.tensor([3, 1, 3, 2])).train.labels.tolist() == [2, 0, 2, 1]
    named = Task("a", X, ["owl", "kite", "owl", "owl"], classes=["owl", "kite"])
    assert named.train.labels.tolist() == [0, 1, 0, 0]


def test_inputs_stay_what_they_are():
    pixels = torch.randint(0, 255, (4, 3), dtype=torch.uint8)
    task = Task("a", pixels, [0, 1, 0, 1])
    assert task.train.inputs.data_ptr() == pixels.data_ptr()
    assert Task("a", X.astype(np.float64), [0, 1, 0, 1]).train.inputs.dtype == torch.float32


@pytest.mark.parametrize(
    ("x", "y", "more", "message"),
    [
        (X[:0], [], {}, "task 'a' is empty"),
        (X, [0, 1, 7, 0], {"classes": [0, 1]}, "label 7 is not one of the classes"),
        (X, [0, 1], {}, "shape (4, 3), but there are 2 labels"),
        (X[0], [0, 1, 0], {}, "shape (3,), but there are 3 labels"),
        (
            np.where(np.arange(12).reshape(4, 3) == 7, np.nan, 0.0),
            [0, 1, 0, 1],
            {},
            "example 2 has NaN",
        ),
        (X.astype(int), [0, 1, 0, 1], {}, "must be uint8"),
        (X, [0, 1, 0, 1], {"classes": [0, 1, 1]}, "listed twice"),
        (X, np.array([0, 1, 7, 0]), {"classes": [0, 1]}, "label 7 is not one of the classes"),
        (X, np.eye(4), {}, "labels have shape (4, 4)"),
        (X, [[0], [1], [0], [1]], {}, "a label is neither a number nor a name"),
        (X, torch.zeros(0, dtype=torch.int64), {}, "task 'a' is empty"),
        (X, [0, 1, 0, 1], {"test": (X, [0, 1, 2, 0])}, "test examples: label 2 is not one"),
        (
            X,
            [0, 1, 0, 1],
            {"test": (X[:, :2], [0, 1, 1, 0])},
            "test inputs (2,) and torch.float32; they must agree",
        ),
    ],
)
def test_mistakes_are_named(x, y, more, message):
    with pytest.raises(ValueError) as raised:
        Task("a", x, y, **more)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_permuted_tasks_share_one_copy():
    order = torch.tensor([2, 0, 1])
    pixels = torch.arange(12, dtype=torch.uint8).view(4, 3)
    tasks = [Task(str(i), pixels, [0, 1, 0, 1], view=Permutation(order)) for i in range(17)]
    assert len({t.train.inputs.data_ptr() for t in tasks}) == 1
    assert Permutation(order)(pixels).tolist() == [[2, 0, 1], [5, 3, 4], [8, 6, 7], [11, 9, 10]]


def test_streams_count_their_outputs():
    tasks = [Task("a", X, [0, 1, 0, 1]), Task("b", X, [1, 2, 1, 2])]
    assert Stream("s", tasks).outputs == 4
    assert Stream("s", tasks, heads="shared").outputs == 3
    assert Stream("s", tasks, outputs=100).outputs == 100
    with pytest.raises(ValueError, match="two tasks are called 'a'"):
        Stream("s", [tasks[0], tasks[0]])
    with pytest.raises(ValueError, match="no tasks"):
        Stream("s", [])
    with pytest.raises(ValueError, match="heads='both'"):
        Stream("s", tasks, heads="both")


def test_labels_are_the_same_however_they_are_given():
    for y in (
        [7, 3, 7, 5],
        np.array([7, 3, 7, 5], np.uint8),
        torch.tensor([7, 3, 7, 5]),
        np.array([7, 3, 7, 5], object),
    ):
        task = Task("a", X, y)
        assert task.classes == (3, 5, 7)
        assert [type(c) for c in task.classes] == [int] * 3
        assert task.train.labels.tolist() == [2, 0, 2, 1]
        assert task.train.labels.dtype == torch.int64
    assert Task("a", X, np.array([True, False, True, True])).classes == (False, True)
    assert Task("a", X, np.array(["b", "a", "b", "b"])).train.labels.tolist() == [1, 0, 1, 1]


def test_rows_are_read_when_they_are_asked_for():
    base = torch.arange(40, dtype=torch.uint8).view(10, 4)
    task = Task(
        "a",
        RowView(base, torch.tensor([9, 0, 5])),
        [1, 0, 1],
        test=(RowView(base, torch.tensor([2])), [0]),
    )
    assert task.train.inputs.shape == (3, 4)
    assert task.train.inputs[torch.tensor([1, 0])].tolist() == [[0, 1, 2, 3], [36, 37, 38, 39]]
    some = task.train.subset(torch.tensor([2]))
    assert (some.inputs[torch.tensor([0])].tolist(), some.labels.tolist()) == (
        [[20, 21, 22, 23]],
        [1],
    )
    assert some.inputs.base.data_ptr() == base.data_ptr()
    with pytest.raises(ValueError, match="shape \\(3, 4\\), but there are 2 labels"):
        Task("a", RowView(base, torch.tensor([9, 0, 5])), [1, 0])
    with pytest.raises(ValueError, match="example 1 has NaN"):
        Task("a", RowView(torch.tensor([[1.0], [torch.nan]]), torch.tensor([0, 1])), [1, 0])


def test_the_same_examples_seen_in_another_way():
    task = Task("a", X, [0, 1, 0, 1], test=(X, [0, 1, 0, 1]))
    other = task.with_view("b", Permutation(torch.tensor([2, 0, 1])))
    assert (other.name, task.name, task.view) == ("b", "a", None)
    assert other.train is task.train
    assert other.test is task.test


def test_a_stream_may_be_given_as_a_generator():
    x = np.zeros((4, 3), np.uint8)
    stream = Stream("s", (Task(f"task {i}", x, [0, 1, 0, 1]) for i in range(3)))
    assert len(stream) == 3
    assert [task.name for task in stream] == ["task 0", "task 1", "task 2"]
    assert stream.outputs == 6
    assert "has no tasks" in mistake(Stream, "s", iter(()))


def test_masked_values_are_refused():
    x = np.ma.masked_less(np.ones((4, 3)), 2)
    labels = np.ma.array([0, 1, 0, 1], mask=[False, True, False, False])
    assert "inputs have masked values" in mistake(Task, "a", x, [0, 1, 0, 1])
    assert "labels have masked values" in mistake(Task, "a", np.ones((4, 3)), labels)
    nothing_masked = np.ma.array(np.ones((4, 3)), mask=False)
    assert len(Task("a", nothing_masked, [0, 1, 0, 1]).train) == 4


def test_an_empty_test_set_is_refused_when_the_task_is_made():
    x = np.zeros((4, 3), np.uint8)
    line = mistake(Task, "a", x, [0, 1, 0, 1], test=(x[:0], []))
    assert line == "task 'a' has no test examples: pass some, or leave test out"
