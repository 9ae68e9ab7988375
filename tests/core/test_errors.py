"""A user's mistake is one line; a bug of ours keeps its traceback."""

import pytest

from mdmt.cli import app
from mdmt.errors import Mistake, summarise


def test_a_value_error_of_our_own_is_not_told_as_a_persons_mistake(monkeypatch, capsys):
    def broken(*_, **__):
        raise ValueError("not enough values to unpack (expected 2, got 1)")

    monkeypatch.setattr("mdmt.experiments.resolve.resolve", broken)
    with pytest.raises(ValueError, match="unpack"):
        app.main(["run", "split-digits"])
    assert capsys.readouterr().err == ""


def test_a_mistake_is_one_line_and_exit_code_2(monkeypatch, capsys):
    def refused(*_, **__):
        raise Mistake("lr=-1: must be more than 0")

    monkeypatch.setattr("mdmt.experiments.resolve.resolve", refused)
    assert app.main(["run", "split-digits"]) == 2
    assert capsys.readouterr().err == "mdmt: lr=-1: must be more than 0\n"


def test_a_line_break_in_a_path_does_not_cut_the_message(tmp_path, capsys):
    assert app.main(["runs", "list", str(tmp_path / "a\nb")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "a\\nb is not a folder: runs are where --out put them" in err


def test_a_foreign_error_is_cut_to_its_first_line():
    assert summarise(RuntimeError("no memory\n  at line 7")) == "RuntimeError: no memory"
    assert summarise(RuntimeError()) == "RuntimeError"
    assert summarise(Mistake("folder a\nb: choose another")) == "folder a\nb: choose another"
