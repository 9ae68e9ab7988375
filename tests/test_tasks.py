"""What a person hands in, and the one clear line when it is wrong."""

import numpy as np
import pytest
import torch

from mdmt import Stream, Task
from mdmt.tasks import Permutation

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
        (X, [0, 1], {}, "shape (4, 3) for 2 labels"),
        (X[0], [0, 1, 0], {}, "shape (3,) for 3 labels"),
        (np.where(np.arange(12).reshape(4, 3) == 7, np.nan, 0.0), [0, 1, 0, 1], {}, "example 2 has NaN"),
        (X.astype(int), [0, 1, 0, 1], {}, "must be uint8"),
        (X, [0, 1, 0, 1], {"classes": [0, 1, 1]}, "listed twice"),
        (X, [0, 1, 0, 1], {"test": (X, [0, 1, 2, 0])}, "test examples: label 2 is not one"),
        (X, [0, 1, 0, 1], {"test": (X[:, :2], [0, 1, 1, 0])}, "training inputs have shape (3,), test inputs (2,)"),
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
