"""The command line as a person meets it: what it prints, and its one clear line when something is
wrong.
"""

import json
import os
import subprocess
import sys

import pytest

import mdmt
from mdmt.cli.app import main
from mdmt.experiments.presets import COLUMNS

SMALL = ["--set", "reference_batch=8", "--quiet"]


def test_run_prints_the_four_metrics_and_writes_the_folder(tmp_path, capsys):
    assert (
        main(
            [
                "run",
                "permuted-digits",
                "--tasks",
                "2",
                "--out",
                str(tmp_path),
                "--quiet",
                "--set",
                "reference_batch=16",
            ]
        )
        == 0
    )
    printed = capsys.readouterr().out
    for name in ("A_T (%)", "F_T", "LCA_10", "LTR", "A_free (%)", "mean_j a[T][j]"):
        assert name in printed
    (record,) = tmp_path.glob("permuted-digits/mdmt-r/*/1234/record.json")
    config = json.loads((record.parent / "config.json").read_text())
    assert config["arguments"]["reference_batch"] == 16
    assert config["label"] == "mdmt-r[reference_batch=16]"
    content = json.loads(record.read_text())
    assert content["finished"] is True
    assert f"{100 * content['metrics']['A_T']:.2f}" in printed


def test_json_is_one_object(tmp_path, capsys):
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
        "--json",
    ]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    result = json.loads(out)
    assert set(result) == {
        "benchmark",
        "method",
        "label",
        "reading",
        "seeds",
        "reduced",
        "metrics",
        "published",
        "runs",
    }
    assert result["seeds"] == [1234, 1235]
    assert result["reduced"] == {"tasks": 1}
    assert result["metrics"]["F_T"] is None
    runs = result["metrics"]["A_T"]["runs"]
    assert result["metrics"]["A_T"]["mean"] == pytest.approx(sum(runs) / 2)
    # Population.
    assert result["metrics"]["A_T"]["std"] == pytest.approx(abs(runs[0] - runs[1]) / 2)
    main(arguments)
    assert json.loads(capsys.readouterr().out) == result  # read, not run again


def test_a_finished_run_is_read_unless_fresh(tmp_path, capsys):
    arguments = ["run", "--tasks", "1", "--method", "van", "--out", str(tmp_path), "--json"]
    main(arguments)
    (path,) = tmp_path.glob("*/*/*/*/record.json")
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "accuracy": [[0.5]]}))
    capsys.readouterr()
    main(arguments)
    assert json.loads(capsys.readouterr().out)["metrics"]["A_T"]["mean"] == 0.5
    main([*arguments, "--fresh"])
    assert json.loads(capsys.readouterr().out)["metrics"]["A_T"]["mean"] == record["metrics"]["A_T"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "no-such"], "benchmark 'no-such' is not one of permuted-digits, split-digits"),
        (["run", "--method", "no-such"], "method 'no-such' is not one of"),
        (["run", "--method", "nowhere:Mine"], "cannot be loaded"),
        (["run", "--method", "json:JSONDecoder"], "not a subclass of mdmt.Method"),
        (["run", "--method", "mdmt-r[scale"], "name[key=value,...]"),
        (["run", "--set", "scale=-1"], "scale=-1.0: must be more than 0"),
        (["run", "--set", "scale=big"], "scale=big: must be a number"),
        (
            ["run", "--set", "no_such=1"],
            (
                "setting 'no_such' is unknown; mdmt-r on permuted-digits takes answer, augment,"
                " average, batch, class_margin"
            ),
        ),
        (["run", "--set", "lonely"], "write it as key=value"),
        (["run", "--set", "heads=both"], "permuted-digits takes shared or per-task"),
        (["run", "--set", "memory=-1"], "memory.per_class is -1: it must be a whole"),
        (["run", "--set", "optimiser=Magic"], "optimiser='Magic'"),
        (["run", "--set", "optimiser=LBFGS"], "optimiser='LBFGS' cannot be used here"),
        (["run", "--set", "optimiser=SparseAdam"], "does not support dense gradients"),
        (["run", "--set", "optimiser=Optimizer"], "optimiser='Optimizer' cannot be used here"),
        (["run", "--set", "optimiser=Muon"], "optimiser='Muon'"),
        (["compare", "--set", "optimiser=LBFGS"], "optimiser='LBFGS' cannot be used here"),
        (["compare", "--set", "lr=-1"], "lr=-1.0: must be a number above 0"),
        (["run", "--method", "..x:Y"], "method '..x:Y' cannot be loaded"),
        (["run", "--method", "mdmt.methods:Method"], "Method is the base class: name a subclass"),
        (["run", "mdmt:Stream"], "stream 'mdmt:Stream' cannot be made: TypeError"),
        (["run", "mdmt:no_such"], "stream 'mdmt:no_such' cannot be loaded"),
        (
            ["run", "split-digits", "--backbone", "mdmt:Stream"],
            "network 'mdmt:Stream' cannot be made: TypeError",
        ),
        (["run", "--threads", "100000"], "threads is 100000: it must be a whole number from 1"),
        (["run", "--threads", f"{10**20}"], "it must be a whole number from 1 to 1024"),
        (["run", "--set", f"memory={2**63 - 1}"], "memory.per_class is 9223372036854775807"),
        (["run", "--set", f"epochs={10**20}"], "epochs is 100000000000000000000"),
        (["run", "--method", "van", "--reading", "paper"], "setting 'reading' is unknown"),
        (["run", "--tasks", "0"], "tasks=0: permuted-digits takes 1 to 1000"),
        (["run", "split-digits", "--tasks", "6"], "tasks=6: split-digits takes 1 to 5"),
        (["run", "--seed", "-1"], "Invalid value for '--seed'"),
        (["run", "--no-such-option"], "No such option"),
        (["run", "--workers", "0"], "--workers 0: must be auto or a whole number from 1"),
        (
            ["run", "--seeds", "2", "--checkpoint-every", "x"],
            "mdmt: checkpoint-every x: must be a number of steps",
        ),
        (["frob"], "No such command"),
        (
            ["run", "--set", "lr=1e30", "--method", "van", "--quiet"],
            "task 'permutation 1', step 1: the loss is not finite",
        ),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
    assert err.startswith("mdmt: ")


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("raise RuntimeError('no\\nway')", "RuntimeError: no"),
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
        ("import sys\nsys.exit()", "SystemExit"),
        ("import nowhere", "No module named 'nowhere'"),
        ("def", "invalid syntax"),
    ],
)
@pytest.mark.parametrize("how", ["--method", "--backbone", "benchmark"])
def test_own_code_that_cannot_be_imported_is_one_line(
    module, reason, how, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    (tmp_path / "broken.py").write_text(module)
    option = [] if how == "benchmark" else ["split-digits", how]
    assert main(["run", *option, "broken:Mine"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "'broken:Mine' cannot be loaded: " in err
    assert reason in err


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["run", "--tasks", "1", "--out", str(tmp_path / "file"), "--quiet"]) == 2
    assert "Not a directory" in capsys.readouterr().err


def test_lists(capsys):
    for what in ("methods", "benchmarks", "presets"):
        assert main(["list", what]) == 0
        assert "mdmt-r" in capsys.readouterr().out or what == "benchmarks"
        assert main(["list", what, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)


def test_help_loads_no_torch():
    found = "{'torch', 'numpy'} & set(sys.modules)"
    script = f"import sys; from mdmt.cli.app import main; main(['--help']); sys.exit(bool({found}))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "Learn a stream of tasks" in done.stdout


def test_importing_the_package_loads_nothing_heavy():
    script = (
        "import sys, mdmt; mdmt.Learner; mdmt.benchmarks;print([m for m in ('sklearn',"
        " 'matplotlib', 'pandas', 'mlxtend', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_method_of_ones_own(tmp_path, capsys, monkeypatch):
    (tmp_path / "mymethod.py").write_text(
        "import mdmt\n"
        "class Slow(mdmt.Method):\n"
        "    factor: float = 0.5\n"
        "    def gradient(self, batch):\n"
        "        return self.factor * self.grad(batch)[1]\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["run", "--tasks", "1", "--method", "mymethod:Slow[factor=0.25]", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["label"] == "mymethod:Slow[factor=0.25]"
    assert main(["run", "--tasks", "1", "--method", "mymethod:Slow[factor=x]", "--json"]) == 2


def test_a_narrow_terminal(tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mdmt",
            "run",
            "--tasks",
            "1",
            "--method",
            "van",
            "--out",
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "40", "PATH": ""},
    )
    assert "A_T (%)" in done.stdout
    assert "LTR" in done.stdout


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_help_is_on_stdout(arguments, capsys):
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Usage: mdmt [OPTIONS] COMMAND")
    assert err == ""


def test_version_and_short_help(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"mdmt {mdmt.__version__}\n"
    assert main(["run", "-h"]) == 0
    assert "--method" in capsys.readouterr().out


def test_a_shell_completes_commands():
    words = {
        **os.environ,
        "_MDMT_COMPLETE": "complete_bash",
        "COMP_WORDS": "mdmt rep",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "mdmt"], capture_output=True, text=True, env=words, check=True
    )
    assert done.stdout.split() == ["report", "reproduce"]


def test_a_method_in_a_file(tmp_path, capsys, monkeypatch):
    (tmp_path / "factor.py").write_text("FACTOR = 0.5\n")
    (tmp_path / "slow_one.py").write_text(
        "import mdmt\n"
        "from factor import FACTOR\n"
        "class Slow(mdmt.Method):\n"
        "    def gradient(self, batch):\n"
        "        return FACTOR * self.grad(batch)[1]\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path.parent)
    arguments = ["--tasks", "1", "--out", str(tmp_path / "runs"), "--json"]
    assert main(["run", *arguments, "--method", f"./{tmp_path.name}/slow_one.py:Slow"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["label"], result["method"]) == ("slow_one:Slow", "slow_one:Slow")
    assert main(["run", *arguments, "--method", "./none.py:Slow"]) == 2
    assert "none.py does not exist" in capsys.readouterr().err


def test_a_narrow_list_of_presets_breaks_no_word(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["list", "presets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    heads = " ".join(line for line in lines if line.startswith("setting")).split()
    assert [name for name in heads if name != "setting"] == list(COLUMNS)
    assert any(line.split() == ["mer", "policy", *["Reservoir", "o"] * 3] for line in lines)
    assert any(line.startswith("van augment") and line.endswith(" crop-flip o") for line in lines)
