"""`mdmt.compare` in Python: it is the command, and a notebook shows what it gives."""

import inspect
import json
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
from nbclient import NotebookClient

import mdmt
from mdmt.cli.app import main
from mdmt.errors import Mistake, Stopped
from mdmt.experiments.workers import ThisProcess
from mdmt.report.tables import blocks
from mdmt.report.text import as_latex
from mdmt.runs.folder import RunFolder, find_runs
from support.helpers import mistake, small_stream, some_row

NOTEBOOK = Path(__file__).parents[2] / "examples" / "first-steps.ipynb"
API = Path(__file__).parents[2] / "docs" / "api.md"
SMALL = {"tasks": 2, "subset": 60}
pytestmark = pytest.mark.xdist_group("notebook")  # the tests share the runs of one folder


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def comparison(out):
    return mdmt.compare(
        "permuted-digits", ["van", mdmt.ER], seeds=2, against="van", out=out, **SMALL
    )


def test_it_gives_the_rows_of_the_command(comparison, out, capsys):
    more = ["--seeds", "2", "--tasks", "2", "--subset", "60", "--against", "van", "--json"]
    assert (
        main(["compare", "permuted-digits", "--methods", "van,er", "--out", str(out), *more]) == 0
    )
    printed = json.loads(capsys.readouterr().out)
    assert [row.to_json() for row in comparison.rows] == printed["rows"]
    assert comparison.failed == printed["failed"] == []


def test_the_same_call_again_reads_the_runs(comparison, out, capsys):
    again = mdmt.compare("permuted-digits", "van,er", seeds=2, against="van", out=out, **SMALL)
    assert again == comparison
    assert "fresh=True computes anew" in capsys.readouterr().err


def test_a_frame_has_a_row_per_method_and_no_empty_columns(comparison):
    frame = comparison.to_pandas()
    assert list(frame.index) == ["van", "er"]
    van, er = comparison.rows
    assert frame.loc["er", "A_T_mean"] == er.metrics["A_T"]["mean"]
    assert frame.loc["er", "difference_A_T_mean"] == pytest.approx(
        er.metrics["A_T"]["mean"] - van.metrics["A_T"]["mean"]
    )
    assert not [name for name in frame.columns if frame[name].isna().all()]
    assert not [name for name in frame.columns if name.startswith("published")]


def test_text_html_and_latex_are_the_table(comparison):
    assert "A_T (%)" in repr(comparison)
    assert "difference to van" in repr(comparison)
    html = comparison._repr_html_()
    assert html.count("<tr>") == 3 + 2  # two tables, each with its header
    assert "<b>" in html  # the best
    assert comparison.to_latex() == as_latex(blocks(comparison.rows))
    assert comparison.to_markdown().startswith("permuted-digits, 2 seeds")


def test_html_shows_a_label_as_it_is():
    html = mdmt.Comparison([some_row(label="a<b>&c")])._repr_html_()
    assert "a&lt;b&gt;&amp;c" in html


def test_figures_and_records(comparison):
    picture = comparison.plot()
    data, about = picture._repr_png_()
    assert data.startswith(b"\x89PNG")
    assert about["width"] > 300
    lines = {tuple(line.get_ydata()) for line in picture.axes[0].lines}
    er = comparison.records("er")
    expected = np.mean([100 * record.metrics["A_T"] for record in er])
    assert any(line and line[-1] == pytest.approx(expected) for line in lines)
    assert "there is no figure 'fig1'; there are fig4" in mistake(comparison.plot, "fig1")
    assert mistake(comparison.records, "gem") == "there is no row 'gem'; the rows are van, er"


def test_a_record_as_a_frame_and_as_a_picture(comparison):
    record = comparison.records("er")[0]
    frame = record.to_pandas()
    matrix = frame.pivot(index="after", columns="task", values="accuracy")
    names = [task["name"] for task in record.tasks]
    assert matrix.loc[names, names].to_numpy().tolist() == record.accuracy
    texts = [text.get_text() for text in record.plot().axes[0].texts]
    assert texts == [f"{100 * value:.0f}" for row in record.accuracy for value in row]


def test_a_record_of_an_unfinished_stream():
    learner = mdmt.Learner(mdmt.backbones.mlp(784, 16), method="van")
    assert learner.record.to_pandas().empty
    learner.learn(small_stream(tasks=2)[0])
    assert len(learner.record.to_pandas()) == 1
    assert len(learner.record.plot().axes[0].texts) == 1


@pytest.mark.parametrize(
    ("package", "call"),
    [("pandas", "to_pandas"), ("matplotlib", "plot")],
)
def test_what_a_missing_package_would_do(package, call, comparison, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    for thing in (comparison, comparison.records("er")[0]):
        expected = f"{call} needs the package {package}: pip install {package}"
        assert mistake(getattr(thing, call)) == expected


def test_a_stream_in_memory_is_learned_in_this_process(out, capsys):
    stream = small_stream(tasks=2)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = mdmt.compare(stream, ["van", "er"], seeds=1, out=out)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert [row.benchmark for row in found.rows] == ["in-memory:split-digits"] * 2
    config = RunFolder(found.rows[0].runs[0]).config
    learner = mdmt.Learner(
        mdmt.backbones.make(config.backbone),
        method="van",
        lr=config.lr,
        memory=mdmt.memory.make(config.memory),
    )
    assert learner.run(stream).padded().accuracy == found.records("van")[0].accuracy
    # Nobody else can do these runs again, and says so.
    run = found.rows[0].runs[0]
    assert main(["rerun", run]) == 2
    assert "was a stream in the memory of a program" in capsys.readouterr().err


def test_another_stream_of_the_same_name_is_learned_anew(out):
    first = small_stream(tasks=2)
    other = mdmt.Stream(first.name, [task.with_view(task.name, dark) for task in first])
    scaled = mdmt.Stream(first.name, first.tasks, scale=0.5)
    results = [mdmt.compare(one, ["van"], seeds=1, out=out) for one in (first, other, scaled)]
    assert len({row.runs[0] for result in results for row in result.rows}) == 3


def dark(inputs):
    return inputs // 2


def test_an_interrupted_stream_in_memory_goes_on(tmp_path, monkeypatch):
    stream = small_stream(tasks=2)
    straight = mdmt.compare(stream, ["er"], seeds=1, out=tmp_path / "straight")
    steps = []

    def interrupt(learner):
        steps.append(learner.step_in_task)
        if len(steps) == 6:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("mdmt.experiments.workers._Reporter.step", lambda self, one: interrupt(one))
    with pytest.raises(Stopped, match="interrupted; the same call goes on from there"):
        mdmt.compare(stream, ["er"], seeds=1, out=tmp_path / "stopped")
    again = mdmt.compare(stream, ["er"], seeds=1, out=tmp_path / "stopped")
    (one,), (other,) = straight.records("er"), again.records("er")
    assert one.weights_sha256 == other.weights_sha256
    # No step was made twice; the one after which it stopped is not reported.
    assert len(steps) == one.steps - 1


def test_a_failure_in_memory_stops_no_other_run(tmp_path):
    found = mdmt.compare(small_stream(tasks=2), ["van[lr=1e30]", "van"], seeds=1, out=tmp_path)
    assert [row.label for row in found.rows] == ["van"]
    assert "failed: van[lr=1e30], seed 1234" in repr(found)
    assert "failed: van[lr=1e30], seed 1234" in found._repr_html_()


PROGRAM = """
import mdmt
found = mdmt.compare("permuted-digits", ["van"], seeds=1, tasks=1, subset=40, progress=False)
print("rows:", len(found.rows))
"""


def test_a_program_needs_no_guard(tmp_path):
    """Worker processes do not import the program that started them."""
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.stdout == "rows: 1\n", done.stderr
    assert done.stderr == ""


METHOD = """
import mdmt

class Mine(mdmt.Method):
    def gradient(self, batch):
        return {factor} * self.grad(batch)[1]
"""


def test_an_edited_method_is_loaded_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    stream, weights = small_stream(tasks=1), []
    for factor in ("1.0", "0.25"):
        (tmp_path / "edited_method.py").write_text(METHOD.format(factor=factor))
        found = mdmt.compare(stream, ["edited_method.py:Mine"], seeds=1)
        weights.append(found.records(found.rows[0].label)[0].weights_sha256)
    assert weights[0] != weights[1]
    sys.modules.pop("edited_method")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"stream": 3}, "a int cannot be compared on: pass the name of a benchmark"),
        ({"stream": "no-such"}, "benchmark 'no-such' is not one of"),
        ({"methods": [mdmt.ER(reference_batch=8)]}, "is not a method: pass its name or class"),
        ({"seeds": 0}, "seeds=0: must be a whole number from 1"),
        ({"taks": 3}, "compare takes no taks; its other options are"),
        ({"against": "gem"}, "--against 'gem' is not one row of van"),
    ],
)
def test_mistakes(arguments, expected, tmp_path):
    call = {"stream": "permuted-digits", "methods": ["van"], "out": tmp_path, **arguments}
    assert expected in mistake(lambda: mdmt.compare(call.pop("stream"), **call))
    assert not list(find_runs(tmp_path))


def test_a_method_of_the_notebook_itself_is_refused():
    kind = type("Cell", (mdmt.ER,), {"__module__": "__main__"})
    with pytest.raises(Mistake, match=r"write it to a file, such as mine\.py, and pass 'mine\.py:"):
        mdmt.compare("permuted-digits", [kind])


def test_workers_of_this_process_do_one_run_at_a_time(tmp_path):
    assert ThisProcess(tmp_path, print).slots == 1


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The notebook, run in an empty folder."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    folder = tmp_path_factory.mktemp("notebook")
    client = NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    return client.execute()


def outputs(notebook, source):
    (cell,) = [cell for cell in notebook.cells if source in cell.source]
    return cell.outputs


def test_the_notebook_is_committed_without_output():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert not [
        cell for cell in notebook.cells if cell.get("outputs") or cell.get("execution_count")
    ]


def test_the_notebook_runs(executed):
    shown = {
        kind: [
            output.data[kind]
            for cell in executed.cells
            for output in cell.get("outputs", [])
            if kind in output.get("data", {})
        ]
        for kind in ("image/png", "text/html")
    }
    assert len(shown["image/png"]) == 3
    assert len([html for html in shown["text/html"] if "A_T (%)" in html]) == 2


def test_progress_in_a_notebook_has_no_escape_codes(executed):
    texts = [
        output.get("text", "") + output.get("data", {}).get("text/plain", "")
        for cell in executed.cells
        for output in cell.get("outputs", [])
    ]
    assert not [text for text in texts if "\x1b" in text]
    # One output that changed while the runs went on, and no line for each of them.
    kinds = [output.output_type for output in outputs(executed, 'against="van"')]
    assert kinds == ["display_data", "execute_result"]
    assert outputs(executed, 'against="van"')[0].data["text/plain"].startswith("9 of 9 runs, 0:")


def test_the_page_of_the_interface(tmp_path, monkeypatch, capsys):
    """Its example runs, and it names every argument of compare and every call of a Comparison."""
    monkeypatch.chdir(tmp_path)
    page = API.read_text().split("## Comparisons")[1].split("\n## ")[0]
    block = page.split("```python")[1].split("```")[0]
    exec(compile(block, "api.md", "exec"), {"__name__": "page"})
    assert "difference to van" in capsys.readouterr().out
    assert (tmp_path / "fig4.png").stat().st_size > 10_000
    names = {name for name in inspect.signature(mdmt.compare).parameters if name != "options"}
    names |= {name for name in vars(mdmt.Comparison) if not name.startswith("_")}
    assert {name for name in names if f"`{name}" not in page} <= {"notes"}
