"""`mdmt compare` and `mdmt ablate`: real small sweeps in worker processes, and what they print."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean, pstdev

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

import mdmt.runs.rows as comparison
from mdmt import metrics
from mdmt.cli.app import main
from mdmt.experiments.resolve import configs_for
from mdmt.experiments.sweep import sweep
from mdmt.experiments.workers import Outcome, process_count
from mdmt.published import published, table
from mdmt.report import tables, text
from mdmt.runs.config import folder_of
from mdmt.runs.differences import with_differences
from mdmt.runs.paper import VARIANTS
from mdmt.runs.request import RunRequest
from support import run_folders
from support.configs import config_for
from support.helpers import some_row
from support.processes import MDMT, gone, offspring, soon, started

SMALL = ["--tasks", "2", "--seeds", "2", "--set", "reference_batch=8", "--workers", "2", "--quiet"]
METRICS = ("A_T", "F_T", "LCA_10", "LTR", "A_free")
pytestmark = pytest.mark.xdist_group("compare")  # on one worker, since they share their runs


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """One folder of runs, which all tests of this file share and fill."""
    return str(tmp_path_factory.mktemp("runs"))


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def compare(out, capsys, *more, methods="van,er", code=0):
    assert (
        main(["compare", "permuted-digits", "--methods", methods, "--out", out, *SMALL, *more])
        == code
    )
    return capsys.readouterr()


def test_json_rows_are_in_the_order_asked_and_failures_are_listed(out, capsys):
    printed, err = compare(out, capsys, "--json", methods="van,van[lr=1e30],er")
    assert err == ""
    found = json.loads(printed)
    assert set(found) == {"rows", "failed"}
    # Only er has that setting.
    assert [row["label"] for row in found["rows"]] == [
        "van",
        "er[reference_batch=8]",
    ]
    assert [(f["label"], f["seed"]) for f in found["failed"]] == [
        ("van[lr=1e30]", 1234),
        ("van[lr=1e30]", 1235),
    ]
    assert all(
        "step 1: the loss is not finite" in f["reason"] and "\n" not in f["reason"]
        for f in found["failed"]
    )
    for row in found["rows"]:
        assert list(row) == [
            "benchmark",
            "method",
            "label",
            "reading",
            "seeds",
            "reduced",
            "metrics",
            "published",
            "runs",
            "seconds",
            "memory_bytes",
        ]
        assert row["seeds"] == [1234, 1235]
        assert row["published"] is None
        assert len(row["runs"]) == 2
        assert "differences" not in row
        for folder, accuracy in zip(row["runs"], row["metrics"]["A_T"]["runs"], strict=True):
            with open(f"{folder}/record.json") as file:
                assert json.load(file)["metrics"]["A_T"] == accuracy
    van, er = found["rows"]
    assert (van["memory_bytes"], er["memory_bytes"] > 0) == (0, True)
    assert van["reduced"] == {"tasks": 2}
    assert er["reduced"] == {"tasks": 2, "reference_batch": 8}


def test_a_sweep_gives_what_run_gives(out, tmp_path, capsys):
    rows = json.loads(compare(out, capsys, "--json").out)["rows"]
    assert (
        main(
            [
                "run",
                "--method",
                "van",
                "--tasks",
                "2",
                "--seeds",
                "2",
                "--out",
                str(tmp_path),
                "--json",
            ]
        )
        == 0
    )
    alone = json.loads(capsys.readouterr().out)
    cost = {"seconds", "memory_bytes"}
    assert {key: value for key, value in rows[0].items() if key not in {"runs"} | cost} == {
        key: value for key, value in alone.items() if key != "runs"
    }


def test_differences_are_paired_by_seed(out, capsys):
    van, er = json.loads(compare(out, capsys, "--json", "--against", "er").out)["rows"]
    assert er["differences"] is None
    assert van["differences"]["against"] == "er[reference_batch=8]"
    assert van["differences"]["seeds"] == [1234, 1235]
    for name in METRICS:
        pairs = zip(van["metrics"][name]["runs"], er["metrics"][name]["runs"], strict=True)
        by_hand = [mine - theirs for mine, theirs in pairs]
        found = van["differences"][name]
        expected = {"mean": fmean(by_hand), "std": pstdev(by_hand), "runs": by_hand}
        assert found == {**expected, "interval": None}  # two rows of two seeds are too few
    printed = compare(out, capsys, "--against", "er").out
    assert "difference to er[reference_batch=8], paired by seed" in printed
    assert f"{100 * van['differences']['A_T']['mean']:+.2f}  " in printed


def test_a_difference_has_the_same_interval_in_every_format():
    def row(label, *values):
        cells = {metric.name: comparison.mean_std(values) for metric in metrics.METRICS}
        return some_row(label=label, method=label, seeds=[1, 2, 3], metrics=cells)

    rows = with_differences([row("er", 0.9, 0.8, 0.7), row("van", 0.8, 0.72, 0.59)], "er")
    cell = rows[1].to_json()["differences"]["A_T"]
    assert list(cell) == ["mean", "std", "runs", "interval"]
    low, high = cell["interval"]
    assert (low, high) == pytest.approx(
        stats.ttest_rel([0.8, 0.72, 0.59], [0.9, 0.8, 0.7]).confidence_interval(0.95)
    )
    ends = f"-9.67 [{100 * low:.2f}, {100 * high:.2f}]"
    blocks = tables.blocks(rows)
    assert blocks[1].grid.rows[0][:2] == ["van", ends]
    assert blocks[1].below == [text.INTERVALS]
    assert f"| {ends} |" in text.as_markdown(blocks)
    assert f"& ${ends}$ &" in text.as_latex(blocks)
    (line,) = [line for line in tables.csv_lines(rows) if line["label"] == "van"]
    assert (line["difference_A_T_low"], line["difference_A_T_high"]) == (low, high)
    console = Console(width=80, file=io.StringIO())
    console.print(*text.as_table(blocks, 80), sep="\n")
    printed = console.file.getvalue()
    assert f" [{100 * low:.2f}, {100 * high:.2f}] " in printed
    assert all(len(one) <= 80 for one in printed.splitlines())


def test_differences_to_a_row_that_failed_are_missed_aloud(out, capsys):
    printed, err = compare(out, capsys, "--against", "van[lr=1e30]", methods="er,van[lr=1e30]")
    assert "difference to" not in printed
    assert err.endswith(
        "mdmt: no differences: van[lr=1e30], the row to compare with, has no finished run\n"
    )


def test_differences_use_the_seeds_that_both_rows_have():
    def row(label, seeds, runs):
        return some_row(
            label=label, seeds=seeds, metrics={"A_T": comparison.mean_std(runs), "F_T": None}
        )

    rows = [row("a", [1, 2, 3], [0.5, 0.75, 1.0]), row("b", [3, 1], [0.25, 0.25])]
    found = with_differences(rows, "b")[0].differences.to_json()
    expected = {"mean": 0.5, "std": 0.25, "runs": [0.25, 0.75], "interval": None}
    assert found == {"against": "b", "seeds": [1, 3], "A_T": expected, "F_T": None}


def test_asked_again_it_reads(out, capsys):
    compare(out, capsys, "--json")
    configs = [config_for("permuted-digits", "van", tasks=2, seed=seed) for seed in (1234, 1235)]
    events = []
    outcomes = list(sweep(configs, out, 2, events.append))
    assert [o.config.seed for o in outcomes] == [1234, 1235]
    assert all(o.read for o in outcomes)
    assert events == []
    fresh = list(sweep(configs[:1], out, 2, events.append, fresh=True))
    assert events[0].text == "started"
    assert not fresh[0].read
    assert fresh[0].record.weights_sha256 == outcomes[0].record.weights_sha256


def test_the_table_and_the_lines_while_it_runs(out, tmp_path, capsys):
    printed, err = compare(out, capsys)
    lines = printed.splitlines()
    assert lines[0] == "permuted-digits, 2 seeds from 1234, mean ± population std"
    assert lines[1] == "reduced, not the published protocol: tasks 2, reference_batch 8"
    assert lines[2].split() == ["method", "A_T", "(%)", *METRICS[1:], "(%)", "seconds", "memory"]
    assert [line.split()[0] for line in lines[3:5]] == ["van", "er[reference_batch=8]"]
    assert " (2 seeds: too few to tell which is better), for " in " ".join(lines[5:])
    assert re.sub(r"mdmt: \d of 4 runs were read from .*; --fresh computes anew\n", "", err) == ""
    arguments = [
        "compare",
        "--methods",
        "van,van[lr=1e30]",
        "--tasks",
        "1",
        "--seeds",
        "1",
        "--out",
        str(tmp_path),
    ]
    assert main(arguments) == 0
    err = capsys.readouterr().err
    assert "van, seed 1234: started\n" in err
    assert re.search(r"van, seed 1234: A_T \d+\.\d\d %, \d+\.\d s\n", err)
    assert (
        "\nmdmt: failed: van[lr=1e30], seed 1234: task 'permutation 1', step 1: the loss is not"
        " finite" in err
    )


def test_a_narrow_screen_folds_the_label_and_keeps_the_numbers(out, capsys, monkeypatch):
    for width, label in (
        (80, ["er[reference_batch=8] ", " "]),
        (77, ["er[ ", "reference_batch=8] "]),
    ):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = compare(out, capsys).out.splitlines()
        assert all(len(line) <= width for line in lines)
        (header,) = (line for line in lines if line.startswith("method"))
        assert header.split() == ["method", "A_T", "(%)", *METRICS[1:], "(%)", "seconds", "memory"]
        start = lines.index(header)
        means, spreads = lines[start + 3 : start + 5]
        assert [
            line.startswith(start) for line, start in zip((means, spreads), label, strict=True)
        ] == [True, True]
        assert len(re.findall(r"\d+\.\d+", means)) == len(METRICS) + 1  # and the seconds
        assert len(re.findall(r"± \d+\.\d+", spreads)) == len(METRICS)


def test_columns_that_are_too_many_come_in_a_table_below():
    console = Console(width=60, file=io.StringIO())
    grid = tables.main_grid(published_rows())
    console.print(text.rich_table(grid, 60))
    printed = console.file.getvalue()
    headings = [
        word for line in printed.splitlines() if line.startswith("method") for word in line.split()
    ]
    expected = " ".join(grid.columns[1:]).split()
    assert [word for word in headings if word != "method"] == expected
    numbers = {word for row in grid.rows for cell in row[1:] for word in cell.split()}
    assert numbers <= set(printed.split())


def test_markdown(out, capsys):
    text = compare(out, capsys, "--format", "markdown", "--against", "van").out
    tables_found = [
        [line for line in part.splitlines() if line.startswith("|")]
        for part in text.split("difference to")
    ]
    assert [len(lines) for lines in tables_found] == [4, 3]
    for lines in tables_found:
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        assert len({len(line) for line in cells}) == 1
        assert all(re.fullmatch(":?-{3,}:?", cell) for cell in cells[1])
    assert "| `er[reference_batch=8]` |" in text


def test_latex(out, capsys):
    text = compare(out, capsys, "--format", "latex", "--against", "van").out
    for part in text.strip().split("\n\n"):
        columns = len(re.search(r"\\begin\{tabular\}\{(l?r+)\}", part)[1])
        body = [line for line in part.splitlines() if line.endswith(r"\\")]
        assert all(line.count("&") == columns - 1 for line in body)
        assert part.count(r"\begin{tabular}") == part.count(r"\end{tabular}") == 1
        assert all(line.count("$") % 2 == 0 for line in body)
    assert "$A_{T}$ (\\%)" in text
    assert r"$A_{\mathrm{free}}$ (\%)" in text
    assert r"er[reference\_batch=8] & $" in text
    assert r" \pm " in text
    assert "±" not in text.replace("mean ± population std", "")


def test_csv_holds_fractions(out, capsys):
    rows = json.loads(compare(out, capsys, "--json", "--against", "van").out)["rows"]
    lines = list(
        csv.DictReader(io.StringIO(compare(out, capsys, "--format", "csv", "--against", "van").out))
    )
    assert [line["label"] for line in lines] == ["van", "er[reference_batch=8]"]
    for row, line in zip(rows, lines, strict=True):
        assert float(line["A_T_mean"]) == row["metrics"]["A_T"]["mean"]
        assert float(line["LTR_std"]) == row["metrics"]["LTR"]["std"]
        assert line["published_A_T_mean"] == ""
        assert int(line["memory_bytes"]) == row["memory_bytes"]
    assert lines[0]["difference_A_T_mean"] == ""
    assert float(lines[1]["difference_A_T_mean"]) == rows[1]["differences"]["A_T"]["mean"]


def published_rows():
    """Rows as they would be after full runs of Split CIFAR."""
    return [
        some_row(label=m, published=published("split-cifar", m)) for m in ("mas", "mer", "mdmt-r")
    ]


def test_the_published_value_stands_beside_ours():
    rows = published_rows()
    columns, lines = tables.main_grid(rows)
    assert columns[1:5] == ["A_T (%)", "published", "F_T", "published"]
    assert lines[2][1:3] == ["60.00 ± 10.00", "69.20 ± 1.60"]
    assert lines[0][8] == "2.513 ± 0.330*"
    assert lines[1][8] == "-"
    assert "\\* not in the paper's Table 1" in text.as_markdown(tables.blocks(rows))
    assert "$2.513 \\pm 0.330$*" in text.as_latex(tables.blocks(rows))
    line, *_ = csv.DictReader(io.StringIO(text.as_csv(tables.csv_lines(rows))))
    assert line["published_A_T_mean"] == "0.4235"


def test_what_is_wrong_with_a_published_row_stands_below_every_table():
    rows = [
        some_row(label=m, benchmark="split-cub", published=published("split-cub", m))
        for m in ("van", "ewc", "rwalk")
    ]
    rows.append(some_row(label="mer", published=published("split-cifar", "mer")))
    _, lines = tables.main_grid(rows)
    marked = [[cell.endswith("†") for cell in line[2:9:2]] for line in lines]
    assert marked == [
        [False] * 4,
        [True] * 4,
        [True, True, True, False],
        [False, False, True, False],
    ]
    notes = [
        "ewc: in the original program EWC does nothing on tasks this short",
        "rwalk: the notebook behind this row read the file of MAS; in the original",
        "mer: LCA_10 is what one run at about .25 and four at 0 give",
    ]
    console = Console(width=500, file=io.StringIO())
    console.print(*text.as_table(tables.blocks(rows), 500), sep="\n")
    for printed in (console.file.getvalue(), text.as_markdown(tables.blocks(rows))):
        assert printed.count("†") == 8 + len(notes)
        assert all(f"† {note}" in printed for note in notes)
    latex = text.as_latex(tables.blocks(rows))
    assert latex.count(r"$\dag{}") == 8
    assert all(rf"\par{{\footnotesize \dag{{}} {note}" in latex for note in notes[:2])
    assert r"\dag{} mer: LCA\_10 is what" in latex


def test_beside_streams_of_their_own_a_line_says_that_the_published_runs_had_one():
    values = published("permuted-mnist", "van")
    rows = [
        some_row(label=label, benchmark="permuted-mnist", published=values, stream=stream)
        for label, stream in (("van", "own"), ("van[lr=0.03]", "own"), ("ewc", "published"))
    ]
    line = "published on permuted-mnist: runs on the stream of seed 1234 alone, which differ in"
    assert text.as_markdown(tables.blocks(rows)).count(line) == 1
    for silent in ([rows[2]], [replace(rows[0], published=None)], published_rows()):
        assert "stream" not in text.as_markdown(tables.blocks(silent))


def test_nothing_finished_is_exit_code_2(tmp_path, capsys):
    arguments = [
        "compare",
        "--methods",
        "van[lr=1e30]",
        "--tasks",
        "1",
        "--seeds",
        "1",
        "--out",
        str(tmp_path),
    ]
    assert main([*arguments, "--json"]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["rows"] == []
    assert len(json.loads(out)["failed"]) == 1
    assert err == ""
    assert main([*arguments, "--quiet"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such"], "benchmark 'no-such' is not one of permuted-digits"),
        (["--methods", "van,no-such"], "method 'no-such' is not one of joint, van"),
        (["--methods", " , "], "write it as all, as paper, or as a list"),
        (["--methods", "van,mdmt-r[scale"], "name[key=value,...]"),
        (
            ["--methods", "van,ewc", "--set", "scale=3"],
            "'scale' is unknown; these methods take answer, augment, average, batch, epochs",
        ),
        (
            ["--methods", "mdmt-r[scale=2],mdmt-r[scale=3],van", "--set", "scale=4"],
            "each has its own",
        ),
        (["--methods", "van,er", "--set", "reference_batch=-1"], "reference_batch=-1"),
        (["--methods", "van", "--against", "er"], "--against 'er' is not one row of van"),
        (
            ["--methods", "er[memory=1],er[memory=2]", "--against", "er"],
            "not one row of er[memory=1], er[memory=2]",
        ),
        (["--workers", "none"], "--workers none: must be auto or a whole number from 1"),
        (["--workers", "0"], "--workers 0"),
        (["--format", "pdf"], "--format pdf: must be one of table, markdown, latex, csv"),
        (["--seeds", "0"], "Invalid value for '--seeds'"),
        (["--tasks", "0"], "tasks=0: permuted-digits takes 1 to 1000"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
    assert err.startswith("mdmt: ")
    assert list(tmp_path.iterdir()) == []


def test_help_loads_no_torch():
    for command in ("compare", "ablate"):
        script = (
            f"import sys; from mdmt.cli.app import main; main(['{command}', '--help']);"
            " sys.exit('torch' in sys.modules)"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0
        assert "--against" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_stops_the_workers(number, tmp_path):
    command = [*MDMT, "compare", "--methods", "gem", "--seeds", "2", "--workers", "2"]
    with started(
        [*command, "--out", str(tmp_path)], heeds_interrupts=number == signal.SIGINT
    ) as process:
        assert "started" in process.stderr.readline()
        assert "started" in process.stderr.readline()
        workers = children(process.pid, 2)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.endswith("mdmt: interrupted; the same command goes on from there\n")
    assert "Traceback" not in err
    assert gone(workers)


SLOW = """
import time
from pathlib import Path
import mdmt

class Slow(mdmt.Method):
    def step(self, batch):
        super().step(batch)
        if self.learner.step_in_task == 3:  # of which the fourth begins
            Path(f"asleep {self.learner.seed}").touch()
            time.sleep(2)  # the checkpoint is written after that
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_more_requests_to_stop_are_as_the_first(number, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    command = [*MDMT, "compare", "--methods", "slow:Slow", "--seeds", "2", "--workers", "2"]
    with started([*command, "--out", "runs"], cwd=tmp_path, start_new_session=True) as process:
        assert soon(lambda: len(list(tmp_path.glob("asleep *"))) == 2)

        def ended():
            os.killpg(process.pid, number)  # as a terminal does, again and again
            return process.poll() is not None

        assert soon(ended)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    lines = [line for line in err.splitlines() if ": started" not in line]
    assert lines == ["mdmt: interrupted; the same command goes on from there"]
    states = tmp_path.glob("runs/*/*/*/*/checkpoint/state.json")
    assert [json.loads(path.read_text())["state"]["done"] for path in states] == [4, 4]


def test_a_tracker_that_is_killed_is_no_news(tmp_path):
    """Python's own, which looks after shared memory that no run uses."""
    command = [*MDMT, "compare", "--methods", "van,er", "--seeds", "1", "--workers", "1"]
    with started([*command, "--tasks", "1", "--out", str(tmp_path)]) as process:
        assert "started" in process.stderr.readline()
        (tracker,) = [
            pid
            for pid in offspring(process.pid)
            if b"resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        os.kill(tracker, signal.SIGKILL)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "resource_tracker" not in err
    assert err.count("started") == 1


def test_workers_end_with_their_parent(tmp_path):
    command = [*MDMT, "compare", "--methods", "gem", "--seeds", "1", "--out", str(tmp_path)]
    with started(command) as process:
        assert "started" in process.stderr.readline()
        workers = children(process.pid, 1)
        assert soon(lambda: list(tmp_path.glob("*/*/*/*/config.json")))
        process.kill()
        assert gone(workers)
        assert "Traceback" not in process.stderr.read()
    assert list(tmp_path.glob("*/*/*/*/checkpoint/state.json"))


def test_an_interrupt_while_torch_is_loaded_is_one_line(tmp_path):
    command = [*MDMT, "compare", "--methods", "van", "--seeds", "1", "--out", str(tmp_path)]
    with started(command, start_new_session=True) as process:
        assert soon(lambda: any(map(loads_torch, offspring(process.pid))))
        servers = offspring(process.pid)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, err = process.communicate(timeout=60)
    assert err == "mdmt: interrupted; the same command goes on from there\n"
    assert gone(servers)


def test_a_worker_that_is_killed_is_a_failed_run_and_the_others_finish(tmp_path):
    configs = [config_for("permuted-digits", name, tasks=1) for name in ("gem", "van")]
    victims = []

    def kill_the_first(event):
        if event.config.method == "gem" and not victims:
            victims.extend(children(os.getpid(), 1))
            os.kill(victims[-1], signal.SIGKILL)

    outcomes: dict[str, Outcome] = {
        o.config.method: o for o in sweep(configs, tmp_path, 1, kill_the_first)
    }
    assert outcomes["gem"].record is None
    assert outcomes["gem"].reason == "its process was ended by SIGKILL (out of memory?)"
    assert outcomes["van"].record.finished


def children(pid, number):
    """So many worker processes of a process, as soon as they are there."""

    def workers():
        # They are forked by a server.
        found = [worker for server in offspring(pid) for worker in offspring(server)]
        return found if len(found) == number else None

    found = soon(workers)
    assert found, f"not {number} workers"
    return found


def loads_torch(pid):
    """Whether this is the process that workers are forked from, while it loads torch."""
    about = Path(f"/proc/{pid}")
    return (
        "forkserver" in (about / "cmdline").read_text()
        and "libtorch" in (about / "maps").read_text()
    )


def test_the_number_of_workers():
    assert process_count(3) == 3
    assert process_count("auto") >= 1
    assert process_count("auto", threads=10_000) == 1


def test_two_variants_that_name_the_same_run_share_it(tmp_path):
    usual = config_for("permuted-digits", "van").lr
    configs = [
        config_for("permuted-digits", variant, tasks=1) for variant in ("van", f"van[lr={usual}]")
    ]
    outcomes = list(sweep(configs, tmp_path, 2))
    assert [o.config.label for o in outcomes] == ["van", f"van[lr={usual}]"]
    assert len(list(tmp_path.glob("*/*/*/*/record.json"))) == 1


def finish(config, out, accuracy, reduced=None):
    """Leave a run folder as if it had been run."""
    folder = folder_of(config, out)
    folder.mkdir(parents=True)
    record = run_folders.record(np.random.default_rng(1), tasks=2)
    record |= {"accuracy": [[accuracy] * 2] * 2, "curve": [[accuracy] * 11] * 2, "reduced": reduced}
    (folder / "record.json").write_text(json.dumps(record))


@pytest.mark.parametrize("reduced", [None, {"images": "substitute"}])
def test_ablate_has_the_ten_rows_of_table_2(reduced, tmp_path, capsys):
    for number, variant in enumerate(VARIANTS):
        config = config_for("split-cifar", variant)
        finish(config, tmp_path, number / 10, reduced)
    arguments = ["ablate", "split-cifar", "--seeds", "1", "--out", str(tmp_path)]
    assert main([*arguments, "--json", "--against", VARIANTS[-1]]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["failed"] == []
    assert [row["metrics"]["A_T"]["mean"] for row in found["rows"]] == [n / 10 for n in range(10)]
    assert found["rows"][0]["label"] == "mdmt-r[competitors=own,distance=none,head=linear]"
    assert found["rows"][0]["differences"]["A_T"]["mean"] == pytest.approx(-0.9)
    beside = [row["published"] and row["published"]["A_T"]["mean"] for row in found["rows"]]
    assert beside == (
        [row["A_T"]["mean"] for row in table("table2")["rows"]] if reduced is None else [None] * 10
    )
    assert main([*arguments, "--quiet"]) == 0
    assert ("68.64 ± 1.35" in capsys.readouterr().out) == (reduced is None)
    assert main([*arguments, "--set", "head=cosine"]) == 2
    assert "each has its own" in capsys.readouterr().err


@pytest.mark.parametrize(("reading", "distance"), [("code", "l1"), ("paper", "mse")])
def test_the_reading_decides_on_the_distance_in_table_2(reading, distance):
    configs = configs_for(RunRequest("split-cifar", seed=0, reading=reading), list(VARIANTS))
    distances = [config.arguments["distance"] for (config,) in configs]
    assert distances == ["none", distance, *["none"] * 7, distance]
    rows = comparison.with_table_2([some_row(reduced=None)] * 10, configs)
    assert [row.published for row in rows] == table("table2")["rows"]


def test_compare_puts_table_1_beside_full_runs(tmp_path, capsys):
    for variant in ("a-gem", "mdmt-r", "mdmt-r[distance=none]"):
        finish(config_for("split-cifar", variant), tmp_path, 0.5)
    arguments = [
        "compare",
        "split-cifar",
        "--methods",
        "a-gem,mdmt-r,mdmt-r[distance=none]",
        "--seeds",
        "1",
    ]
    assert main([*arguments, "--out", str(tmp_path), "--json"]) == 0
    beside = [row["published"] for row in json.loads(capsys.readouterr().out)["rows"]]
    assert beside == [published("split-cifar", "a-gem"), published("split-cifar", "mdmt-r"), None]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    assert "69.20 ± 1.60" in capsys.readouterr().out


def test_a_shared_head_leaves_out_rows_of_table_2_that_cannot_differ(tmp_path, capsys):
    for variant in VARIANTS:
        run_folders.leave(tmp_path, variant, tasks=10)
    assert (
        main(["ablate", "permuted-digits", "--seeds", "1", "--out", str(tmp_path), "--json"]) == 0
    )
    found, err = capsys.readouterr()
    labels = [row["label"] for row in json.loads(found)["rows"]]
    assert len(labels) == 7
    assert "mdmt-r[class_margin=0.01,distance=none,head=cosine,task_margin=0.1]" not in labels
    assert (
        "3 rows left out: they differ in the task margin alone, which one shared head does not have"
        in err
    )


def test_what_all_rows_share_stands_above_the_table_once():
    rows = [some_row(label=label) for label in ("van[lr=0.1]", "er[lr=0.1,reference_batch=8]")]
    (block,) = tables.blocks(rows)
    assert block.above[-1] == "all with lr=0.1"
    assert [line[0] for line in block.grid.rows] == ["van", "er[reference_batch=8]"]
    (block,) = tables.blocks(rows[:1])
    assert block.grid.rows[0][0] == "van[lr=0.1]"
