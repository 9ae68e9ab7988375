"""Whatever the command line says: exit code 0, or one line that says what is wrong and code 2.

What takes time is left out: a command ends with code 0 where it would begin to learn, to measure,
to download or to serve.
"""

import contextlib
import io
import shutil
import sys

import numpy as np
import pytest
import typer
from hypothesis import HealthCheck, given, settings
from PIL import Image

import mdmt
from fuzz.command_lines import commands, lines
from mdmt.cli.app import app, main
from support.deliveries import delivery
from support.run_folders import leave

TABLE = commands()
WORK = (
    "mdmt.cli.doctor.run_check",
    "mdmt.cli.report._figures",
    "mdmt.data.fetch._download_and_install",
    "mdmt.data.fetch.fetch_weights",
    "mdmt.experiments.cluster.Cluster",
    "mdmt.experiments.cost.measure",
    "mdmt.experiments.rerun.rerun",
    "mdmt.experiments.resolve.fetch_weights",
    "mdmt.experiments.run.run",
    "mdmt.experiments.sweep.run_all",
    "mdmt.living.forgetting.forget",
    "mdmt.living.lessons.Teacher.teach",
    "mdmt.living.model_folder.LivingModel.export_onnx",
    "mdmt.living.model_folder.LivingModel.prune",
    "mdmt.living.web_app.make_server",
    "mdmt.report.server.make_server",
    "mdmt.runs.folder.RunFolder.remove",
)
NOTES = ("ablate", "cost", "report", "table2", "tune")  # commands that say what they will do


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with runs, a model, data and photos, which is the current one; paths lead inside."""
    place = tmp_path_factory.mktemp("a") / "b" / "c"
    place.mkdir(parents=True)
    (place / "empty").mkdir()
    leave(place / "runs", "er", benchmark="split-digits")
    x, y = delivery("ab", count=10)
    mdmt.LivingModel(place / "model").learn((x, y), "first", epochs=1, backbone="mlp")
    np.savez(place / "data.npz", x=x, y=np.array(y))
    (place / "data.csv").write_text("x,c\n1,a\n2,b\n")
    (place / "text.txt").write_text("some words\n")
    (place / "broken.py").write_text("1 / 0\n")
    (place / "leaves.py").write_text("import sys\nsys.exit(3)\n")
    for name in ("a", "b"):
        (place / "photos" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(place / "photos" / name / "1.png")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.syspath_prepend(str(place))
        patch.setenv("MDMT_CACHE", str(place / "cache"))
        patch.setenv("MDMT_DATA", str(place / "missing"))
        tree = typer.main.get_command(app)  # typer makes it anew for every call
        patch.setattr("typer.main.get_command", lambda _: tree)
        for name in WORK:
            patch.setattr(name, _done)
        yield place


def _done(*_, **__):
    raise typer.Exit(0)


def attempt(line):
    """The exit code of a command line, with what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(sys, "stdin", io.StringIO())
        code = main(line)
    shutil.rmtree("new", ignore_errors=True)
    return code, out.getvalue(), err.getvalue()


def check(line):
    code, _, err = attempt(line)
    said = err.splitlines(keepends=True)
    if {*line[:2]} & {*NOTES} or "--preset" in line or "[y/N]" in err:
        said = said[-1:]
    assert code in (0, 2), (line, code, err)
    if code == 2:
        assert len(said) == 1, (line, err)
        assert said[0].startswith("mdmt: "), (line, err)
        assert said[0].endswith("\n"), (line, err)


def trying(count):
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def test_every_command_is_in_the_grammar():
    assert {words[0] for words in TABLE} >= {"run", "compare", "learn", "forget", "runs", "data"}
    kinds = {parameter.kind for parameters in TABLE.values() for parameter in parameters}
    assert kinds == {bool, int, float, str}


@pytest.mark.long
def test_any_command_line_works_or_says_what_is_wrong(place):
    trying(2000)(given(lines(TABLE))(check))()
