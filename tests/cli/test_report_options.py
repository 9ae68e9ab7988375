"""Which runs a report shows."""

import os

import pytest

from mdmt.cli.app import main
from mdmt.cli.report import Filter
from mdmt.runs.folder import find_runs
from mdmt.runs.paper import FIGURES
from support.run_folders import leave


@pytest.fixture
def out(tmp_path):
    leave(tmp_path, "van")
    old = leave(tmp_path, "er[lr=0.1,batch=5]")
    leave(tmp_path, "van", benchmark="split-digits")
    os.utime(old / "record.json", (1e9, 1e9))  # in 2001
    return tmp_path


@pytest.mark.parametrize(
    ("benchmark", "methods", "since", "count"),
    [
        (None, None, None, 3),
        (["split-digits"], None, None, 1),
        (None, "van", None, 2),
        (None, "er[batch=5,lr=0.1], mas", None, 1),
        (None, "er", None, 1),
        (None, None, "2002-01-01", 2),
        (["permuted-digits"], "van", "2002-01-01T12:00", 1),
    ],
)
def test_runs_are_chosen_by_benchmark_method_and_date(out, benchmark, methods, since, count):
    wanted = Filter.of(benchmark, methods, since)
    assert sum(wanted.accepts(run) for run in find_runs(out)) == count


def test_nothing_chosen_and_a_wrong_date_are_one_line(out, capsys):
    page = str(out / "page.html")
    assert main(["report", str(out), "--out", page, "--methods", "gem"]) == 2
    assert "no runs of those asked for" in capsys.readouterr().err
    assert main(["report", str(out), "--out", page, "--since", "yesterday"]) == 2
    assert "--since yesterday: write it as 2026-11-16" in capsys.readouterr().err


@pytest.mark.parametrize("name", list(FIGURES))
def test_figures_are_computed_by_one_thread_like_the_report(name, monkeypatch, tmp_path):
    variables = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    for variable in variables:
        monkeypatch.setenv(variable, "")  # so that the caller's value comes back
        monkeypatch.delenv(variable)
    pinned = []

    def run_nothing(configs, options):
        pinned.extend(os.environ.get(variable) for variable in variables)
        return [None] * len(configs), []

    monkeypatch.setattr("mdmt.cli.report.run_all_with_progress", run_nothing)
    assert main(["reproduce", name, "permuted-digits", "--out", str(tmp_path)]) == 2
    assert pinned == ["1", "1", "1"]
