"""The commands of a living model: what they print, and their exit codes."""

import json
import shutil
import sys

import numpy as np
import pytest
import torch

import mdmt
from mdmt.cli.app import main
from mdmt.living.deliveries import example_digests
from mdmt.living.versions import Versions
from support.commands import content, out_of, refused, refused_new, run
from support.deliveries import as_folder, as_npz, delivery

pytestmark = pytest.mark.usefixtures("own_cache")


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
    assert rows["owl"] == ["100.0", "100.0", "+0.0", "3"]  # those of January
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
    assert run("learn", "birds", file, "--memory", "5kB", "--method", "er") == 0
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


def test_photos_for_a_model_with_one_channel(tmp_path, capsys):
    x = np.random.default_rng(0).integers(0, 256, (20, 1, 8, 8)).astype(np.uint8)
    np.savez(tmp_path / "grey.npz", x=x, y=np.array(["owl", "kite"] * 10))
    assert run("learn", "grey", "grey.npz", "--epochs", 1) == 0
    place = as_folder(tmp_path / "photos", ["wren"])
    assert run("learn", "grey", place, "--epochs", 1, "--holdout", 0) == 0
    assert run("evaluate", "grey", place) == 0
    capsys.readouterr()
    images = [f"{place}/wren/{number}.png" for number in range(8)]
    asked = json.loads(out_of(capsys, "predict", "grey", *images, "--json"))["answers"]
    memory = mdmt.LivingModel("grey").learner().memory
    assert {row["checksum"] for row in asked} <= set(example_digests(memory.inputs))


def test_a_list_of_examples_that_is_no_text_is_one_line(birds, tmp_path, capsys):
    place = tmp_path / "list.bin"
    place.write_bytes(b"owl/1.png\n\xec\xff")
    assert main(["forget", "birds", "--examples", str(place), "--yes"]) == 2
    assert capsys.readouterr().err.endswith("list.bin is not a list of files: it is not UTF-8\n")


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
