"""Data sets as tasks; the code on the page about users' data runs."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import mdmt
from mdmt import Task
from support.helpers import small_stream

PAGE = Path(__file__).parents[2] / "docs" / "your-data.md"


class Items(torch.utils.data.Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class Flow(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter([(torch.zeros(3), 1), (torch.ones(3), 0)])


def test_datasets_of_tensors_arrays_and_images():
    tensors = Task.from_dataset("a", Items([(torch.full((2,), float(i)), i % 2) for i in range(4)]))
    assert tensors.train.inputs.tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]]
    assert (tensors.classes, tensors.train.labels.tolist(), tensors.test) == (
        (0, 1),
        [0, 1, 0, 1],
        None,
    )
    labels = [np.int64(3), torch.tensor(5), np.array(3)]
    arrays = Task.from_dataset(
        "a", Items([(np.zeros((1, 2, 2), np.uint8), label) for label in labels])
    )
    assert (arrays.classes, arrays.train.labels.tolist()) == ((3, 5), [0, 1, 0])
    colour = [(Image.new("RGB", (5, 4), (1, 2, 3)), "owl"), (Image.new("RGB", (5, 4)), "kite")]
    images = Task.from_dataset("a", Items(colour), test=Items(colour[:1]))
    assert (images.train.inputs.shape, images.train.inputs.dtype) == ((2, 3, 4, 5), torch.uint8)
    assert images.train.inputs[0, :, 0, 0].tolist() == [1, 2, 3]
    assert (images.classes, len(images.test)) == (("kite", "owl"), 1)
    grey = Task.from_dataset("a", Items([(Image.new("L", (5, 4)), 0)]), classes=[1, 0])
    assert (grey.train.inputs.shape, grey.train.labels.tolist()) == ((1, 1, 4, 5), [1])
    assert len(Task.from_dataset("a", Flow()).train) == 2
    assert (
        len(
            Task.from_dataset(
                "a", torch.utils.data.TensorDataset(torch.zeros(4, 3), torch.arange(4))
            ).train
        )
        == 4
    )


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([(torch.zeros(2), 0), torch.zeros(2)], "item 1 is not an (input, label) pair"),
        ([(torch.zeros(2), 0, 1)], "item 0 is not an (input, label) pair"),
        ([(torch.zeros(2), 0), (torch.zeros(3), 0)], "item 1 has shape (3,)"),
        (
            [(torch.zeros(2), 0), (torch.zeros(2, dtype=torch.uint8), 0)],
            "item 1 has shape (2,) and is torch.uint8",
        ),
        ([("text", 0)], "item 0: cannot read an input of type str"),
        ([(torch.zeros(2), None)], "item 0: its label is a NoneType"),
        ([(torch.zeros(2), torch.zeros(2))], "item 0: its label holds several values"),
        ([], "task 'a' is empty"),
    ],
)
def test_items_that_do_not_fit_are_named(items, message):
    with pytest.raises(ValueError) as raised:
        Task.from_dataset("a", Items(items))
    assert message in str(raised.value)
    assert "task 'a'" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("method", [mdmt.VAN, mdmt.MDMTR])
def test_a_first_task_of_few_steps_is_learned(method):
    """Running statistics that start at 0 give chance accuracy after 16 steps."""
    ratios, accuracies = [], []
    for seed in range(3):
        task = small_stream(tasks=1, train=160, test=200, seed=1234 + seed)[0]
        learner = mdmt.Learner(mdmt.backbones.reduced_resnet18(1, 5), method(), lr=0.03, seed=seed)
        learner.learn(task)
        lengths = learner.features(task.test.inputs).norm(dim=1).mean()
        with torch.no_grad(), learner.model.training():
            in_training = learner.model.features(task.test.inputs).norm(dim=1).mean()
        ratios.append(float(lengths / in_training))
        accuracies.append(learner.record.accuracy[0][0])
    # The middle one: a single seed depends on the rounding of the processor.
    assert sorted(ratios)[1] < 2
    assert max(ratios) < 4  # where they start at 0 the middle one is about 9
    assert sum(accuracies) / 3 > 0.7


def section_of(title):
    section = PAGE.read_text().split(f"## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.S)


@pytest.mark.parametrize("title", ["Arrays", "A torch Dataset"])
def test_the_page_runs(title, capsys):
    (block,) = section_of(title)
    exec(compile(block, str(PAGE), "exec"), {"__name__": "page"})
    assert capsys.readouterr().out.startswith("[")


def test_folders_and_tasks_that_arrive_later(tmp_path, monkeypatch):
    """The other two blocks of the page, with photos and a source of data as a reader has them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MDMT_CACHE", str(tmp_path / "cache"))
    for place in ("birds/kite", "birds/owl", "fish/train/cod", "fish/test/cod"):
        for number in range(5):
            path = tmp_path / "photos" / place / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (64, 64), (40 * number, 9, len(place))).save(path)
    space = {"__name__": "page"}
    for block in section_of("A folder of images"):
        exec(compile(block, str(PAGE), "exec"), space)
    assert [task.name for task in space["stream"]] == ["birds", "fish"]
    assert space["record"].steps == 2
    space = {"__name__": "page", "fetch": lambda _: (np.eye(20, dtype=np.float32), [0, 1] * 10)}
    for block in section_of("Tasks that arrive later"):
        exec(compile(block, str(PAGE), "exec"), space)
    learned = mdmt.Learner.load("model/").tasks
    assert [task.name for task in learned] == ["january", "february"]


def test_the_page_of_the_interface(tmp_path, monkeypatch, capsys):
    """Its example runs, and it names every argument of Learner and every call."""
    monkeypatch.chdir(tmp_path)
    page = PAGE.with_name("api.md").read_text()
    block = re.findall(r"```python\n(.*?)```", page, re.S)[0]
    exec(compile(block, "api.md", "exec"), {"__name__": "page"})
    assert "Prediction(task=" in capsys.readouterr().out
    for name in inspect.signature(mdmt.Learner).parameters:
        assert f"`{name}`" in page
        assert name in mdmt.Learner.__doc__
    calls = {
        name for name, _ in inspect.getmembers(mdmt.Learner, callable) if not name.startswith("_")
    }
    inner = {
        "apply",
        "step",
        "state",
        "parts",
        "read",
        "sample_of_task",
        "with_features",
        "check_weights",
        "steps_of",
        "fresh",
        "from_states",
    }
    for name in calls - inner:
        assert f"`{name}(" in page
