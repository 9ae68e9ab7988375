"""Mistakes about a living model: one line, exit code 2, nothing changed on disk."""

import errno
import hashlib
import json
import os
import unicodedata

import numpy as np
import pytest

import mdmt
from mdmt.learner import Learner
from mdmt.living.versions import Versions
from mdmt.system.files import lock
from support.commands import content, refused, refused_new, run
from support.deliveries import as_folder, as_npz

pytestmark = pytest.mark.usefixtures("own_cache")


def image_delivery(path, shape):
    np.savez(path, x=np.zeros((8, *shape), np.uint8), y=np.array(["wren"] * 8))
    return path.name


def accent(form):
    return unicodedata.normalize(form, "m\u00e9sange")


@pytest.fixture
def photos(tmp_path, capsys):
    place = as_folder(tmp_path / "january", ["owl", accent("NFC")])
    assert run("learn", "birds", place, "--image-size", 8, "--epochs", 1) == 0
    capsys.readouterr()
    return tmp_path / "birds"


@pytest.mark.parametrize(
    ("make", "arguments", "words"),
    [
        (lambda at: image_delivery(at / "x.npz", (3, 9, 9)), [], "shape (3, 9, 9)"),
        (lambda at: image_delivery(at / "x.npz", (1, 8, 8)), [], "shape (1, 8, 8)"),
        (lambda at: as_folder(at / "new", ["wren"]), ["--image-size", 16], "image_size is fixed"),
        (lambda at: as_folder(at / "new", ["wren", "Owl"]), [], "'owl' and 'Owl' differ only in"),
        (lambda at: as_folder(at / "new", [accent("NFD")]), [], "the encoding of an accent"),
        (lambda at: as_folder(at / "again", ["owl", accent("NFC")]), [], "was learned already"),
        (
            lambda at: (at / "empty").mkdir() or "empty",
            [],
            "empty is empty: it has no class folders; expected DIR/class/image.jpg\n",
        ),
        (lambda at: "nowhere", [], "nowhere is missing"),
        (lambda at: as_folder(at / "new", ["wren"]), ["--memory", "4300B"], "3 classes: give"),
        (lambda at: as_folder(at / "new", ["wren"]), ["--memory", "lots"], "such as 50MB"),
        (lambda at: as_folder(at / "new", ["wren"]), ["--holdout", "1.5"], "holdout=1.5"),
        (lambda at: as_folder(at / "new", ["wren"]), ["--method", "er"], "method is fixed"),
    ],
)
def test_deliveries_that_are_refused(photos, tmp_path, make, arguments, words, capsys):
    before = content(photos)
    assert words in refused(capsys, "learn", "birds", make(tmp_path), "--quiet", *arguments)
    assert content(photos) == before


def test_questions_and_changes_that_are_refused(photos, birds_of_numbers, tmp_path, capsys):
    png = next((tmp_path / "january" / "owl").iterdir())
    size = image_delivery(tmp_path / "size.npz", (3, 9, 9))
    grey = image_delivery(tmp_path / "grey.npz", (1, 8, 8))
    other = as_folder(tmp_path / "other", ["wren"])
    (tmp_path / "text.png").write_text("no image")
    before = {model: content(tmp_path / model) for model in ("birds", "numbers")}
    for command, words in (
        (["predict", "birds", png, "--task", "march"], "task 'march' was not learned; learned"),
        (["predict", "birds", size], "shape (3, 9, 9)"),
        (["predict", "birds", grey], "shape (1, 8, 8)"),
        (["predict", "birds", "text.png"], "is not an image"),
        (["predict", "birds", "nowhere.png"], "nowhere.png is missing"),
        (["predict", "birds", tmp_path / "january"], "is a folder"),
        (["predict", "numbers", png], "does not read images but inputs of shape (12,)"),
        (["predict", "nothing", png], "is not a model"),
        (["evaluate", "birds", size], "shape (3, 9, 9)"),
        (["evaluate", "birds", other], "classes: m\u00e9sange, owl"),
        (["forget", "birds", "--task", "march", "--yes"], "delivery 'march' was not learned"),
        (["forget", "birds", "--class", "Owl", "--yes"], "class 'Owl' was not learned"),
        (["rollback", "birds", "--to", 9], "has no version 9; versions: 1"),
    ):
        assert words in refused(capsys, *command)
    assert {model: content(tmp_path / model) for model in before} == before


@pytest.fixture
def birds_of_numbers(tmp_path):
    assert run("learn", "numbers", as_npz(tmp_path / "n.npz", ["owl", "kite"])) == 0


@pytest.mark.parametrize(
    "arguments",
    [["--method", "magic"], ["--backbone", "vgg"], ["--heads", "two"], ["--memory", "4200B"]],
)
def test_a_first_delivery_that_is_refused_leaves_no_folder(tmp_path, arguments, capsys):
    file = as_npz(tmp_path / "january.npz", ["owl", "kite"])
    refused_new(capsys, tmp_path, file, *arguments)


def test_a_model_is_not_made_among_other_files(tmp_path, capsys):
    place = as_folder(tmp_path / "january", ["owl", "kite"])
    file = as_npz(tmp_path / "january.npz", ["owl", "kite"])
    assert "name a new folder" in refused(capsys, "learn", place, file)
    assert sorted(path.name for path in (tmp_path / "january").iterdir()) == ["kite", "owl"]


@pytest.mark.parametrize(
    "command",
    [
        ["rollback"],
        ["verify"],
        ["info"],
        ["evaluate"],
        ["prune", "--keep", 1, "--yes"],
        ["forget", "--class", "owl", "--yes"],
    ],
)
def test_a_folder_that_is_no_model(tmp_path, command, capsys):
    name, *rest = command
    assert "nothing is not a model" in refused(capsys, name, "nothing", *rest)
    assert not (tmp_path / "nothing").exists()


def newer(folder, number):
    """Write a manifest as a later mdmt would."""
    path = folder / f"version-{number}.json"
    body = json.loads(path.read_text())
    del body["sha256"]
    body["format"] = 99
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({**body, "sha256": digest}))


def test_a_folder_of_a_newer_format(birds, tmp_path, capsys):
    newer(birds, 2)
    before = content(birds)
    march = as_npz(tmp_path / "march.npz", ["wren"], seed=5)
    for command in (["learn", "birds", march], ["predict", "birds", march], ["evaluate", "birds"]):
        err = refused(capsys, *command)
        assert "newer mdmt (format 99): update mdmt" in err
        assert "version 1 is whole: mdmt rollback birds --to 1" in err
    assert content(birds) == before


@pytest.mark.parametrize("part", ["weights", "memory", "held_back"])
def test_a_damaged_part_is_named_with_the_versions_that_load(birds, tmp_path, part, capsys):
    file = birds / Versions(birds).open(2).files[part]["file"]
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    before = content(birds)
    march = as_npz(tmp_path / "march.npz", ["wren"], seed=5)
    commands = {
        "weights": [["learn", "birds", march], ["predict", "birds", march]],
        "memory": [
            ["learn", "birds", march],
            ["forget", "birds", "--class", "owl", "--yes"],
        ],
        "held_back": [["evaluate", "birds"], ["info", "birds"]],
    }
    for command in commands[part]:
        err = refused(capsys, *command)
        assert file.name in err
        assert "version 1 is whole: mdmt rollback birds --to 1" in err
    assert content(birds) == before
    assert run("verify", "birds") == 1
    out = capsys.readouterr().out
    assert out.startswith("version 1: whole\nversion 2: ")
    assert run("rollback", "birds", "--to", 1) == 0
    assert "is damaged" in refused(capsys, "rollback", "birds", "--to", 2)


def test_two_writers_at_a_time(birds, tmp_path, capsys):
    march = as_npz(tmp_path / "march.npz", ["wren"], seed=5)
    before = content(birds)
    with lock(birds / ".lock"):
        for command in (
            ["learn", "birds", march],
            ["rollback", "birds"],
            ["prune", "birds", "--keep", 1, "--yes"],
        ):
            assert "is being changed by another process" in refused(capsys, *command)
    assert content(birds) == before


def test_two_lessons_at_a_time(birds, tmp_path, capsys, monkeypatch):
    march = as_npz(tmp_path / "march.npz", ["wren"], seed=5)
    april = as_npz(tmp_path / "april.npz", ["crow"], seed=6)
    step = Learner.step
    told = []

    def step_while_another_asks(learner, batch):
        if not told:
            before = content(birds)
            told.append(refused(capsys, "learn", "birds", april, "--quiet"))
            assert content(birds) == before
        step(learner, batch)

    monkeypatch.setattr(Learner, "step", step_while_another_asks)
    assert run("learn", "birds", march) == 0
    assert "is being changed by another process" in told[0]
    assert mdmt.LivingModel("birds").classes[-1] == "wren"


@pytest.mark.parametrize("place", ["learning", "birds"])
def test_a_full_disk(birds, tmp_path, place, capsys, monkeypatch):
    """It is full while a checkpoint is written, or the new version."""
    march = as_npz(tmp_path / "march.npz", ["wren"], seed=5)
    before = content(birds)
    real = os.fsync

    def full(handle):
        name = os.readlink(f"/proc/self/fd/{handle}")
        if ".memory-" in name and ("/learning/" in name) == (place == "learning"):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        err = refused(capsys, "learn", "birds", march, "--json")
    assert "No space left on device" in err
    assert "free some disk space" in err
    after = content(birds)
    checkpoint = {name for name in after if name.startswith("learning/")}
    assert bool(checkpoint) == (place == "birds")  # what was learned until then, to go on from
    assert {name: after[name] for name in after if name not in checkpoint} == before
    assert run("learn", "birds", march) == 0
    assert mdmt.LivingModel("birds").version == 3
