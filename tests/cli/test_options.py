"""The options of all commands: each from one place, with its defaults, as help shows them."""

import json
import os
import subprocess
import sys
from dataclasses import fields

import pytest
import torch
import typer

from mdmt.cli.app import main
from mdmt.cli.options import WORDS, Methods, RunOptions, command
from mdmt.errors import Mistake
from mdmt.methods import METHODS
from support.configs import config_for

COMMANDS = ["run", "compare", "ablate", "cost", "tune", "rerun", "report", "watch", "doctor"]
COMMANDS += ["learn", "predict", "evaluate", "info", "rollback", "forget", "verify", "prune"]
GROUPS = {
    "reproduce": ["table1", "table2", "cost", "fig3", "fig4", "fig5", "fig6", "fig7"],
    "runs": ["list", "show", "remove"],
    "data": ["list", "fetch", "verify"],
    "list": ["methods", "benchmarks", "presets"],
}


@pytest.fixture
def calls():
    """A small command line of one command, and what it was called with."""
    app, made = typer.Typer(), []

    def learn(options: RunOptions, methods: Methods = "all") -> None:
        """Learn."""
        made.append((options, methods))

    command(app, seeds=5)(learn)
    command(app, "again", benchmark="split-cifar", methods="van", without=["json", "tasks"])(learn)
    made.append(lambda *arguments: app(args=list(arguments), standalone_mode=False))
    return made


def test_a_command_has_the_shared_options_its_own_and_its_defaults(calls):
    start = calls.pop()
    start(
        "learn",
        "split-digits",
        "--methods",
        "er",
        "--tasks",
        "2",
        "--set",
        "lr=1",
        "--set",
        "batch=5",
        "--quiet",
    )
    start("learn")
    start("again")
    (given, methods), (usual, every_method), (other, one_method) = calls
    assert given == RunOptions(
        benchmark="split-digits", seeds=5, tasks=2, set=["lr=1", "batch=5"], quiet=True
    )
    assert (methods, every_method, one_method) == ("er", "all", "van")
    assert usual == RunOptions(seeds=5)
    assert other == RunOptions(benchmark="split-cifar")


def test_an_option_that_is_left_out_is_refused(calls):
    start = calls.pop()
    with pytest.raises(Exception, match="No such option"):
        start("again", "--json")


def test_what_options_mean():
    options = RunOptions(seeds=3, seed=7, set=["lr=0.1"], reading="paper", workers="2", json=True)
    assert list(options.all_seeds) == [7, 8, 9]
    assert options.settings == {"lr": "0.1", "reading": "paper"}
    assert options.worker_count == 2
    assert options.silent
    assert RunOptions().worker_count == "auto"
    assert not RunOptions().silent
    with pytest.raises(Mistake, match=r"--workers 1\.5: must be auto or a whole number from 1"):
        _ = RunOptions(workers="1.5").worker_count


def test_every_option_has_a_help_text():
    assert list(WORDS) == [field.name for field in fields(RunOptions)]


def test_no_help_loads_torch_or_is_wider_than_80_columns():
    pages = [[], *([name] for name in (*COMMANDS, *GROUPS))]
    pages += [[group, name] for group, names in GROUPS.items() for name in names]
    script = (
        "import sys\n"
        "from mdmt.cli.app import main\n"
        f"for page in {pages}: main([*page, '--help'])\n"
        "sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    )
    environment = {"COLUMNS": "80", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("Usage: mdmt") == len(pages)
    assert max(map(len, done.stdout.splitlines())) <= 80
    shown = done.stdout
    for several in ("COMMAND [ARGS]...", "{runs}...", "runs...", "{INPUT}...", "INPUT..."):
        shown = shown.replace(several, "")
    assert "..." not in shown


def test_the_preset_best_reaches_mdmt_r_and_the_others_are_told_of(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(
        "mdmt.cli.compare.run_all_with_progress",
        lambda configs, _, **more: (asked.extend(configs) or [None] * 2, []),
    )
    assert (
        main(
            [
                "compare",
                "permuted-mnist",
                "--methods",
                "er,mdmt-r",
                "--preset",
                "best",
                "--seeds",
                "1",
            ]
        )
        == 2
    )
    assert [config.label for (config,) in asked] == ["er", "mdmt-r[preset=best]"]
    assert (
        capsys.readouterr().err
        == "mdmt: --preset best is for mdmt-r; the other methods have none but published\n"
    )
    assert main(["ablate", "--preset", "best"]) == 2
    assert "No such option: --preset" in capsys.readouterr().err
    assert main(["list", "presets", "--json"]) == 0
    best = json.loads(capsys.readouterr().out)["mdmt-r[preset=best]"]
    assert best["permuted-digits"]["average"] == {"value": 0.98, "source": "ours"}


def test_seeds_in_workers_are_not_read_back(tmp_path, capsys, monkeypatch):
    def read_back(*_, **__):
        raise AssertionError("the record was read back")

    arguments = [
        "run",
        "--tasks",
        "1",
        "--method",
        "van",
        "--seeds",
        "2",
        "--out",
        str(tmp_path),
        "--quiet",
    ]
    monkeypatch.setattr("mdmt.experiments.run.run", read_back)
    assert main(arguments) == 0
    assert "van on permuted-digits, 1 task, 2 seeds from 1234\n" in capsys.readouterr().out


@pytest.mark.parametrize("device", ["cuda:99", "nonsense"])
def test_a_device_that_is_not_there_is_refused_before_any_run(device, tmp_path, capsys):
    for words in (["run"], ["compare", "--methods", "van"], ["tune", "--grid", "lr=0.1"]):
        out = tmp_path / "runs"
        assert main([*words, "--device", device, "--out", str(out), "--quiet"]) == 2
        told = capsys.readouterr().err
        assert told.startswith(f"mdmt: device='{device}' is not available: ")
        assert told.count("\n") == 1
        assert not out.exists()


def test_a_device_without_numbers_is_refused_before_any_run(tmp_path, capsys):
    out = tmp_path / "runs"
    assert main(["run", "--device", "meta", "--out", str(out), "--quiet"]) == 2
    told = capsys.readouterr().err
    assert "it must be cpu, cuda, cuda:N, mps or xpu" in told
    assert told.count("\n") == 1
    assert not out.exists()


def test_a_precision_that_is_none_is_refused_before_any_run(tmp_path, capsys):
    for words in (
        ["run"],
        ["compare", "--methods", "van"],
        ["tune", "--grid", "lr=0.1"],
        ["ablate"],
    ):
        out = tmp_path / "runs"
        assert main([*words, "--precision", "fp16", "--out", str(out), "--quiet"]) == 2
        assert capsys.readouterr().err == "mdmt: precision='fp16': must be fp32 or bf16\n"
        assert not out.exists()


def test_auto_is_the_processor_where_there_is_nothing_else(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert config_for("permuted-digits", device="auto") == config_for("permuted-digits")


def output_in_a_pipe(*words, **environment):
    command = [sys.executable, "-m", "mdmt", *words]
    clean = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env=clean | environment
    ).stdout.splitlines()


def test_tables_in_a_pipe_are_as_wide_as_their_content():
    lines = output_in_a_pipe("list", "methods")
    assert len(lines) == 1 + len(METHODS)
    assert max(map(len, lines)) > 100
    assert max(map(len, output_in_a_pipe("list", "methods", COLUMNS="70"))) <= 70
