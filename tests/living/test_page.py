"""Every block of the page about the living model runs, and prints what the page shows.

`python tests/living/test_page.py` writes what the commands print now into the page.
"""

import contextlib
import io
import os
import re
import shlex
import tempfile
from pathlib import Path

from mdmt.cli.app import main

PAGE = Path(__file__).parents[2] / "docs" / "living-model.md"
BLOCK = re.compile(r"^```(python|sh|text)\n(.*?)^```$", re.S | re.M)


def run_commands(block):
    """What the lines of a shell block print; a comment says if the exit code is not 0."""
    printed = io.StringIO()
    for line in block.splitlines():
        program, *arguments = shlex.split(line, comments=True)
        assert program == "mdmt"
        wanted = re.search(r"# exit code (\d)", line)
        with contextlib.redirect_stdout(printed):
            assert main(arguments) == (int(wanted[1]) if wanted else 0), line
    return "".join(f"{line.rstrip()}\n" for line in printed.getvalue().splitlines())


def outputs(text):
    """Run all blocks of a page in this folder, and yield each block of output with the real one."""
    space = {"__name__": "page"}
    printed = ""
    for match in BLOCK.finditer(text):
        kind, block = match.groups()
        if kind == "python":
            exec(compile(block, PAGE.name, "exec"), space)
        elif kind == "sh":
            printed = run_commands(block)
        else:
            yield match, printed


def words(text):
    """The text without what depends on the machine, numbers and answers, and without columns."""
    text = re.sub(r"(?m)^(test/\S+): .*", r"\1", text)
    return re.sub(r"[-+]?\d[\d.:-]*", "#", text).split()


def test_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MDMT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")  # a number that is a digit longer folds no table
    shown = [(words(match[2]), words(printed)) for match, printed in outputs(PAGE.read_text())]
    assert len(shown) == 12
    for page, real in shown:
        assert page == real


if __name__ == "__main__":
    old, new, end = PAGE.read_text(), "", 0
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        os.environ["MDMT_CACHE"] = folder
        for match, printed in outputs(old):
            new += f"{old[end : match.start()]}```text\n{printed}```"
            end = match.end()
    PAGE.write_text(new + old[end:])
