"""Model folders that are signed but wrong: every command works, or says in one line what is wrong."""

import json
import shutil

import pytest
import torch

import mdmt
from mdmt.errors import Mistake
from support.deliveries import delivery
from support.helpers import mistake
from support.mutations import change, mutate

VERSION = "version-2.json"
METHODS = {"er": "shared", "mdmt-r": "per-task"}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folders = {}
    for method, heads in METHODS.items():
        folders[method] = tmp_path_factory.mktemp("models") / method
        model = mdmt.LivingModel(folders[method])
        model.learn(delivery("ab", count=10), "first", epochs=1, method=method, heads=heads)
        model.learn(delivery("cd", count=10), "second")
    return folders


@pytest.fixture
def copy(models, tmp_path):
    def make(method, number=0):
        return shutil.copytree(models[method], tmp_path / f"{method}-{number}")

    return make


def use(folder):
    """Everything that is done with a model; the lines of what is refused."""
    model = mdmt.LivingModel(folder)
    x, _ = delivery("a", count=3)
    lines = []
    for act in (
        model.info,
        lambda: model.versions,
        model.verify,
        lambda: model.predict(x),
        model.evaluate,
        lambda: repr(model),
        lambda: model.learner().predict(x),
        lambda: model.learn(delivery("xy", count=5), "third", epochs=1),
        lambda: model.forget(classes=["a"]),
        model.info,
    ):
        try:
            act()
        except (Mistake, FloatingPointError) as error:
            lines.append(str(error))
    assert not [line for line in lines if "\n" in line]
    return lines


@pytest.mark.parametrize("method", METHODS)
def test_a_signed_but_wrong_version_is_one_line_or_works(copy, method):
    assert use(copy(method)) == []
    refused = 0
    for seed in range(40):
        folder = copy(method, seed + 1)
        told = mutate(folder, VERSION, seed)
        try:
            refused += bool(use(folder))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {told}") from error
        shutil.rmtree(folder)
    assert refused > 20


def no_temperature(rest, _):
    rest["living"]["temperature"] = 0


def other_number(rest, _):
    rest["version"] = 7


def no_parts(_, tensors):
    del tensors["weights"]


def other_examples(_, tensors):
    tensors["held_back"]["labels"] += 50


@pytest.mark.parametrize(
    ("edit", "line"),
    [
        (no_temperature, "version-2.json is damaged: living.temperature is 0: it must be a number"),
        (other_number, "version-2.json is damaged: version is 7: it must be 2"),
        (no_parts, "version-2.json is damaged: it names no file with the weights"),
        (other_examples, "version-2.json cannot be loaded: held_back.labels are not rows"),
    ],
)
def test_verify_names_what_is_wrong(copy, edit, line):
    folder = copy("er")
    change(folder, VERSION, edit)
    damage = mdmt.LivingModel(folder).verify()
    assert list(damage) == [2]
    assert line in damage[2]


def test_the_weights_that_answer_must_be_those_of_the_network(models, tmp_path):
    folder = shutil.copytree(models["mdmt-r"], tmp_path / "model")
    change(folder, VERSION, lambda _, tensors: tensors.update(answers={"flat": torch.zeros(5)}))
    assert "answers.flat has shape (5,)" in mistake(mdmt.LivingModel(folder).predict, [])


@pytest.mark.parametrize("value", [True, 0, -3, 10**30, "2", None, [2]])
def test_a_current_version_that_is_no_number_is_refused(copy, value):
    folder = copy("er")
    (folder / "current.json").write_text(json.dumps({"version": value, "last": value}))
    assert "it names no version" in mistake(mdmt.LivingModel(folder).info)


@pytest.mark.parametrize("value", [7, "x", [None, "1", -1, True], {"a": 1}])
def test_a_change_that_is_none_removes_nothing(copy, value):
    folder = copy("er")
    (folder / "change.json").write_text(json.dumps({"adding": value, "removing": value}))
    model = mdmt.LivingModel(folder)
    model.rollback(1)
    assert [version.number for version in model.versions] == [1, 2]


def test_labels_that_are_tuples_are_learned_and_forgotten(tmp_path):
    """JSON makes lists of them, which cannot be looked up."""
    model = mdmt.LivingModel(tmp_path / "model")
    x, _ = delivery("ab", count=10)
    model.learn((x, [("a", 1)] * 10 + [("b", 2)] * 10), "first", epochs=1)
    x, _ = delivery("bc", count=10)
    model.learn((x, [("b", 2)] * 10 + [("c", 3)] * 10), "second", epochs=1)
    assert model.classes == [("a", 1), ("b", 2), ("c", 3)]
    model.forget(classes=[("a", 1)])
    assert model.classes == [("b", 2), ("c", 3)]
    assert [entry["name"] for entry in model.info()["deliveries"]] == ["first", "second"]
