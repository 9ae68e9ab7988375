"""Signed but wrong learners: the checksums are right, and the content is not that of a learner."""

import resource
import shutil
import tracemalloc
import warnings

import numpy as np
import pytest
import torch

import mdmt
from mdmt.errors import Mistake
from mdmt.system.state import StateFolder
from mdmt.system.tensors import MAX_TENSORS
from support.helpers import mistake
from support.mutations import change, mutate

MANIFEST = "state.json"
LEARNERS = {
    "mdmt-r": lambda: mdmt.Learner(
        mdmt.backbones.mlp(6, 4),
        mdmt.MDMTR(average=0.9, reference_batch=4),
        memory=mdmt.memory.Ring(2),
        mean=torch.zeros(6),
    ),
    "ewc": lambda: mdmt.Learner(mdmt.backbones.mlp(6, 4), "ewc", optimiser="Adam", heads="shared"),
    "der++": lambda: mdmt.Learner(
        mdmt.backbones.mlp(6, 4),
        "der++",
        memory=mdmt.memory.Reservoir(6),
        optimiser_arguments={"momentum": 0.9},
    ),
}


def task(name, classes):
    draw = np.random.default_rng(sum(map(ord, name)))
    labels = [c for c in classes for _ in range(6)]
    tests = (draw.random((4, 6)).astype(np.float32), [*classes, *classes])
    return mdmt.Task(name, draw.random((12, 6)).astype(np.float32), labels, test=tests)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A learner of each kind, saved with step log and snapshots."""
    folders = {}
    for name, make in LEARNERS.items():
        learner = make()
        kind = learner.heads.kind or "per-task"
        learner.run(mdmt.Stream("s", [task("a", "pq"), task("b", "rs")], heads=kind))
        folders[name] = tmp_path_factory.mktemp(name)
        learner.save(folders[name])
    return folders


@pytest.fixture
def copy(saved, tmp_path):
    def make(name, number=0):
        return shutil.copytree(saved[name], tmp_path / f"{name}-{number}")

    return make


def use(folder):
    """Load a learner, and do with it what one does."""
    learner = mdmt.Learner.load(folder)
    x = np.zeros((2, 6), np.float32)
    assert np.isfinite(learner.predict_proba(x)).all()
    learner.predict(x)
    if learner.task_name is None:
        learner.learn(task("new", "uv"))
        learner.save(folder)
        mdmt.Learner.load(folder)


@pytest.mark.parametrize("name", LEARNERS)
def test_an_unchanged_learner_loads(copy, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its test examples are not known
        use(copy(name))


@pytest.mark.parametrize("name", LEARNERS)
def test_a_signed_but_wrong_learner_is_one_line_or_works(copy, name):
    lines = []
    for seed in range(100):
        folder = copy(name, seed)
        told = mutate(folder, MANIFEST, seed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                use(folder)
        except (Mistake, FloatingPointError) as error:
            lines.append(str(error))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {told}") from error
        shutil.rmtree(folder)
    assert not [line for line in lines if "\n" in line]
    assert len(lines) > 50  # most changes must be noticed


def wrong_lr(rest, _):
    rest["learner"]["lr"] = "fast"


def no_heads(rest, _):
    del rest["learner"]["heads"]


def wide(rest, _):
    rest["backbone"]["arguments"]["width"] = 10**6


def many_outputs(rest, _):
    rest["learner"]["outputs"] = 10**12


def large_input(rest, _):
    rest["input"] = [[10**6, 10**6], "torch.float32"]


def unknown_method(rest, _):
    rest["method"] = {"name": "er", "arguments": {"strength": 3}}


def stranger(rest, tensors):
    tensors["model"]["model.head_of_class"][0] = 7


def not_a_number(_, tensors):
    tensors["model"]["model.head"][0] = torch.nan


def short_weights(_, tensors):
    tensors["model"]["model.backbone.layers.0.bias"] = torch.zeros(3)


def other_slots(_, tensors):
    tensors["memory"]["available"] = torch.tensor([99])


def other_labels(_, tensors):
    tensors["memory"]["labels"] += 100


def hidden_method(_, tensors):
    tensors["model"]["method.gradient"] = torch.zeros(3)


@pytest.mark.parametrize(
    ("edit", "line"),
    [
        (wrong_lr, "learner.lr is 'fast': it must be a finite number"),
        (no_heads, "learner.heads is missing"),
        (wide, r"layers.0.weight has shape \(4, 6\) and type float32: it must be 1000000 x 6"),
        (many_outputs, "learner.outputs is 1000000000000: it must be a whole number from 0 to"),
        (large_input, "input is .* it must be a shape of at most 67,108,864 numbers"),
        (unknown_method, "method.arguments is {'strength': 3}: it must be settings of"),
        (stranger, "model.head_of_class"),
        (not_a_number, "model.head has NaN or infinite values"),
        (short_weights, r"model.backbone.layers.0.bias has shape \(3,\)"),
        (other_slots, "memory.available has numbers outside of 0 to"),
        (other_labels, "memory.labels are not rows of their tasks"),
        (hidden_method, "method.gradient is not what mdmt-r keeps"),
    ],
)
def test_the_line_names_the_folder_and_what_is_wrong(copy, edit, line):
    folder = copy("mdmt-r")
    change(folder, MANIFEST, edit)
    with pytest.raises(Mistake, match=line) as raised:
        mdmt.Learner.load(folder)
    assert str(raised.value).startswith(f"{folder} cannot be loaded: ")


def test_a_wrong_size_allocates_nothing(copy):
    folder = copy("mdmt-r")
    change(folder, MANIFEST, wide)
    mistake(mdmt.Learner.load, folder)  # imports what it needs
    tracemalloc.start()
    before = largest_size()
    mistake(mdmt.Learner.load, folder)
    assert tracemalloc.get_traced_memory()[1] < 10**7
    assert largest_size() - before < 10**8
    tracemalloc.stop()


def largest_size():
    """The largest size that this process had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_a_header_of_too_many_entries_is_not_parsed(copy):
    folder = copy("mdmt-r")
    store = StateFolder(folder)
    header = b'{"x":' + b"{" * (MAX_TENSORS + 1)
    parts = {"model": len(header).to_bytes(8, "little") + header}
    store.write_as(MANIFEST, parts.items(), store.open().rest)
    assert "more than 16,777,216 bytes or 100,000 entries" in mistake(mdmt.Learner.load, folder)


def test_wrong_arguments_of_an_optimiser_are_one_line():
    wrong = {"momentun": 0.9}
    line = mistake(mdmt.Learner, mdmt.backbones.mlp(6, 4), optimiser_arguments=wrong)
    assert line.startswith("optimiser_arguments={'momentun': 0.9}: SGD does not take them (")


def test_other_test_examples_have_no_drift(tmp_path):
    """A loaded learner is given test examples of another number than it was measured on."""
    learner = mdmt.Learner(mdmt.backbones.mlp(6, 4), "er")
    learner.learn(task("a", "pq"))
    learner.save(tmp_path)
    again = mdmt.Learner.load(tmp_path)
    fewer = task("a", "pq")
    fewer.test = fewer.test.subset(torch.arange(2))
    again.learn(task("b", "rs"), earlier=[fewer])
    assert again.record.drift[1][0] is None
