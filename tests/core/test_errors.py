"""A user's mistake is one line; a bug of ours keeps its traceback."""

import pytest

from mdmt.cli import app
from mdmt.errors import Mistake


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
