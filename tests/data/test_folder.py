"""A user's own images, and the message if something is wrong with them."""

import os

import numpy as np
import pytest
import torch
from PIL import Image

import mdmt
from mdmt import benchmarks
from mdmt.benchmarks.folder import folder, folder_fingerprint, folder_task
from mdmt.cli.app import main
from support.configs import config_for
from support.helpers import mistake


def picture(path, shade=100, size=(10, 8)):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.RandomState(shade).randint(0, 40, (size[1], size[0], 3)) + shade
    Image.fromarray(pixels.astype(np.uint8)).save(path)
    return path


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("MDMT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "mine"


def fill(place, tasks=("a birds", "b fish"), count=10):
    for t, task in enumerate(tasks):
        for c in range(2):
            for i in range(count):
                picture(
                    place / task / f"kind {c}" / f"{i:02d}.{('jpg', 'png', 'JPEG')[i % 3]}",
                    20 + 90 * c + 10 * t,
                )
    return place


def test_class_folders_are_cut_80_to_20_whatever_the_seed(place):
    stream = folder(1, data=fill(place), image_size=16)
    assert [t.name for t in stream] == ["a birds", "b fish"]
    assert stream[0].classes == ("kind 0", "kind 1")
    assert stream[0].train.inputs.shape == (16, 3, 16, 16)
    assert torch.bincount(stream[0].train.labels).tolist() == [8, 8]
    assert torch.bincount(stream[0].test.labels).tolist() == [2, 2]
    assert (stream.reduced, stream.heads) == (None, "per-task")
    again = folder(2, data=place, image_size=16)
    assert torch.equal(again[0].test.inputs, stream[0].test.inputs)
    bright = stream[0].train.inputs.float().flatten(1).mean(1)
    assert bright[stream[0].train.labels == 1].min() > bright[stream[0].train.labels == 0].max()


def test_train_and_test_folders(place):
    for part, count in (("train", 3), ("test", 2)):
        for name in ("owl", "kite"):
            for i in range(count):
                picture(place / "birds" / part / name / f"{i}.png")
    for i in range(4):
        picture(place / "cars" / "train" / "van" / f"{i}.png")
    stream = folder(1, data=place, image_size=8)
    assert [(len(t.train), t.test and len(t.test)) for t in stream] == [(6, 4), (4, None)]


def test_a_class_may_be_called_train(place):
    for name in ("train", "tram"):
        for i in range(5):
            picture(place / "vehicles" / name / f"{i}.png")
    assert folder(1, data=place, image_size=8)[0].classes == ("train", "tram")


def test_fewer_tasks_and_examples_are_named(place):
    stream = folder(1, 1, data=fill(place), image_size=8, subset=6)
    assert stream.reduced == {"tasks": 1, "subset": 6}
    assert torch.bincount(stream[0].train.labels).tolist() == [3, 3]
    assert "tasks=3" in mistake(folder, 1, 3, data=place)


def test_it_is_learned(place):
    learner = mdmt.Learner(mdmt.backbones.mlp(768), mdmt.VAN(), lr=0.03, epochs=20)
    record = learner.run(folder(1, data=fill(place), image_size=16))
    assert record.accuracy[0][0] == 1.0
    assert [t["train"] for t in record.tasks] == [16, 16]


def test_one_more_task_decodes_only_its_own_images(place, tmp_path):
    fill(place)
    folder(1, data=place, image_size=8)
    before = set((tmp_path / "cache" / "images").glob("*.u8"))
    fill(place, ["c new"])
    done = []
    folder(1, data=place, image_size=8, progress=lambda n, total: done.append((n, total)))
    assert done[-1] == (20, 20)
    assert len(set((tmp_path / "cache" / "images").glob("*.u8")) - before) == 1
    assert len(folder_task(place / "c new", "other", image_size=8).train) == 16


def test_a_damaged_cache_is_told(place, tmp_path):
    fill(place, count=5)
    assert folder(1, data=place, image_size=8).notes == ()
    for pixels in (tmp_path / "cache" / "images").glob("*.u8"):
        os.truncate(pixels, 4 * 3 * 8 * 8)
    notes = folder(1, data=place, image_size=8).notes
    assert [note.partition(" was ")[2] for note in notes] == ["damaged: 6 images decoded again"] * 2


def test_hidden_files_are_passed_over(place):
    fill(place)
    for where in (place, place / "a birds", place / "a birds" / "kind 0"):
        for name in (".DS_Store", "Thumbs.db"):
            (where / name).write_bytes(b"x")
    assert len(folder(1, data=place, image_size=8)) == 2


def test_mistakes_are_named_with_their_path(place):
    fill(place)
    bad = place / "a birds" / "kind 0" / "note.txt"
    bad.write_text("hello")
    assert f"{bad} is not an image" in mistake(folder, 1, data=place)
    bad.unlink()

    bad = place / "a birds" / "kind 0" / "text.png"
    bad.write_text("hello")
    assert f"{bad} is not an image" in mistake(folder, 1, data=place)
    bad.unlink()

    bad = picture(place / "b fish" / "kind 1" / "cut.jpg", size=(60, 60))
    bad.write_bytes(bad.read_bytes()[:-400])
    assert f"{bad} is a broken image" in mistake(folder, 1, data=place)
    bad.unlink()

    bad = place / "a birds" / "kind 2"
    bad.mkdir()
    assert f"{bad} is an empty class" in mistake(folder, 1, data=place)
    bad.rmdir()

    bad = place / "c"
    bad.mkdir()
    assert f"{bad} is empty" in mistake(folder, 1, data=place)
    bad.rmdir()

    bad = picture(place / "A BIRDS" / "kind 0" / "0.png").parent.parent
    assert mistake(folder, 1, data=place).startswith(
        f"{place}: the tasks 'A BIRDS' and 'a birds' differ only in case"
    )
    (bad / "kind 0" / "0.png").unlink()
    (bad / "kind 0").rmdir()
    bad.rmdir()

    bad = picture(place / "stray.png")
    assert f"{bad} is a file among task folders" in mistake(folder, 1, data=place)
    bad.unlink()

    bad = picture(place / "a birds" / "kind 0" / "deeper" / "0.png").parent
    assert f"{bad} is a folder inside the class" in mistake(folder, 1, data=place)


@pytest.mark.parametrize(
    ("names", "difference"),
    [
        (("Owl", "owl"), "'Owl' and 'owl' differ only in case"),
        (("caf\u00e9", "cafe\u0301"), r"'cafe\u0301' and 'caf\xe9' differ only in the encoding"),
        (("owl", "owl "), "'owl' and 'owl ' differ only in outer spaces"),
    ],
)
@pytest.mark.parametrize("part", [".", "train"])
def test_classes_that_look_the_same_are_refused(place, names, difference, part):
    """Otherwise they would be learned as two classes."""
    for name in names:
        picture(place / "birds" / part / name / "0.png")
    told = f"{place / 'birds' / part}: the classes {difference}"
    assert mistake(folder, 1, data=place).startswith(told)
    assert mistake(folder_fingerprint, place).startswith(told)


def test_classes_of_one_head_that_look_the_same_are_refused(place):
    for number, name in enumerate(("Owl", "owl", "owl")):
        picture(place / f"task {number}" / name / "0.png")
    assert [task.classes for task in folder(1, data=place)] == [("Owl",), ("owl",), ("owl",)]
    told = mistake(folder, 1, data=place, heads="shared")
    assert told.startswith(f"{place}: the classes 'Owl' and 'owl' differ only in case")


def test_mistakes_with_train_and_test(place):
    picture(place / "t" / "train" / "owl" / "0.png")
    picture(place / "t" / "test" / "kite" / "0.png")
    assert f"{place / 't' / 'test' / 'kite'} is a class without training images" in mistake(
        folder, 1, data=place
    )
    picture(place / "t" / "train" / "kite" / "0.png")
    assert len(folder(1, data=place)[0].test) == 1
    extra = picture(place / "t" / "val" / "kite" / "0.png").parent.parent
    assert f"{extra} does not belong beside" in mistake(folder, 1, data=place)


def test_no_tasks_at_all(place):
    assert "missing" in mistake(folder, 1, data=place)
    place.mkdir()
    assert f"{place} is empty" in mistake(folder, 1, data=place)
    picture(place / "cats" / "0.png")
    assert "is a file among class folders" in mistake(folder, 1, data=place)
    picture(place / "u" / "test" / "owl" / "0.png")
    (place / "cats" / "0.png").unlink()
    (place / "cats").rmdir()
    assert f"{place / 'u' / 'train'} is missing" in mistake(folder, 1, data=place)


def test_every_policy_keeps_as_many_examples(place):
    """The memory counts the classes of the learned tasks; a class in two tasks counts twice."""
    fill(place)
    for part in ("train", "test"):
        picture(place / "c cars" / part / "van" / "0.png")

    def kept(method, **more):
        return config_for("folder", method, data=str(place), **more).memory

    per_class = kept("mdmt-r")["per_class"]
    assert kept("er") == {"policy": "Reservoir", "size": 5 * per_class}
    assert kept("mer", tasks=1) == {"policy": "Reservoir", "size": 2 * per_class}
    assert kept("gem", settings={"policy": "Reservoir", "memory": 2}) == {
        "policy": "Reservoir",
        "size": 10,
    }
    assert "missing" in mistake(config_for, "folder", "er", data=str(place / "none"))


def test_one_tasks_split_is_not_taken_for_two_tasks(place):
    for part in ("train", "test"):
        for name in ("owl", "kite"):
            picture(place / part / name / "0.png")
    message = mistake(folder, 1, data=place)
    assert f"{place} holds test and train, which are parts of one task" in message
    assert str(place / "NAME" / "train") in message
    assert message == mistake(config_for, "folder", data=str(place))
    (place / "test").rename(place / "val")
    assert f"{place} holds train and val" in mistake(folder, 1, data=place)
    (place / "val").rename(place / "ferries")
    assert [task.name for task in folder(1, data=place, image_size=8)] == ["ferries", "train"]


@pytest.mark.parametrize("suffix", ["webp", "tif", "tiff", "bmp", "gif"])
def test_other_kinds_of_images_are_read(place, suffix):
    for i in range(3):
        picture(place / "t" / "owl" / f"{i}.{suffix}", 100)
    inputs = folder(1, data=place, image_size=8)[0].train.inputs
    assert 100 < inputs.float().mean() < 140


def break_some(place):
    """Two broken images of one task, one of another."""
    fill(place)
    (place / "a birds" / "kind 0" / "00.jpg").write_text("hello")
    (place / "a birds" / "kind 1" / "01.png").write_text("hello")
    cut = picture(place / "b fish" / "kind 1" / "00.jpg", size=(60, 60))
    cut.write_bytes(cut.read_bytes()[:-400])
    return [place / "a birds" / "kind 0" / "00.jpg", place / "a birds" / "kind 1" / "01.png", cut]


def test_all_broken_images_are_in_one_list(place):
    broken = break_some(place)
    message = mistake(folder, 1, data=place, image_size=8)
    assert message.startswith("3 images cannot be read: ")
    assert message.endswith("; repair or remove them, or skip them with --skip-broken")
    assert all(str(path) in message for path in broken)


def test_broken_images_are_passed_over(place):
    broken = break_some(place)
    for _ in range(2):  # decoded, then read from the cache
        stream = folder(1, data=place, image_size=8, skip_broken=True)
        assert sum(len(task.train) + len(task.test) for task in stream) == 37
        assert all(
            stream[0].train.inputs[torch.arange(len(stream[0].train))].flatten(1).amax(1) > 0
        )
        assert stream.notes == (f"3 broken images skipped: {', '.join(map(str, broken))}",)
    assert "3 images cannot be read" in mistake(folder, 1, data=place, image_size=8)


def test_a_class_of_broken_images_alone_is_refused(place):
    fill(place, count=5)
    for path in (place / "a birds" / "kind 1").iterdir():
        path.write_text("hello")
    message = mistake(folder, 1, data=place, image_size=8, skip_broken=True)
    assert f"{place / 'a birds' / 'kind 1'} has no training images" in message


def test_a_class_without_a_test_image_is_said(place):
    fill(place)
    picture(place / "a birds" / "owl" / "0.png")
    for i in range(2):
        picture(place / "b fish" / "cod" / f"{i}.png")
    assert folder(1, data=place, image_size=8).notes == (
        f"{place / 'a birds' / 'owl'} has 1 image, too few to keep one for testing",
        f"{place / 'b fish' / 'cod'} has 2 images, too few to keep one for testing",
    )


def test_the_default_size_is_the_same_in_python_and_on_the_command_line(place):
    fill(place)
    asked = config_for("folder", data=str(place)).image_size
    for inputs in (
        folder(1, data=place)[0].train.inputs,
        folder_task(next(path for path in place.iterdir() if path.is_dir())).train.inputs,
        benchmarks.make("folder", data=place)[0].train.inputs,
    ):
        assert tuple(inputs.shape[1:]) == (3, asked, asked)


def test_folder_names_that_are_not_utf8_are_one_line(place, capsys):
    for number, inside in enumerate((b"task/owl\xff", b"task\xff/owl")):
        root = place / str(number)
        picture(root / os.fsdecode(inside) / "1.png")
        line = mistake(folder, 1, data=root)
        assert line.endswith(": the folder's name is not UTF-8; rename it")
        assert main(["run", "folder", "--data", str(root)]) == 2
        assert "not UTF-8; rename it\n" in capsys.readouterr().err
    assert main(["learn", str(place / "model"), str(place / "0" / "task")]) == 2
    assert "not UTF-8; rename it\n" in capsys.readouterr().err
