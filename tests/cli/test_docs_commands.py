"""The commands that README and docs show: every one has options that exist, those that need no
downloads and no cluster run, as do the recipe of `make run` and the example of several ranks.
"""

import contextlib
import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from mdmt.cli.app import app, main
from mdmt.learner import Learner
from support.ranks import fork_ranks

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "RESULTS.md", *DOCS.glob("*.md")]
BLOCK = re.compile(r"^```[^\n]*\n(.*?)^```$", re.S | re.M)
PARTS = r"\$\(\(.*?\)\)"  # arithmetic of the shell
SMALL = ["--tasks", "2", "--subset", "30", "--seeds", "1", "--workers", "1"]
MINE = """
import numpy as np
import mdmt
from torch import nn

random = np.random.default_rng(0)

class Net(nn.Sequential):
    def __init__(self, width=8):
        super().__init__(nn.Linear(6, width), nn.ReLU())

class LwF(mdmt.ER):
    pass

def task(name):
    x = random.normal(size=(60, 6)).astype("float32")
    return mdmt.Task(name, x[:40], x[:40, 0] > 0, test=(x[40:], x[40:, 0] > 0))

stream = mdmt.Stream("mine", [task("one"), task("two")])
months = [task("january"), task("february")]
"""


def shown_commands(page):
    """The arguments of each `mdmt ...` in the blocks and the text of a page."""
    text = page.read_text()
    lines = [line for block in BLOCK.findall(text) for line in block.splitlines()]
    inline = re.findall(r"`([^`]+)`", BLOCK.sub("", text))
    for line in [*lines, *(" ".join(one.split()) for one in inline)]:
        match = re.search(r"(?:^|-m |srun |/)mdmt (?!:|--install-completion)(.*)", line)
        if match:
            alone = re.sub(r" \\?\| .*", "", match[1])  # without what it is piped to
            yield shlex.split(re.sub(PARTS, "1", alone), comments=True)


def wrong(command, arguments):
    """What is wrong with the arguments of a command, which is not run; None if nothing is.

    A command that lacks an argument is a mention of its name.
    """
    if hasattr(command, "commands"):
        if not arguments or arguments[0].startswith("-"):
            return None
        inner = command.commands.get(arguments[0])
        return wrong(inner, arguments[1:]) if inner else f"there is no command {arguments[0]}"
    try:
        command.make_context("mdmt", list(arguments))
    except Exception as error:  # typer may bring a click of its own
        return None if type(error).__name__ == "MissingParameter" else str(error)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_have_options_that_exist(page):
    commands = list(shown_commands(page))
    for arguments in commands:
        assert wrong(get_command(app), arguments) is None, f"mdmt {shlex.join(arguments)}"
    assert commands or "mdmt run" not in page.read_text()


def table_of_commands(page):
    rows = re.findall(r"^\| `mdmt ([^`]+)` \|", page.read_text(), re.M)
    return [shlex.split(row) for row in rows]


@pytest.fixture
def own_modules(tmp_path, monkeypatch):
    """A folder with the files that the pages name."""
    for name in ("mymodule", "streams", "nets", "lwf"):
        (tmp_path / f"{name}.py").write_text(MINE)
        monkeypatch.setitem(sys.modules, name, None)  # so that it is gone again afterwards
        del sys.modules[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.long
def test_the_commands_of_the_first_steps_run(own_modules, capsys):
    """Without those that download, need photos of yours, serve, or test each network."""
    left_out = {"watch", "doctor", "fetch", "folder", "rerun"}
    done = []
    for arguments in table_of_commands(DOCS / "start.md"):
        if not left_out & set(arguments):
            small = SMALL if arguments[0] in ("run", "compare", "tune") else []
            assert main([*arguments, *small]) == 0, arguments
            done.append(arguments[0])
            assert capsys.readouterr().out
    assert done == ["run"] * 4 + ["compare", "tune", "report", "runs", "list", "data", "run"]
    assert Path("report.html").is_file()


def test_the_commands_of_own_data_run(own_modules, capsys):
    section = (DOCS / "your-data.md").read_text().split("## Your own stream")[1]
    lines = BLOCK.search(section)[1].splitlines()
    assert len(lines) == 3
    for line in lines:
        arguments = shlex.split(line, comments=True)[1:]
        assert main([*arguments, "--workers", "1", "--seeds", "1"]) == 0, line
        assert "A_T" in capsys.readouterr().out


@pytest.mark.long
def test_make_run_prints_a_table_and_writes_a_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    recipe = re.search(r"^run:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)[1]
    for line in recipe.splitlines():
        program, *arguments = shlex.split(line.strip().removeprefix("@"))
        assert program == "$(BIN)/mdmt"
        small = SMALL if arguments[0] == "compare" else []
        assert main([*arguments, *small]) == 0
    out = capsys.readouterr().out
    for method in ("van", "ewc", "a-gem", "er", "mega", "mdmt-r"):
        assert re.search(rf"^ *{method} ", out, re.M)
    assert Path("runs/report.html").is_file()


def test_the_program_on_several_ranks_runs(tmp_path, monkeypatch):
    (block,) = re.findall(r"```python\n(.*?)```", (DOCS / "scale.md").read_text(), re.S)
    small = block.replace("tasks=2", "tasks=2, subset=60")
    assert small != block
    monkeypatch.chdir(tmp_path)

    def work():
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            exec(compile(small, "scale.md", "exec"), {"__name__": "page"})

    assert fork_ranks(2, work) == [0, 0]
    assert len(Learner.load("model").tasks) == 2
