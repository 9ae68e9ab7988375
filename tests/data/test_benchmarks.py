"""The embedded digits."""

import numpy as np
import pytest
import torch

from mdmt import benchmarks
from mdmt.benchmarks.digits import digits


def test_the_split_is_stratified_and_fixed():
    x, y, test_x, test_y = digits()
    assert x.shape == (4000, 784)
    assert test_x.shape == (1000, 784)
    assert x.dtype == torch.uint8
    assert torch.bincount(y).tolist() == [400] * 10
    assert torch.bincount(test_y).tolist() == [100] * 10
    train = {row.numpy().tobytes() for row in x}
    assert not any(row.numpy().tobytes() in train for row in test_x)


def test_permutations_follow_numpys_legacy_seed():
    stream = benchmarks.make("permuted-digits", 1234, tasks=3)
    random = np.random.RandomState(1234)
    for task in stream:
        order = np.arange(784)
        random.shuffle(order)
        assert task.view.order.tolist() == order.tolist()
    assert len({t.train.inputs.data_ptr() for t in stream}) == 1
    assert (stream.heads, stream.outputs, stream.evaluate) == ("shared", 10, "all")
    apart = benchmarks.make("permuted-digits", 1234, tasks=3, heads="per-task")
    assert (apart.heads, apart.outputs, apart.evaluate) == ("per-task", 30, "seen")


def test_split_digits_are_five_disjoint_pairs():
    stream = benchmarks.make("split-digits", 7)
    assert sorted(c for task in stream for c in task.classes) == list(range(10))
    assert [len(task.train) for task in stream] == [800] * 5
    assert [len(task.test) for task in stream] == [200] * 5
    assert stream[0].train.inputs.shape[1:] == (1, 28, 28)


def test_without_the_extra(monkeypatch):
    digits.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError) as raised:
        digits()
    assert 'pip install "mdmt[digits]"' in str(raised.value)
    digits.cache_clear()
