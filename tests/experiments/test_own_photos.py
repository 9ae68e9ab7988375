"""A user's own images: settings for a few hundred of them, other networks, and the saved model."""

import json
import re

import pytest
import torch

import mdmt
from mdmt import backbones
from mdmt.cli.app import main
from mdmt.experiments.run import learner_for, run
from mdmt.report.page import render
from mdmt.report.study import read_studies
from mdmt.runs.folder import find_runs
from support.configs import config_for
from support.helpers import mistake
from support.photos import photos


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MDMT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def place(tmp_path):
    return str(photos(tmp_path / "mine"))


def learn(place, tmp_path, *more):
    small = ["--image-size", "8", "--set", "epochs=1", "--backbone", "reduced_resnet18[width=2]"]
    return main(
        [
            "run",
            "folder",
            "--data",
            place,
            "--out",
            str(tmp_path / "runs"),
            *small,
            "--quiet",
            *more,
        ]
    )


def test_own_photos_are_seen_often_and_a_little_differently(place):
    config = config_for("folder", data=place)
    assert (config.epochs, config.augment, config.image_size) == (20, "crop-flip", 32)
    assert config_for("folder", data=place, backbone="resnet18").image_size == 64
    assert config.arguments["reference_batch"] == 13  # a quarter of 13 examples of 4 classes
    assert (
        config_for("folder", data=place, settings={"reference_batch": "7"}).arguments[
            "reference_batch"
        ]
        == 7
    )
    assert config_for("split-cifar").augment == "none"
    assert learner_for(config).augment == "crop-flip"
    assert "permuted-digits has no images" in mistake(
        config_for, "permuted-digits", settings={"augment": "crop-flip"}
    )


def test_another_network(place):
    config = config_for("folder", data=place, backbone="resnet18[width=8]")
    assert config.backbone == {
        "name": "resnet18",
        "arguments": {"channels": 3, "width": 8, "norm_start": "fast"},
    }
    assert config_for("split-digits", backbone="resnet18").backbone["arguments"]["channels"] == 1
    assert config_for("split-cifar", backbone="resnet18").hash != config_for("split-cifar").hash
    for text, message in (
        ("vgg", "must be one of reduced_resnet18, resnet18"),
        ("resnet18[depth=3]", "takes width=N"),
    ):
        assert message in mistake(config_for, "folder", data=place, backbone=text)
    assert "has no images" in mistake(config_for, "permuted-mnist", backbone="resnet18")


def test_first_weights_of_any_image_benchmark(place, tmp_path):
    own = backbones.reduced_resnet18(width=4)
    own.draw(torch.Generator().manual_seed(5))
    torch.save(own.state_dict(), tmp_path / "own.pth")
    weights = str(tmp_path / "own.pth")
    config = config_for("folder", data=place, backbone="reduced_resnet18[width=4]", weights=weights)
    assert torch.equal(learner_for(config).backbone.conv.weight, own.conv.weight)
    assert config_for("split-cifar", weights=weights).backbone["name"] == "resnet18"
    wider = config_for("folder", data=place, backbone="reduced_resnet18[width=5]", weights=weights)
    assert "it is of another network" in mistake(learner_for, wider)
    torch.save({"a": torch.zeros(1)}, weights)
    assert "it is not a state dict of reduced_resnet18" in mistake(learner_for, wider)


def test_the_header_says_how_and_nothing_is_called_reduced(place, tmp_path, capsys):
    assert learn(place, tmp_path, "--tasks", "1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "reduced_resnet18 from scratch, 8 px, 1 epoch, 13 examples a class kept"
    assert lines[2] == "not all of the data: tasks 1"
    assert "reduced," not in "\n".join(lines)
    assert main(["runs", "list", str(tmp_path / "runs")]) == 0
    (run,) = tmp_path.glob("runs/folder/*/*/1234")
    assert main(["runs", "show", str(run)]) == 0
    assert "reduced," not in capsys.readouterr().out


def test_accuracy_near_chance_is_said(place, tmp_path, capsys):
    assert learn(place, tmp_path, "--tasks", "1") == 0
    capsys.readouterr()
    (path,) = tmp_path.glob("runs/folder/*/*/1234/record.json")
    record = json.loads(path.read_text())
    for accuracy, is_near in ((0.5, True), (0.56, True), (0.6, False)):
        path.write_text(json.dumps({**record, "accuracy": [[accuracy]]}))
        assert learn(place, tmp_path, "--tasks", "1") == 0
        assert ("accuracy is close to chance (50.0 %)" in capsys.readouterr().out) is is_near


def test_the_model_is_kept(place, tmp_path, capsys):
    assert learn(place, tmp_path) == 0
    assert learn(place, tmp_path, "--keep-model") == 2
    assert "kept no model: --keep-model --fresh" in capsys.readouterr().err
    assert learn(place, tmp_path, "--keep-model", "--fresh") == 0
    (run,) = tmp_path.glob("runs/folder/*/*/1234")
    learner = mdmt.Learner.load(run / "model")
    assert [task.name for task in learner.tasks] == ["birds", "fish"]
    assert learner.model.sha256() == json.loads((run / "record.json").read_text())["weights_sha256"]
    assert learn(place, tmp_path, "--keep-model") == 0


def test_a_running_folder_knows_its_tasks_and_the_time_left(tmp_path, capsys):
    """The configuration does not say how many tasks a folder has; they are of different sizes."""
    place = photos(tmp_path / "mine", tasks=("a", "b", "c", "d"))
    photos(place, tasks=("d",), count=25)
    network = "reduced_resnet18[width=2]"
    config = config_for(
        "folder", "van", data=str(place), image_size=8, backbone=network, settings={"epochs": "1"}
    )
    out = tmp_path / "runs"
    pages = []
    folders = []
    seconds = []

    def on_step(learner):
        if learner.current == 1 and not pages:
            folders.extend(find_runs(out))
            seconds.append(folders[0].record_so_far.seconds)
            pages.append(render([], read_studies(folders)[1], where="here"))
            main(["runs", "list", str(out), "--json"])

    record = run(config, out, every=1, on_step=on_step)
    assert "folder, 4 tasks" in pages[0]
    assert re.search(r"<td>1 of 4<td>[\d.]+<td>about 0:\d\d", pages[0])
    assert "1 of 4 tasks learned at its last checkpoint" in pages[0]
    assert json.loads(capsys.readouterr().out)["runs"][0]["tasks"] == 4
    first, second, *_, last = [task["train"] for task in record.tasks]
    assert first < last
    assert learner_for(config).batch > second  # its first step is its last one
    share = (first + second) / sum(task["train"] for task in record.tasks)
    assert folders[0].seconds_left == pytest.approx(seconds[0] * (1 - share) / share)


@pytest.mark.parametrize(
    ("heads", "remedy"), [("per-task", "--set heads=shared"), ("shared", "--set memory=N")]
)
def test_accuracy_near_chance_without_the_task_is_said(heads, remedy, tmp_path, capsys):
    """Two tasks of two classes each: chance is 1/2 with the task given, 1/4 without it."""
    place = photos(tmp_path / "mine", tasks=("birds", "fish"))
    (place / "fish" / "one").rename(place / "fish" / "three")
    (place / "fish" / "two").rename(place / "fish" / "four")
    command = (str(place), tmp_path, "--set", f"heads={heads}")
    assert learn(*command) == 0
    capsys.readouterr()
    (path,) = tmp_path.glob("runs/folder/*/*/1234/record.json")
    record = json.loads(path.read_text())
    good = {**record, "accuracy": [[0.9, None], [0.9, 0.9]]}
    for accuracy, is_near in ((0.25, True), (0.35, True), (0.4, False)):
        free = [[0.9, None], [accuracy, accuracy]]
        path.write_text(json.dumps({**good, "accuracy_task_free": free}))
        assert learn(*command) == 0
        printed = capsys.readouterr().out
        assert "nothing was learned" not in printed
        assert ("if the task is not given" in printed) is is_near
        assert ("close to chance (25.0 %)" in printed) is is_near
        assert (remedy in printed) is is_near
    path.write_text(json.dumps({**record, "accuracy": [[0.5, None], [0.5, 0.5]]}))
    assert learn(*command) == 0
    assert "if the task is not given" not in capsys.readouterr().out
