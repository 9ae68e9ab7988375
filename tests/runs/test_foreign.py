"""A run folder that somebody else wrote, or that was changed by hand: no command crashes on it,
leaves the folder it was given, imports what it names, or lets it speak to the terminal; its
neighbours are still shown.
"""

import json
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from mdmt.cli.app import main
from mdmt.experiments.run import run
from mdmt.report.server import LivePage
from mdmt.runs.config import folder_of
from mdmt.runs.folder import RunFolder
from mdmt.system.state import _digest
from support.configs import config_for

ESCAPE = "\x1b]0;owned\x07\x1b[2Jx\x9b31m\r\n\u202e"
CHANGES = {
    "dropped": None,  # handled apart
    "text": "x",
    "list": [1],
    "object": {"a": {}},
    "null": None,
    "flag": True,
    "zero": 0,
    "negative": -1,
    "huge": 10**30,
    "float": 1e308,
    "nan": float("nan"),
    "infinite": float("inf"),
    "path": "../../../evil",
    "absolute": "OUTSIDE",
    "escape": ESCAPE,
    "long": "x" * 5000,
}
KEYS = {}
KEYS["config.json"] = (
    "benchmark",
    "tasks",
    "heads",
    "method",
    "arguments",
    "memory",
    "backbone",
    "lr",
    "batch",
    "epochs",
    "optimiser",
    "image_size",
    "subset",
    "weights",
    "weights_file",
    "data",
    "cross_validation",
    "source",
    "seed",
    "threads",
    "device",
    "precision",
    "label",
    "memory.policy",
    "memory.per_class",
    "backbone.name",
    "backbone.arguments",
    "backbone.arguments.width",
    "backbone.arguments.inputs",
    "arguments.task_margin",
    "arguments.reading",
    "arguments.distance",
)
KEYS["record.json"] = (
    "accuracy",
    "accuracy_task_free",
    "curve",
    "drift",
    "dead_features",
    "dead_features.0",
    "feature_rank",
    "feature_rank.1",
    "anytime",
    "anytime.steps",
    "anytime.accuracy.0.0",
    "tasks",
    "seconds",
    "steps",
    "memory_bytes",
    "buffer_bytes",
    "weights_sha256",
    "metrics",
    "versions",
    "reduced",
    "finished",
    "metrics.A_T",
    "accuracy.0",
    "accuracy.0.0",
    "accuracy_task_free.1.0",
    "curve.0",
    "curve.0.1",
    "drift.1.0",
    "tasks.0",
    "tasks.0.name",
    "tasks.0.classes",
    "tasks.0.train",
    "tasks.1.test",
    "versions.torch",
    "reduced.tasks",
    "reduced.subset",
)
KEYS["checkpoint/state.json"] = (
    "format",
    "files",
    "files.steps",
    "files.steps.file",
    "files.steps.sha256",
    "state",
    "state.tasks",
    "state.open",
    "state.done",
    "state.record",
    "state.record.accuracy",
    "state.record.accuracy.0",
    "state.record.accuracy.0.0",
    "state.record.curve",
    "state.record.curve.0",
    "state.record.tasks",
    "state.record.tasks.0.name",
    "state.record.seconds",
    "state.record.steps",
    "state.record.memory_bytes",
    "state.record.drift",
    "state.record.dead_features",
    "state.record.feature_rank.0",
)


SETTINGS = {
    "mdmt-r": ("memory=1", "reference_batch=2"),
    "van": (),
    "er": ("memory=1", "reference_batch=2"),
}


class Enough(Exception):
    pass


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """A finished run of a few steps (mdmt-r), a neighbour (van), and one that was stopped (er)."""
    out = tmp_path_factory.mktemp("originals")

    def stop(learner):
        if learner.record.steps == 3:
            raise Enough

    for method, settings in SETTINGS.items():
        options = dict(setting.split("=") for setting in settings)
        config = config_for(
            "permuted-digits", method, tasks=2, subset=20, evaluate_every=1, settings=options
        )
        with suppress(Enough):
            run(config, out, every=1, on_step=stop if method == "er" else None)
    for path in out.rglob("snapshots.safetensors"):
        path.unlink()  # drawing them takes seconds
    return out


def original_of(name, originals):
    method = "er" if name.startswith("checkpoint") else "mdmt-r"
    return next((originals / "permuted-digits" / method).glob("*/*"))


@pytest.fixture
def world(tmp_path, monkeypatch, originals):
    """A folder in which all that a command could write, wherever that is, can be seen."""
    for name in ("work", "temporary", "outside"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("COLUMNS", "200")
    shutil.copytree(
        originals / "permuted-digits" / "van",
        tmp_path / "work" / "runs" / "permuted-digits" / "van",
    )
    return tmp_path


def change(world, originals, name, key, kind):
    """A copy of a run in which one key of a file is changed."""
    original = original_of(name, originals)
    content = json.loads((original / name).read_text())
    *above, last = (int(part) if part.isdecimal() else part for part in key.split("."))
    place = content
    for part in above:
        place = place[part]
    if kind == "dropped":
        del place[last]
    else:
        place[last] = str(world / "outside" / "x") if kind == "absolute" else CHANGES[kind]
    folder = Path("runs", key, kind, original.name)
    shutil.copytree(original, folder)
    (folder / "checkpoint" / "previous.json").unlink(missing_ok=True)  # it would be read instead
    if "sha256" in content:  # of a manifest: whoever changes the rest can change it too
        del content["sha256"]
        content["sha256"] = _digest(content)
    (folder / name).write_text(json.dumps(content))
    return folder


def files(world):
    """All that lies there but what the report may write: its page and its cache."""
    paths = [
        path
        for path in world.rglob("*")
        if path.name != "report.html" and ".tsne" not in path.parts
    ]
    return {path: path.read_bytes() if path.is_file() else None for path in paths}


def said(capsys, *arguments):
    """What a command prints: whatever its exit code, no traceback, and nothing that a terminal
    would obey.
    """
    assert main([str(argument) for argument in arguments]) in (0, 1, 2), arguments
    out, err = capsys.readouterr()
    for text in (out, err):
        assert not [letter for letter in text if not (letter.isprintable() or letter == "\n")], (
            arguments,
            text,
        )
        assert "Traceback" not in text
    return out


def list_and_report(capsys, folders):
    listed = said(capsys, "runs", "list", "runs")
    assert [
        line for line in listed.splitlines() if line.startswith("van ") and " finished " in line
    ]
    runs = json.loads(said(capsys, "runs", "list", "runs", "--json"))["runs"]
    assert {run["path"] for run in runs} >= {str(folder) for folder in folders}
    assert said(capsys, "report", "runs", "--out", "report.html").startswith("report.html: ")
    assert ">van<" in Path("report.html").read_text()


def show_and_rerun(capsys, folder):
    for form in ([], ["--json"], ["--csv"]):
        said(capsys, "runs", "show", folder, *form)
    said(capsys, "rerun", folder, "--quiet")


ALL = [(name, key, kind) for name, keys in KEYS.items() for key in keys for kind in CHANGES]


@pytest.mark.parametrize("name", KEYS)
def test_changed_runs_are_listed_and_reported_beside_their_neighbour(
    world, originals, capsys, name
):
    chosen = [one for one in ALL if one[0] == name][::3]  # the long test does all of them
    folders = [change(world, originals, *one) for one in chosen]
    before = files(world)
    list_and_report(capsys, folders)
    assert files(world) == before


def test_changed_runs_are_shown_and_rerun(world, originals, capsys):
    folders = [change(world, originals, *one) for one in ALL[::37]]
    before = files(world)
    for folder in folders:
        show_and_rerun(capsys, folder)
    assert files(world) == before


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "key"), [(name, key) for name, keys in KEYS.items() for key in keys]
)
def test_every_changed_run_by_itself(world, originals, capsys, name, key):
    folders = [change(world, originals, name, key, kind) for kind in CHANGES]
    before = files(world)
    for folder in folders:
        show_and_rerun(capsys, folder)
    list_and_report(capsys, folders)
    assert files(world) == before


@pytest.mark.parametrize("key", ["benchmark", "method", "seed"])
@pytest.mark.parametrize("kind", ["path", "absolute"])
def test_a_path_as_a_name_leads_nowhere(world, originals, capsys, key, kind):
    folder = change(world, originals, "config.json", key, kind)
    before = files(world)
    assert main(["rerun", str(folder)]) == 2
    assert f"{key} is " in capsys.readouterr().err
    assert files(world) == before


@pytest.fixture
def evil(world, monkeypatch):
    """A module in the current folder that leaves a mark when it is imported, and the changes to a
    run that name it: as its method, its network and its stream.
    """
    mark = world / "imported"
    for file in (Path("evil.py"), Path("deep", "__init__.py"), Path("deep", "inner.py")):
        file.parent.mkdir(exist_ok=True)
        file.write_text(
            f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n"
            "import mdmt\n\n\nclass Evil(mdmt.VAN):\n    pass\n"
        )
    monkeypatch.syspath_prepend(str(world / "work"))
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    yield mark
    for name in ("evil", "deep", "deep.inner"):
        sys.modules.pop(name, None)


def naming(originals, **changes):
    """A copy of a run whose configuration is changed."""
    folder = Path("runs", "foreign", "1234")
    shutil.copytree(original_of("config.json", originals), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    return folder


METHOD = {"method": "evil:Evil", "arguments": {}}
NETWORK = {"backbone": {"name": "evil:Evil", "arguments": {}}}
STREAM = {"benchmark": "evil:Evil"}
NAMING = [METHOD, NETWORK, STREAM, {**METHOD, "method": "deep.inner:Evil"}]


@pytest.mark.parametrize("changes", NAMING)
def test_what_a_folder_names_is_not_imported_by_those_who_only_read(
    evil, originals, capsys, changes
):
    folder = naming(originals, **changes)
    list_and_report(capsys, [folder])
    for form in ([], ["--json"], ["--csv"]):
        assert main(["runs", "show", str(folder), *form]) == 0
    assert b">van<" in LivePage(Path("runs")).html()
    moved = folder_of(RunFolder(folder).config, "elsewhere")  # where a run of this config would be
    shutil.copytree(folder, moved)
    assert main(["runs", "remove", str(moved), "--yes"]) == 0
    assert not moved.exists()
    assert not evil.exists()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (METHOD, "the method evil:Evil from {work}/evil.py"),
        (NETWORK, "the network evil:Evil from {work}/evil.py"),
        (STREAM, "the stream evil:Evil from {work}/evil.py"),
        ({**METHOD, "method": "evil.py:Evil"}, "the method evil.py:Evil from {work}/evil.py"),
        (
            {**METHOD, "method": "deep.inner:Evil"},
            "the method deep.inner:Evil from {work}/deep/inner.py",
        ),
        (
            {**METHOD, **STREAM, "benchmark": "nothing:x"},
            "the stream nothing:x, whose file was not found, and the method evil:Evil from"
            " {work}/evil.py",
        ),
    ],
)
def test_rerun_asks_before_it_imports_what_a_folder_names(
    world, evil, originals, capsys, changes, told
):
    folder = naming(originals, **changes)
    before = [*sys.path]
    assert main(["rerun", str(folder), "--quiet"]) == 2
    assert capsys.readouterr().err == (
        f"mdmt: {folder} names code that would be imported and run:"
        f" {told.format(work=world / 'work')}; if you trust it, add --trust\n"
    )
    assert not evil.exists()
    assert sys.path == before


def test_rerun_with_trust_imports_it(evil, originals, capsys):
    folder = naming(originals, **METHOD)
    assert main(["rerun", str(folder), "--quiet", "--trust"]) == 1
    assert "not bit-identical" in capsys.readouterr().out
    assert evil.exists()


def test_names_of_folders_are_text_too(world, originals, capsys):
    for name in ("\x1b[2J", "a\nb", "\udcff", "[red]"):
        shutil.copytree(original_of("record.json", originals), Path("runs", name))
    Path("runs", "a\nb", "config.json").unlink()
    list_and_report(capsys, [Path("runs", "[red]")])
    for name in ("\x1b[2J", "a\nb", "\udcff"):
        said(capsys, "runs", "show", Path("runs", name))
        said(capsys, "runs", "remove", Path("runs", name), "--yes")


@pytest.mark.parametrize(
    "name", ["config.json", "record.json", "steps.csv", "snapshots.safetensors", "failed.json"]
)
def test_a_file_that_is_none(world, originals, capsys, name):
    """A folder in its place, a pipe, and bytes of anything."""
    folders = [Path("runs", kind) for kind in ("folder", "pipe", "bytes", "empty")]
    for folder in folders:
        shutil.copytree(original_of("record.json", originals), folder)
        (folder / name).unlink(missing_ok=True)
    (folders[0] / name).mkdir()
    os.mkfifo(folders[1] / name)
    (folders[2] / name).write_bytes(bytes(range(256)))
    (folders[3] / name).touch()
    list_and_report(capsys, folders)
    for folder in folders:
        show_and_rerun(capsys, folder)


@pytest.mark.parametrize(
    "change", [{"memory": {"policy": "Ring", "per_class": 10**9}}, {"backbone.width": 10**6}]
)
def test_what_no_machine_can_hold_is_one_line(world, originals, capsys, change):
    folder = Path("runs", "huge", "1234")
    shutil.copytree(original_of("record.json", originals), folder)
    config = json.loads((folder / "config.json").read_text())
    config["memory"] = change.get("memory", config["memory"])
    config["backbone"]["arguments"]["width"] = change.get(
        "backbone.width", config["backbone"]["arguments"]["width"]
    )
    (folder / "config.json").write_text(json.dumps(config))
    assert main(["rerun", str(folder), "--quiet"]) == 2
    err = capsys.readouterr().err
    assert "out of memory" in err
    assert err.count("\n") == 1
