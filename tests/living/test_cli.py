"""The commands of a living model: what they print, their exit codes, and every mistake."""

import errno
import hashlib
import json
import os
import shutil
import sys
import unicodedata

import numpy as np
import pytest
import torch

import mdmt
from mdmt.cli.app import main
from mdmt.learner import Learner
from mdmt.living.deliveries import example_digests
from mdmt.living.versions import Versions
from mdmt.system.files import lock
from support.deliveries import as_folder, as_npz, delivery


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MDMT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def birds(tmp_path, capsys):
    """A model of two deliveries."""
    assert run("learn", "birds", as_npz(tmp_path / "january.npz", ["owl", "kite"])) == 0
    assert run("learn", "birds", as_npz(tmp_path / "february.npz", ["robin"], seed=1)) == 0
    capsys.readouterr()
    return tmp_path / "birds"


def run(*arguments):
    return main([str(argument) for argument in arguments])


def out_of(capsys, *arguments):
    assert run(*arguments) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def refused(capsys, *arguments):
    """The one line with which a command refuses."""
    capsys.readouterr()
    assert run(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    return err


def content(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


# What the commands print.


def test_learn_says_what_it_uses_and_what_changed(tmp_path, capsys):
    out = out_of(capsys, "learn", "birds", as_npz(tmp_path / "january.npz", ["owl", "kite"]))
    first, *rest = out.splitlines()
    assert first.startswith("learning january (60 examples): memory 50.0 MB (default), method ")
    assert first.endswith("network mlp (default)")
    assert any(line.split()[:2] == ["owl", "new"] for line in rest)
    file = as_npz(tmp_path / "more.npz", ["owl", "wren"], seed=3)
    out = out_of(capsys, "learn", "birds", file, "--name", "february", "--memory", "20kB")
    first, *rest = out.splitlines()
    assert first.startswith("learning february (60 examples): memory 20 kB, method ")
    assert "default" not in first
    rows = {line.split()[0]: line.split()[1:] for line in rest}
    assert rows["wren"][0] == "new"
    assert rows["owl"] == ["100.0", "100.0", "+0.0", "6"]
    assert rest[-1].startswith("version 2, accuracy 100.0 % on held-back examples")


def test_progress_is_on_stderr_and_quiet_shows_none(tmp_path, capsys):
    file = as_npz(tmp_path / "january.npz", ["owl", "kite"])
    assert run("learn", "one", file) == 0
    assert "january: learned" in capsys.readouterr().err
    assert run("learn", "two", file, "--quiet") == 0
    assert capsys.readouterr().err == ""
    assert run("learn", "three", file, "--json") == 0
    out, err = capsys.readouterr()
    assert err == ""
    lesson = json.loads(out)
    assert lesson["promoted"] is True
    assert {change["label"] for change in lesson["changes"]} == {"owl", "kite"}


def test_a_version_that_forgets_too_much_is_kept_and_can_be_promoted(tmp_path, capsys):
    file = as_npz(tmp_path / "january.npz", ["owl", "kite"])
    assert run("learn", "birds", file, "--memory", "5kB") == 0
    x, _ = delivery(["owl"], count=300, seed=3)
    np.savez(tmp_path / "bad.npz", x=x, y=np.array(["kite"] * 300))
    capsys.readouterr()
    assert run("learn", "birds", "bad.npz", "--max-forgetting", "0.02") == 3
    assert "to use it: mdmt rollback birds --to 2" in capsys.readouterr().out
    assert mdmt.LivingModel("birds").version == 1
    assert "version 2 is the current one" in out_of(capsys, "rollback", "birds", "--to", 2)
    assert "version 1 is the current one" in out_of(capsys, "rollback", "birds")
    assert "is the first one" in refused(capsys, "rollback", "birds")


def test_predict_answers_for_arrays_and_tables(birds, tmp_path, capsys):
    x, y = delivery(["owl", "robin"], count=2, seed=9)
    np.save(tmp_path / "x.npy", x)
    lines = out_of(capsys, "predict", "birds", "x.npy", "--top", 2).splitlines()
    assert [line.split()[:2] for line in lines] == [
        [f"x.npy[{row}]:", label] for row, label in enumerate(y)
    ]
    assert all(line.count("%") == 2 for line in lines)
    np.savez(tmp_path / "one.npz", x=x[0])
    table = "\n".join(",".join(map(str, row)) for row in [range(12), *x.tolist()])
    (tmp_path / "x.csv").write_text(table)
    out = out_of(capsys, "predict", "birds", "one.npz", "x.csv", "--json")
    found = json.loads(out)
    assert found["version"] == 2
    assert [row["label"] for row in found["answers"]] == ["owl", *y]
    assert found["answers"][0]["checksum"] == example_digests(torch.tensor(x[:1]))[0]
    np.save(tmp_path / "between.npy", (x[:1] + x[2:3]) / 2)
    out = out_of(capsys, "predict", "birds", "between.npy", "--reject", 1)
    assert out.startswith("between.npy[0]: unknown (")
    out = out_of(capsys, "predict", "birds", "one.npz", "--task", "february")
    assert out.startswith("one.npz[0]: robin 100.0 %")


def test_images_are_decoded_as_the_model_reads_them(tmp_path, capsys):
    place = as_folder(tmp_path / "january", ["owl", "kite"])
    assert run("learn", "birds", place, "--image-size", 8, "--epochs", 2) == 0
    assert run("learn", "birds", as_folder(tmp_path / "february", ["robin"], seed=1)) == 0
    assert "decoding 8 images" in capsys.readouterr().err
    files = [tmp_path / "january" / c / "0.png" for c in ("owl", "kite")]
    found = json.loads(out_of(capsys, "predict", "birds", *files, "--json"))
    model = mdmt.LivingModel("birds")
    assert model.input_shape == (3, 8, 8)
    kept = example_digests(model.learner().memory.inputs)
    held_back = json.loads(out_of(capsys, "info", "birds", "--json"))
    assert [row["input"] for row in found["answers"]] == list(map(str, files))
    assert sum(row["checksum"] in kept for row in found["answers"]) >= 1
    assert {c["label"] for c in held_back["classes"]} == {"owl", "kite", "robin"}
    (tmp_path / "gone.txt").write_text(f"{files[0]}\n{files[1]}\n")
    assert "removed: 2 examples" in out_of(
        capsys, "forget", "birds", "--examples", "gone.txt", "--yes"
    )


def test_grey_images_for_a_model_with_one_channel(tmp_path, capsys):
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (20, 1, 8, 8)).astype(np.uint8)
    np.savez(tmp_path / "grey.npz", x=x, y=np.arange(20) % 2)
    assert run("learn", "grey", "grey.npz", "--epochs", 1) == 0
    capsys.readouterr()
    place = as_folder(tmp_path / "photos", ["owl"], count=1)
    out = out_of(capsys, "predict", "grey", f"{place}/owl/0.png", "--json")
    assert json.loads(out)["answers"][0]["label"] in (0, 1)


def test_evaluate_on_held_back_examples_and_on_data(birds, tmp_path, capsys):
    out = out_of(capsys, "evaluate", "birds")
    assert "version 2 on held-back examples: accuracy 100.0 %" in out
    assert "calibration error" in out
    assert "without the temperature" in out
    file = as_npz(tmp_path / "test.npz", ["owl", "robin"], seed=9)
    found = json.loads(out_of(capsys, "evaluate", "birds", file, "--json"))
    assert found["accuracy"] == 1.0
    assert {c["label"]: c["examples"] for c in found["classes"]} == {"owl": 30, "robin": 30}
    x, y = delivery(["owl"], seed=9)
    rows = [
        ["bird", *range(12)],
        *([label, *row] for label, row in zip(y, x.tolist(), strict=True)),
    ]
    (tmp_path / "test.csv").write_text("\n".join(",".join(map(str, row)) for row in rows))
    assert "accuracy 100.0 %" in out_of(capsys, "evaluate", "birds", "test.csv", "--label", "bird")


def test_info(birds, capsys):
    out = out_of(capsys, "info", "birds")
    assert out.startswith("birds: version 2, 3 classes\n")
    assert "of 50.0 MB" in out
    assert "--reject 0." in out or "--reject 1." in out
    lines = [line.split() for line in out.splitlines()]
    assert ["owl", "27", "3"] in lines
    assert any(line[:1] == ["january"] and line[-2:] == ["kite,", "owl"] for line in lines)
    assert any(line[:2] == ["2", "(current)"] for line in lines)
    found = json.loads(out_of(capsys, "info", "birds", "--json"))
    stored = [Versions(birds).open(2).files[part]["file"] for part in ("memory", "held_back")]
    assert found["memory"]["bytes"] == sum((birds / file).stat().st_size for file in stored)
    assert [one["name"] for one in found["deliveries"]] == ["january", "february"]
    assert found["interrupted"] is None


def test_classes_that_are_numbers_are_found_by_their_text(tmp_path, capsys):
    x, y = delivery([3, 7])
    np.savez(tmp_path / "digits.npz", x=x, y=np.array(y))
    assert run("learn", "digits", "digits.npz") == 0
    capsys.readouterr()
    assert "classes: 3, 7" in refused(capsys, "forget", "digits", "--class", "5", "--yes")
    assert "classes: 3" in out_of(capsys, "forget", "digits", "--class", "3", "--yes")
    assert mdmt.LivingModel("digits").classes == [7]


def test_the_text_of_a_table_is_a_number_if_the_model_knows_that_number(tmp_path, capsys):
    x, y = delivery([3, 7])
    np.savez(tmp_path / "digits.npz", x=x, y=np.array(y))
    assert run("learn", "digits", "digits.npz", "--quiet") == 0
    x, y = delivery([3, 8], seed=1)
    rows = [["digit", *range(12)], *([c, *row] for c, row in zip(y, x.tolist(), strict=True))]
    (tmp_path / "more.csv").write_text("\n".join(",".join(map(str, row)) for row in rows))
    assert run("learn", "digits", "more.csv", "--label", "digit", "--quiet") == 0
    assert mdmt.LivingModel("digits").classes == [3, 7, "8"]
    capsys.readouterr()
    out = out_of(capsys, "evaluate", "digits", "more.csv", "--label", "digit")
    assert "version 2 on more.csv: accuracy 100.0 %" in out


def test_forget_says_what_is_gone_and_what_may_be_left(birds, capsys):
    out = out_of(capsys, "forget", "birds", "--class", "robin", "--yes")
    assert "removed: 30 examples; classes: robin" in out
    assert "removed versions: 2\n" in out
    assert "may still hold traces" in out
    assert "mdmt data cache --clear" in out
    assert mdmt.LivingModel("birds").classes == ["kite", "owl"]


def test_a_rebuilt_network_is_new(birds, capsys):
    out = out_of(capsys, "forget", "birds", "--task", "february", "--rebuild", "--yes", "--quiet")
    assert "the network is new" in out
    assert "may still hold traces" not in out
    assert [version.number for version in mdmt.LivingModel("birds").versions] == [3]


def test_a_rebuilt_network_may_start_from_weights_of_a_file(birds, capsys):
    shutil.copytree("birds", "again")
    network = mdmt.LivingModel("birds").learner().backbone
    network.draw(torch.Generator().manual_seed(7))
    first = network.state_dict()
    torch.save(first, "first.pt")
    forget = ["--class", "robin", "--rebuild", "--yes", "--quiet"]
    before = content(birds)
    assert "nowhere.pt is missing" in refused(
        capsys, "forget", "birds", *forget, "--weights", "nowhere.pt"
    )
    assert "--rebuild" in refused(
        capsys, "forget", "birds", "--class", "robin", "--yes", "--weights", "first.pt"
    )
    assert content(birds) == before
    assert run("forget", "birds", *forget, "--weights", "first.pt") == 0
    assert run("forget", "again", *forget) == 0
    warm, cold = (
        sum(float((value - first[key]).norm()) for key, value in weights.items())
        for weights in (
            mdmt.LivingModel(name).learner().backbone.state_dict() for name in ("birds", "again")
        )
    )
    assert warm < cold / 2


@pytest.mark.parametrize(
    "command", [["forget", "birds", "--class", "owl"], ["prune", "birds", "--keep", "1"]]
)
def test_nothing_is_removed_without_an_answer(birds, command, capsys, monkeypatch):
    before = content(birds)
    assert "--yes" in refused(capsys, *command)
    assert content(birds) == before
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    for answer, removed in ((False, False), (True, True)):
        monkeypatch.setattr("typer.confirm", lambda *_, answer=answer, **__: answer)
        assert run(*command) == 0
        assert ("nothing was removed" not in capsys.readouterr().out) == removed
        assert (content(birds) != before) == removed


def test_prune(birds, capsys):
    assert out_of(capsys, "prune", "birds", "--keep", 1, "--yes") == "removed versions: 1\n"
    assert out_of(capsys, "verify", "birds") == "version 2: whole\n"


NETWORK = """
import torch
class Net(torch.nn.Sequential):
    def __init__(self, width=5):
        super().__init__(torch.nn.Linear(12, width), torch.nn.ReLU())
class Other(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(12, 3))
"""


def test_a_network_of_the_users_own(tmp_path, capsys):
    (tmp_path / "my_network.py").write_text(NETWORK)
    own = ["--backbone", "./my_network.py:Net[width=16]"]
    january = as_npz(tmp_path / "january.npz", ["owl", "kite"])
    assert "network Net" in out_of(capsys, "learn", "birds", january, *own)
    february = as_npz(tmp_path / "february.npz", ["robin"], seed=1)
    for command in (
        ["learn", "birds", february],
        ["predict", "birds", february],
        ["evaluate", "birds"],
    ):
        assert "on the command line --backbone" in refused(capsys, *command)
    assert run("learn", "birds", february, *own) == 0
    assert "february.npz[29]: robin " in out_of(capsys, "predict", "birds", february, *own)
    assert out_of(capsys, "verify", "birds") == "version 1: whole\nversion 2: whole\n"
    other = ["--backbone", "./my_network.py:Other"]
    assert "is the backbone" in refused(capsys, "predict", "birds", february, *other)
    assert "knows its network" in refused(capsys, "predict", "birds", february, "--backbone", "mlp")
    assert run("forget", "birds", "--class", "owl", "--rebuild", "--yes", "--quiet", *own) == 0


def test_first_weights_from_a_file(tmp_path, capsys):
    january = as_npz(tmp_path / "january.npz", ["owl", "kite"])
    assert run("learn", "first", january) == 0
    module = mdmt.LivingModel("first").learner().backbone
    torch.save(module.state_dict(), "weights.pt")
    torch.save({"other": torch.zeros(2)}, "wrong.pt")
    assert (
        run("learn", "warm", january, "--weights", "weights.pt", "--epochs", 1, "--lr", 1e-9) == 0
    )
    warm = mdmt.LivingModel("warm").learner().backbone
    for name, value in module.state_dict().items():
        torch.testing.assert_close(warm.state_dict()[name], value)
    assert "not a state dict of mlp" in refused_new(
        capsys, tmp_path, january, "--weights", "wrong.pt"
    )
    assert "is missing" in refused_new(capsys, tmp_path, january, "--weights", "nowhere.pt")


def refused_new(capsys, tmp_path, *arguments):
    """A first delivery that is refused leaves no folder; the first line may say what was asked."""
    capsys.readouterr()
    assert run("learn", "new", *arguments, "--json") == 2
    assert not (tmp_path / "new").exists()
    return capsys.readouterr().err


# Mistakes: one line, exit code 2, nothing changed on disk.


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
