"""The report's numbers, what it makes of odd folders, its files and its server. The page itself:
test_report_page.py.
"""

import csv
import fcntl
import json
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import xml.etree.ElementTree as ET
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from scipy import stats

import mdmt.report.exports as files
import mdmt.runs.paper as paper
import mdmt.runs.rows as comparison
from mdmt import metrics
from mdmt.cli.app import main
from mdmt.experiments.resolve import configs_for
from mdmt.methods import METHODS
from mdmt.report import (
    charts,
    features,
    figures,
    heatmaps,
    page,
    sections,
    study,
    style,
    svg,
    tables,
)  # fmt: skip
from mdmt.report.server import make_server
from mdmt.report.text import Strong, as_latex, as_markdown
from mdmt.report.verdict import verdict
from mdmt.runs.config import folder_of
from mdmt.runs.differences import PairedDifferences
from mdmt.runs.folder import RunFolder, find_runs
from mdmt.runs.ranking import ranking
from mdmt.runs.request import RunRequest, split_methods
from mdmt.runs.snapshots import Snapshots
from mdmt.words import bytes_text
from support.configs import config_for
from support.helpers import some_row
from support.processes import soon
from support.run_folders import interrupt, leave

RELEASE = Path(__file__).parent.parent / "fixtures" / "runs-0.1.0"
EVIL = "<script>alert('x')</script>"


def read(out):
    return study.read_studies(find_runs(Path(out)))


def only(out):
    (found,), unusable = read(out)
    assert unusable == []
    return found


def html(out, cache=None):
    studies, unusable = read(out)
    return page.render(
        figures.figures_of(studies, cache, compute=cache is not None), unusable, where=str(out)
    )


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """Three methods, two seeds, three tasks, one shared head."""
    made = tmp_path_factory.mktemp("runs")
    for variant in ("mdmt-r", "joint", "van"):
        for seed in (1234, 1235):
            leave(made, variant, seed)
    return made


@pytest.fixture(scope="module")
def text(out):
    """Their page."""
    return html(out)


def test_methods_stand_in_the_papers_order_and_seeds_in_theirs(out):
    found = only(out)
    assert [entry.label for entry in found.entries] == ["joint", "van", "mdmt-r"]
    assert [run.config.seed for run in found.entries[1].runs] == [1234, 1235]
    assert tuple(METHODS) == paper.PAPER_METHODS + paper.NEWER
    assert set(METHODS) == set(style.METHOD_STYLES)


def test_a_table_has_one_stream_and_one_kind_of_head(tmp_path):
    leave(tmp_path, "van")
    leave(tmp_path, "van[heads=per-task]")
    leave(tmp_path, "van", tasks=4)
    leave(tmp_path, "van", benchmark="split-digits")
    leave(tmp_path, "er[reference_batch=8]")  # a method's own affair
    studies, _ = read(tmp_path)
    assert [(s.benchmark, s.heads, s.tasks, len(s.entries)) for s in studies] == [
        ("permuted-digits", "shared", 3, 2),  # the largest comes first
        ("permuted-digits", "per-task", 3, 1),
        ("permuted-digits", "shared", 4, 1),
        ("split-digits", "per-task", 3, 1),
    ]


def test_the_published_stream_is_a_study_of_its_own(tmp_path):
    for seed in (1234, 1235):
        leave(tmp_path, "van", seed, benchmark="permuted-mnist")
    leave(tmp_path, "van[stream=published]", 1234, benchmark="permuted-mnist")
    own, theirs = read(tmp_path)[0]
    assert own.title == "permuted-mnist, 3 tasks, one shared head"
    assert theirs.title == f"{own.title}, the published stream"
    assert [one.entries[0].label for one in (own, theirs)] == ["van", "van[stream=published]"]
    assert "the published ones with every seed" in sections.setup(theirs)["tasks"]
    assert "published" not in sections.setup(own)["tasks"]


def test_studies_have_names_that_differ(tmp_path):
    leave(tmp_path, "van")
    leave(tmp_path, "van", subset=50)
    leave(tmp_path, "van", subset=80)
    leave(tmp_path, "van", cross_validation=True)
    leave(tmp_path, "van", benchmark="split-digits")
    titles = {one.title for one in read(tmp_path)[0]}
    name = "permuted-digits, 3 tasks, one shared head"
    assert titles == {
        name,
        f"{name}, subset 50",
        f"{name}, subset 80",
        "permuted-digits, 3 held-out tasks, one shared head",
        "split-digits, 3 tasks, a head per task",
    }
    leave(tmp_path / "again", "van", validation="b")
    leave(tmp_path / "more", "van", validation="c")
    assert f"{name} (2)" in {one.title for one in read(tmp_path)[0]}


def test_several_studies_have_an_overview_and_a_filter(tmp_path, text):
    for seed in (1, 2):
        leave(tmp_path, "er", seed)
    leave(tmp_path, "van", benchmark="split-digits")
    page_ = html(tmp_path)
    overview = page_[page_.index('<section id="overview">') : page_.index('<article id="s0"')]
    assert re.findall(r'<a href="#(s\d)">([^<]*)</a>', overview) == [
        ("s0", "permuted-digits, 3 tasks, one shared head"),
        ("s1", "split-digits, 3 tasks, a head per task"),
    ]
    values = set(re.findall(r'name="(\w+)" value="([^"]*)"', page_))
    assert values == {
        ("benchmark", "permuted-digits"),
        ("benchmark", "split-digits"),
        ("method", "er"),
        ("method", "van"),
    }
    assert 'id="overview"' not in text
    assert '<tr data-method="mdmt-r">' in text


def row_of(label, *accuracies, seeds=(1, 2, 3), seconds=60.0, memory=0, free=None):
    """A row with these accuracies, one for each seed."""
    cells = {"A_T": comparison.mean_std(accuracies), "A_free": free and comparison.mean_std([free])}
    return some_row(
        method=label, label=label, seeds=list(seeds), metrics=cells, memory_bytes=memory,
        seconds=comparison.mean_std([seconds]),
    )  # fmt: skip


def sentence(*rows):
    told = verdict(rows)
    return told.label + told.sentence


def test_the_verdict_says_who_is_best_by_how_much_how_surely_and_at_what_cost():
    joint = row_of("joint", 0.99, 0.89, 0.79)
    er = row_of("er", 0.88, 0.781, 0.679, seconds=30)
    ours = row_of("mdmt-r", 0.90, 0.80, 0.70, memory=125_000, free=0.5)
    low, high = stats.t.interval(0.95, 2, loc=2.0, scale=stats.sem([2, 1.9, 2.1]))
    assert (
        sentence(er, ours)
        == "mdmt-r is best: 80.00 % after the last task (50.00 % where the task is not given),"
        f" +2.00 points [{low:+.2f}, {high:+.2f}] over er, the next (95 % interval, paired over"
        " 3 seeds), for 60 s of learning and 125 kB of memory (er: 30 s of learning and"
        " no memory)."
    )
    assert sentence(joint, er, ours).startswith("mdmt-r is best")  # joint is not ranked
    near = row_of("mega", 0.91, 0.79, 0.69)
    told = sentence(ours, er, near)
    assert "has the highest accuracy" in told
    assert "but is not shown to be better than mega: +0.33 points [" in told
    assert "] over mega (95 % interval, paired over 3 seeds), for" in told


def test_fewer_than_three_seeds_are_too_few_for_a_verdict():
    rows = [row_of(label, *values, seeds=(1, 2)) for label, *values in (
        ("van", 0.80, 0.77), ("ewc", 0.86, 0.85), ("er", 0.90, 0.89), ("mega", 0.89, 0.88)
    )]  # fmt: skip
    told = sentence(*rows)
    assert told.startswith("er has the highest accuracy, 89.50 % after the last task, +1.00 points")
    assert " over mega, the next (2 seeds: too few to tell which is better), for " in told
    one = sentence(row_of("er", 0.5, seeds=(1,)), row_of("van", 0.4, seeds=(1,)))
    assert "+10.00 points over van, the next (1 seed: too few to tell which is better)" in one


def test_the_verdict_compares_equal_seeds_only():
    """The easy seed of one is not held against the mean of the other."""
    er = row_of("er", 0.5, 0.6, 0.55, 0.9, seeds=(1, 2, 3, 4))
    ours = row_of("mdmt-r", 0.52, 0.62, 0.571, seeds=(1, 2, 3))
    alone = row_of("van", 0.99, seeds=(9,))
    assert sentence(er, ours).startswith(
        "mdmt-r is best: 57.03 % after the last task, +2.03 points"
    )
    assert "paired over 3 seeds" in sentence(er, ours)
    told = sentence(er, ours, alone)
    assert told.startswith("mdmt-r is best of the methods that share its seeds: 57.03 %")
    assert told.endswith(" Not compared, for want of a seed in common: van (99.00 %, 1 seed).")
    close = row_of("mdmt-r", 0.51, 0.59, 0.56, seeds=(1, 2, 3))
    assert sentence(er, close).startswith("mdmt-r is ahead on common seeds, 55.33 % after")
    assert "there is no other method to compare it with" in sentence(er)
    assert sentence(row_of("joint", 0.9, 0.9, 0.9)).startswith("joint ends at 90.00 %")


def test_the_verdict_stands_under_the_title(out, text):
    told = verdict(only(out).rows)
    assert (
        f"<strong>{told.label}</strong>{told.sentence}".replace("'", "&#39;")
        in text[: text.index("</header>")]
    )


def test_fig_6_has_one_legend_for_all_methods(tmp_path):
    """Joint has but its end: its points have the colour of the end, and the legend has all
    times.
    """
    folder = leave(tmp_path, "joint")
    last = {"after task 3": np.zeros((4, 2))}
    every = {f"after task {task}": np.ones((4, 2)) for task in (1, 2, 3)}
    drawn = figures.Figures(
        only(folder), 0, {}, {"fig5": {}, "fig6": {"joint": last, "van": every}}
    )
    cloud = page._cloud_view("fig6", drawn.clouds["fig6"], "s0")
    assert [name for name, _ in cloud.legend] == list(every)
    markers = [re.findall(r"#(task-\d)-m", drawing) for _, drawing in cloud.panels]
    assert markers == [["task-2"], ["task-0", "task-1", "task-2"]]
    assert [colour for _, colour in cloud.legend] == ["var(--t0)", "var(--t1)", "var(--t2)"]
    path, _ = files.write_figure(drawn, "fig6", {}, tmp_path)
    assert "after task 1" in path.read_text()


def positions(drawing):
    """The places of each series' marks, and of each tick label by its text, in order of drawing."""
    root = ET.fromstring(drawing)
    marks = []
    for part in root.iter():
        if "data-series" in part.attrib:
            place = part.get("d", f"M{part.get('x')} {part.get('y')}")
            marks.append(np.reshape([float(word) for word in place[1:].split()], (-1, 2)))
    ticks = []
    for group in root.iter("g"):
        texts = [text for text in group if text.get("x") and text.text != "tasks learned"]
        ticks.append({text.text: (float(text.get("x")), float(text.get("y"))) for text in texts})
    return marks, ticks


def values_at(places, ticks, axis, log=False):
    """What an axis with these tick labels says of places on it."""
    labels = {}
    for text, place in ticks.items():
        with suppress(ValueError):  # the title of the axis
            labels[float(text.replace("\N{MINUS SIGN}", "-").replace(",", ""))] = place[axis]
    numbers = np.log10(list(labels)) if log else np.array(list(labels))
    slope, start = np.polyfit(list(labels.values()), numbers, 1)
    found = start + slope * np.asarray(places)
    return 10**found if log else found


def test_a_mark_on_the_page_is_where_its_axes_say(tmp_path):
    for seed in (1, 2):
        for variant in ("er", "van"):
            folder = leave(tmp_path, variant, seed, tasks=4)
            record = json.loads((folder / "record.json").read_text())
            record["seconds"] *= 100 if variant == "er" else 0.1  # an axis in powers of ten
            (folder / "record.json").write_text(json.dumps(record))
    drawn = only(tmp_path)
    all_charts = figures.charts_of(drawn)
    assert all_charts["cost-seconds"].log_x
    for chart in all_charts.values():
        marks, (below, beside) = positions(svg.chart_svg(chart, style.styles([drawn]), "name"))
        assert len(marks) == len(chart.series) == 2
        for places, series in zip(marks, chart.series, strict=True):
            y = values_at(places[:, 1] + 3.5, beside, 1)
            x = values_at(places[:, 0], below, 0, chart.log_x)
            spans = np.ptp([*series.low, *series.high, *series.y]), np.ptp(series.x)
            assert y == pytest.approx(series.y, abs=0.005 * max(spans[0], 1e-9), rel=2e-3)
            assert x == pytest.approx(series.x, abs=0.005 * spans[1], rel=5e-3)


def test_a_mark_of_a_cloud_is_where_its_point_lies():
    groups = {f"task {k}": np.random.default_rng(k).normal(size=(30, 2)) for k in (1, 2, 3)}
    groups["task 4"] = np.array([[9.0, -9.0]])  # a mark alone
    marks, _ = positions(svg.cloud(groups, list(groups), "name", "title", "about"))
    places = np.concatenate(marks)
    points = np.concatenate(list(groups.values()))
    for axis, sign in ((0, 1), (1, -1)):  # down is larger in a drawing
        slope, start = np.polyfit(points[:, axis], places[:, axis], 1)
        assert sign * slope > 0
        assert start + slope * points[:, axis] == pytest.approx(places[:, axis], abs=0.06)


def test_names_of_the_page_are_unique_and_lead_somewhere(out):
    text = html(out, out / ".tsne")
    names = re.findall(r'\bid="([^"]*)"', text)
    assert len(names) == len(set(names))
    used = re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)|aria-\w+by="([^"]*)"', text)
    assert {name for found in used for name in found if name} <= set(names)
    assert text.count('role="img"') == text.count("<title id=") == text.count("<desc id=") == 14


@pytest.mark.parametrize("value", [0.0, 40.0, -3.0, 1e-7])
def test_a_chart_of_one_value_has_an_axis(value):
    series = charts.Series("van", *(np.array([1.0, value, value, value])[:, None]))
    chart = charts.Chart("name", "title", "x", "y", [series], "note")
    drawing = svg.chart_svg(chart, {"van": style.METHOD_STYLES["van"]}, "name")
    ((mark,),), (below, beside) = positions(drawing)
    assert next(iter(below)) == "1"
    assert len(beside) > 2
    assert "nan" not in drawing
    assert values_at([mark[1] + 3.5], beside, 1) == pytest.approx(
        [value], abs=0.01 * abs(value) + 1e-2
    )


def test_a_page_is_written_without_matplotlib(out, tmp_path):
    page_ = tmp_path / "page.html"
    script = (
        "import sys; from mdmt.cli.app import main; main(['report', *sys.argv[1:]]); "
        "print('matplotlib' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(out), "--out", str(page_)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "False False"
    assert 'id="s0-fig5-0-t"' in page_.read_text()


def test_running_runs_are_shown_with_their_curves_so_far(tmp_path):
    folders = [leave(tmp_path, variant, tasks=4) for variant in ("van", "er")]
    whole = json.loads((folders[0] / "record.json").read_text())
    interrupt(folders[0], learned=2)
    interrupt(folders[1], learned=0)
    with open(folders[0] / ".lock", "w") as one, open(folders[1] / ".lock", "w") as two:
        for lock in (one, two):
            fcntl.flock(lock, fcntl.LOCK_EX)
        studies, unusable = read(tmp_path)
        text = page.render([], unusable, where="here")
    assert studies == []
    (going_on,) = study.running_studies(unusable)
    assert [entry.label for entry in going_on.entries] == ["van, seed 1234", "er, seed 1234"]
    van, _ = charts.trend(going_on).series
    first, second = (100 * np.mean(whole["accuracy"][t][: t + 1]) for t in (0, 1))
    assert van.y == pytest.approx([first, second, np.nan, np.nan], nan_ok=True)
    shown = text[text.index('<section id="running">') :]
    assert f"<td>2 of 4<td>{second:.2f}<td>-" in shown
    assert "<td>0 of 4<td>-" in shown
    assert shown.count('<div class="plot"') == 1


def test_rows_of_one_label_and_different_settings_are_told_apart(tmp_path):
    first, second = leave(tmp_path, "van"), leave(tmp_path, "van", threads=2)
    labels = [entry.label for entry in only(tmp_path).entries]
    assert sorted(labels) == sorted(f"van ({folder.parent.name[:6]})" for folder in (first, second))


def test_what_cannot_be_shown_is_listed_with_its_reason(tmp_path):
    shown = leave(tmp_path, "van", 1)
    names = ("no json", "no record", "no config", "infinite", "ragged", "list", "twice", "running")
    made = {name: leave(tmp_path, "van", seed) for seed, name in enumerate(names, 2)}
    (made["no json"] / "record.json").write_text('{"accuracy": [')
    (made["no record"] / "record.json").unlink()
    (made["no config"] / "config.json").write_text("[]")
    content = json.loads((made["infinite"] / "record.json").read_text())
    (made["infinite"] / "record.json").write_text(json.dumps({**content, "seconds": float("inf")}))
    (made["ragged"] / "record.json").write_text(json.dumps({**content, "accuracy": [[1, 2], [3]]}))
    (made["list"] / "record.json").write_text("[1, 2]")
    (made["twice"] / "config.json").write_text((shown / "config.json").read_text())
    (made["running"] / "record.json").unlink()
    with open(made["running"] / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (found,), unusable = read(tmp_path)
        text = html(tmp_path)
    assert [run.path for run in found.runs] == [shown]
    reasons = {run.path: run.reason for run in unusable}
    assert reasons[made["no json"]] == "record.json is damaged: it is not a JSON object"
    assert reasons[made["no record"]] == "stopped or killed before its end; it left no checkpoint"
    assert reasons[made["no config"]] == "config.json is damaged: it is not a JSON object"
    assert (
        reasons[made["infinite"]]
        == "record.json is damaged: seconds is inf: it must be a number from 0 to 1e+12"
    )
    assert reasons[made["ragged"]] == "record.json is damaged: accuracy is not 3 x 3"
    assert reasons[made["list"]] == "record.json is damaged: it is not a JSON object"
    assert reasons[made["twice"]] == f"the same run as {shown}, which is shown"
    assert reasons[made["running"]] == "running now"
    assert [run.path for run in unusable if run.is_running] == [made["running"]]
    assert f"{len(unusable)} run folders" in text
    assert "1 running now" in text


def test_a_run_that_has_just_begun(tmp_path):
    folder = leave(tmp_path, "van")
    (folder / ".lock").touch()
    (folder / "config.json").unlink()
    (folder / "record.json").unlink()
    assert [one.reason for one in read(tmp_path)[1]] == ["nothing is written yet"]


def test_held_out_tasks_are_a_study_of_their_own_and_need_no_command(tmp_path):
    leave(tmp_path, "van")
    leave(tmp_path, "er", cross_validation=True)
    first, second = read(tmp_path)[0]
    assert {len(sections.commands(one)) for one in (first, second)} == {0, 1}


def test_a_run_says_how_far_it_came(tmp_path):
    folder = leave(tmp_path, "van")
    interrupt(folder, learned=2)
    (one,) = read(tmp_path)[1]
    assert one.reason.endswith("; 2 of 3 tasks learned at its last checkpoint")


def test_one_is_singular(tmp_path, capsys):
    for variant in ("van", "er"):
        leave(tmp_path, variant, tasks=1)
    folder = leave(tmp_path, "van", 1235, tasks=1)
    interrupt(folder, learned=0)
    text = html(tmp_path)
    assert "0 of 1 task learned at its last checkpoint" in text
    assert re.search(r'title="[^"]*, 1 seed"', text)
    assert main(["run", "--method", "van", "--tasks", "1", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("van on permuted-digits, 1 task, seed 1234\n")
    plurals = r"(?<![\d,.])1 (tasks|runs|seeds|steps|methods|files|run folders)\b"
    assert re.findall(plurals, text + printed) == []


def test_trend_and_forgetting_are_means_over_seeds(out):
    found = only(out)
    van = found.entries[1]
    trend = charts.trend(found).series[1]
    by_hand = [[100 * np.mean(run.accuracy[t, : t + 1]) for t in range(3)] for run in van.runs]
    assert trend.label == "van"
    assert trend.y == pytest.approx(np.mean(by_hand, axis=0))
    assert trend.high - trend.low == pytest.approx(2 * np.std(by_hand, axis=0))
    assert trend.y[-1] == pytest.approx(100 * van.row.metrics["A_T"]["mean"])
    lost = charts.forgetting_chart(found).series[1]
    assert list(lost.x) == [1, 2]
    assert lost.y.mean() == pytest.approx(100 * van.row.metrics["F_T"]["mean"])
    joint = charts.trend(found).series[0].y
    assert np.isnan(joint[:2]).all()
    assert joint[2] == pytest.approx(100 * found.entries[0].row.metrics["A_T"]["mean"])


def test_learning_speed_ends_at_lca_10(out):
    found = only(out)
    _, van, ours = charts.learning_speed(found).series
    assert list(van.x) == list(range(11))
    for one, entry in ((van, found.entries[1]), (ours, found.entries[2])):
        assert one.y[10] == pytest.approx(entry.row.metrics["LCA_10"]["mean"])
        assert one.y[0] == pytest.approx(np.mean([run.curve[:, 0].mean() for run in entry.runs]))


def test_cost_is_what_the_runs_took(out):
    seconds, memory = charts.cost_in_seconds(only(out)), charts.cost_in_memory(only(out))
    entry = only(out).entries[1]
    assert seconds.series[1].x[0] == pytest.approx(
        np.mean([run.record.seconds for run in entry.runs])
    )
    assert memory.series[1].x[0] == pytest.approx(
        np.mean([run.record.memory_bytes for run in entry.runs]) / 1e6
    )
    assert tables.main_grid([entry.row]).rows[0][-1] == bytes_text(
        max(run.record.memory_bytes for run in entry.runs)
    )
    assert seconds.summary().startswith("average accuracy A_T (%), highest first: ")


def test_what_a_method_remembers_counts_as_memory(tmp_path):
    folder = leave(tmp_path, "ewc")
    record = json.loads((folder / "record.json").read_text())
    (folder / "record.json").write_text(
        json.dumps({**record, "memory_bytes": 0, "buffer_bytes": 2_500_000})
    )
    found = only(tmp_path)
    assert found.rows[0].memory_bytes == 2_500_000
    assert charts.cost_in_memory(found).series[0].x[0] == pytest.approx(2.5)
    assert sections.main_table(found).rows[0].cells[-2].text == "2.5 MB"


def test_angles_by_hand():
    kept = {
        "features.0.0": np.array([[1, 0], [0.6, 0.8]], np.float16),
        "lengths.0.0": np.array([3, 2], np.float32),
        "labels.0": np.array([4, 7]),
        "head_of_class": np.array([-1, 1, 1, 2, 0, 2, 2, 0]),
        "head.0.0": np.array([[1, 1, 9], [0, 5, 9]], np.float32),
    }
    found = features.angles_to_own_centre(Snapshots(kept), 0)  # the bias, 9, takes no part
    assert found == pytest.approx([45, np.degrees(np.arccos(0.8))], abs=0.05)
    assert len(features.angles_to_own_centre(Snapshots(kept), 1)) == 0


def test_centres_are_weights_of_heads_or_means_of_features(tmp_path):
    own = study.read_run(RunFolder(leave(tmp_path, "van", benchmark="split-digits")))
    names, centres = features.class_centres(own)
    assert names == [f"task {task}, class {number}" for task in (1, 2, 3) for number in (1, 2)]
    assert np.array_equal(centres, own.snapshots["head"][:, :-1])
    common = study.read_run(RunFolder(leave(tmp_path, "van")))
    names, centres = features.class_centres(common)
    assert len(names) == 6
    here = common.snapshots.features(1, 2)[common.snapshots["labels.1"] == 1]
    assert np.allclose(centres[3], here.mean(axis=0))
    assert "the mean feature of a class, not its weights" in html(tmp_path)
    (angles,) = heatmaps.centre_maps(figures.Figures(only(common.path), 0, {}, {}))
    expected = np.degrees(
        np.arccos(centres[0] @ centres[1] / np.linalg.norm(centres[0]) / np.linalg.norm(centres[1]))
    )
    assert angles.columns[:3] == ["1.1", "1.2", "2.1"]
    assert angles.rows[1][1][0].exact == f"{expected:.1f}°"
    assert [sum(cell is not None for cell in cells) for _, cells in angles.rows] == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]


def test_every_difference_on_the_page_has_its_interval(out):
    found = only(out)
    table = sections.difference_table(found)
    assert table.against == "mdmt-r"
    _, van, ours = found.rows
    gap = PairedDifferences(found.rows, "A_T").between(van, ours)
    low, high = gap["interval"]
    text = f"{100 * gap['mean']:+.2f} [{100 * low:+.2f}, {100 * high:+.2f}]"
    assert f"{table.rows[1].cells[0].text} {table.rows[1].cells[0].below}" == text
    assert heatmaps.pairs(found).rows[1][1][2].exact == f"{text}, 2 seeds"
    assert table.rows[0].cells[1].text == "-"  # joint has no F_T


def test_bold_is_the_best_and_what_is_not_shown_to_be_worse(out):
    def row(method, *accuracies, seeds=(1, 2, 3)):
        metric = comparison.mean_std(accuracies)
        cells = {
            one.name: metric if one.name in ("A_T", "F_T") else None for one in metrics.METRICS
        }
        return some_row(method=method, label=method, seeds=list(seeds), metrics=cells)

    rows = [
        row("joint", 0.99, 0.99, 0.99),  # learns all at once
        row("mdmt-r", 0.90, 0.80, 0.70),
        row("mega", 0.91, 0.79, 0.69),  # differs by less than its differences vary
        row("er", 0.82, 0.72, 0.62),  # surely worse, though the stds overlap
        row("van", 0.89, seeds=(1,)),  # one seed
    ]
    strong = {
        name: [line[0] for line in tables.main_grid(rows).rows if isinstance(line[column], Strong)]
        for column, name in ((1, "A_T"), (2, "F_T"))
    }
    assert strong == {"A_T": ["mdmt-r", "mega"], "F_T": ["er"]}
    (block,) = tables.blocks(rows)
    assert block.below[0].startswith("bold: the best, and all that no 95 % interval over")
    assert block.below[1] == sentence(*rows)
    assert r"mdmt-r & $\mathbf{80.00 \pm 8.16}$ & $0.800 \pm 0.082$ &" in as_latex([block])
    assert "| `mdmt-r` | **80.00 ± 8.16** | 0.800 ± 0.082 |" in as_markdown([block])
    assert tables.blocks(rows[:2])[0].below == []  # but one method beside the bound
    lines = sections.main_table(only(out)).rows
    assert {line.label for line in lines if line.cells[0].best} <= {"van", "mdmt-r"}


def test_with_one_seed_the_best_alone_is_bold():
    for better, first, second in (("A_T", 0.7, 0.6), ("F_T", 0.2, 0.3)):
        metric = next(one for one in metrics.METRICS if one.name == better)
        rows = [
            some_row(label=label, seeds=[1], metrics={better: comparison.mean_std([value])})
            for label, value in (("second", second), ("first", first))
        ]
        assert [row.label for row in ranking(rows, metric).leaders] == ["first"]


def test_the_command_asks_for_these_very_runs(tmp_path):
    made = {
        leave(tmp_path, v, s) for v in ("er[memory=5,reference_batch=8]", "van") for s in (1, 2, 7)
    }
    made.add(leave(tmp_path, "mdmt-r[reading=paper]", 1))
    asked = set()
    lines = sections.commands(only(tmp_path))
    assert len(lines) == 3
    for line in lines:
        words_ = shlex.split(line)
        assert words_[:3] == ["mdmt", "compare", "permuted-digits"]
        options = dict(zip(words_[3::2], words_[4::2], strict=True))
        seeds = range(int(options["--seed"]), int(options["--seed"]) + int(options["--seeds"]))
        tasks = int(options["--tasks"])
        request = RunRequest("permuted-digits", seed=seeds.start, seeds=len(seeds), tasks=tasks)
        for of_seed in configs_for(request, split_methods(options["--methods"])):
            asked |= {folder_of(config, tmp_path) for config in of_seed}
    assert asked == made


def test_the_set_up_names_the_rows_whose_settings_differ(tmp_path):
    for variant in ("van", "er", "mega"):
        leave(tmp_path, variant, 1)
    leave(tmp_path, "er", 2)
    about = sections.setup(only(tmp_path))
    assert (about["batch"], about["epochs"]) == ("10", "1")
    leave(tmp_path, "mer", 1)
    leave(tmp_path, "van[epochs=3,batch=5]", 1)
    about = sections.setup(only(tmp_path))
    assert about["batch"] == "10, except van[batch=5,epochs=3]: 5; mer: 1"
    assert about["epochs"] == "1, except van[batch=5,epochs=3]: 3"
    assert about["network"] == "mlp (inputs 784, width 256)"
    assert about["seeds"] == "1, except er: 1, 2"
    assert "<dt>batch</dt><dd>10, except van[batch=5,epochs=3]: 5; mer: 1</dd>" in html(tmp_path)


def test_without_a_common_setting_the_set_up_names_every_row(tmp_path):
    backbone = {"name": "mlp", "arguments": {"inputs": 64, "width": 8}}
    leave(tmp_path, "van", backbone=backbone)
    leave(tmp_path, "mer")
    about = sections.setup(only(tmp_path))
    assert about["batch"] == "van: 10; mer: 1"
    assert about["network"].startswith("van: mlp (inputs 64, width 8); mer: mlp (")


def test_published_values_stand_beside_full_runs_only(tmp_path):
    folder = leave(tmp_path, "mdmt-r", benchmark="split-cifar", tasks=17)
    record = json.loads((folder / "record.json").read_text())
    reduced = sections.main_table(only(tmp_path))
    assert not reduced.published
    assert [cell.below for cell in reduced.rows[0].cells] == [""] * len(reduced.rows[0].cells)
    (folder / "record.json").write_text(json.dumps({**record, "reduced": None}))
    full = sections.main_table(only(tmp_path))
    assert full.columns == reduced.columns
    assert full.columns[:3] == ["method", "A_T (%) ↑", "F_T ↓"]
    gap = 100 * record["metrics"]["A_T"] - 69.20
    assert full.rows[0].cells[0].below == f"69.20 ± 1.60 ({gap:+.2f})"
    assert f"<small>69.20 ± 1.60 ({gap:+.2f})</small>" in html(tmp_path)


def change(folder, **parts):
    """Overwrite parts of a record."""
    record = json.loads((folder / "record.json").read_text())
    (folder / "record.json").write_text(json.dumps({**record, **parts}))


def test_accuracy_without_the_task_is_left_out_where_it_changes_nothing(tmp_path):
    leave(tmp_path, "van")
    second = leave(tmp_path, "er")
    assert "A_free" not in html(tmp_path)
    change(second, accuracy_task_free=[[0.1] * 3] * 3)
    table = sections.main_table(only(tmp_path))
    assert "A_free (%) ↑" in table.columns
    assert len(table.rows[0].cells) == len(table.columns) - 1
    assert "<dt>A_free (%) ↑</dt>" in html(tmp_path)


def test_versions_are_named_once(tmp_path):
    usual = {"mdmt": "0.1.0", "torch": "2.9.1"}
    for seed, commit in ((1, "abc"), (2, "def"), (3, "abc")):
        change(leave(tmp_path, "van", seed), versions={**usual, "commit": commit})
    change(leave(tmp_path, "van", benchmark="split-digits"), versions=usual)
    text = html(tmp_path)
    assert text.count("torch 2.9.1") == 1
    assert "mdmt 0.1.0; torch 2.9.1; commit abc, def." in text
    (of_row, _) = re.findall(r'<p class="note">lr [^<]*</p>', text)
    assert of_row.endswith("commit abc and def</p>")


def test_a_setting_that_failed_is_out_of_the_scale_of_charts(tmp_path):
    for variant in ("van", "er", "gem"):
        leave(tmp_path, variant)
    broken = leave(tmp_path, "gem[lr=0.2]")
    change(
        broken,
        accuracy=[[0.9, 0.5, 0.5], [0.5, 0.5, 0.5], [0.5, 0.5, 0.5]],  # of two classes
        drift=[[0, None, None], [9, 0, None], [9, 9, 0]],
        seconds=1e6,
    )
    found = only(tmp_path)
    assert [entry.label for entry in found.failed] == ["gem[lr=0.2]"]
    for chart in figures.charts_of(found).values():
        assert "gem[lr=0.2]" not in [one.label for one in chart.series]
        assert chart.note.endswith("because it ends at chance: gem[lr=0.2].")
    (drawn,) = figures.figures_of([found], None, compute=False)
    assert float(heatmaps.drift_maps(drawn)[0].strongest) < 1
    pairs = dict(heatmaps.pairs(found).rows)
    others = [abs(cell.shade) for cell in pairs["van"][:3] if cell]
    assert max(others + [abs(cell.shade) for cell in pairs["er"][:3] if cell]) == 100
    assert "gem[lr=0.2]" in [row.label for row in sections.main_table(found).rows]


def test_forgetting_everything_is_not_a_setting_that_failed(tmp_path):
    change(leave(tmp_path, "van"), accuracy=[[0.9, 0.5, 0.5], [0.2, 0.9, 0.5], [0.1, 0.1, 0.9]])
    leave(tmp_path, "er")
    assert only(tmp_path).failed == []
    shutil.rmtree(tmp_path / "permuted-digits" / "er")
    broken = leave(tmp_path, "gem")
    for folder in (broken, next((tmp_path / "permuted-digits" / "van").glob("*/*"))):
        change(folder, accuracy=[[0.5] * 3] * 3)
    assert only(tmp_path).failed == []  # or nothing would be drawn


def test_bars_are_the_accuracies_after_learning_and_at_the_end(tmp_path):
    first = [[0.9, 0.1, 0.1], [0.7, 0.8, 0.1], [0.5, 0.6, 1.0]]
    second = [[0.7, 0.1, 0.1], [0.7, 0.8, 0.1], [0.3, 0.6, 0.8]]
    for seed, accuracy in enumerate((first, second)):
        change(leave(tmp_path, "er", seed), accuracy=accuracy)
    (drawn,) = figures.figures_of([only(tmp_path)], None, compute=False)
    bars = drawn.by_task["er"]
    assert bars.tasks == [1, 2, 3]
    assert bars.after == pytest.approx([80, 80, 90])
    assert bars.end == pytest.approx([40, 60, 90])
    text = svg.task_bars(bars, "red", "name", "title")
    after, end = (
        [float(top) for top in re.findall(r"V([\d.]+)h", shape)]
        for shape in re.findall(r'fill:red[^>]* d="([^"]*)"', text)
    )
    bottom = svg.BARS_BOTTOM
    heights = [(bottom - top) / (bottom - 6) for top in (*after, *end)]
    assert heights == pytest.approx([0.8, 0.8, 0.9, 0.4, 0.6, 0.9], abs=0.005)
    assert "task 1: 80.0 % after learning, 40.0 % at the end;" in text
    assert "BWT -0.300 ± 0.000</span>" in html(tmp_path)


def test_every_chart_says_which_direction_is_better(out, text):
    directions = {name: chart.better[:1] for name, chart in figures.charts_of(only(out)).items()}
    assert directions == {
        "fig4": "↑", "forgetting": "↓", "fig7": "↑", "drift": "↓", "cost-seconds": "↖",
        "cost-bytes": "↖", "fig3a": "↓",
    }  # fmt: skip
    for chart in figures.charts_of(only(out)).values():
        assert (
            f'{chart.title} <span class="better">{chart.better}</span>'.replace("'", "&#39;")
            in text
        )
    assert sections.main_table(only(out)).columns[-3:] == ["seconds ↓", "memory ↓", "seeds"]


def test_what_is_wrong_with_a_published_row_stands_on_the_page(tmp_path):
    folder = leave(tmp_path, "er", benchmark="split-cifar", tasks=17)
    record = json.loads((folder / "record.json").read_text())
    (folder / "record.json").write_text(json.dumps({**record, "reduced": None}))
    cells = [cell.below for cell in sections.main_table(only(tmp_path)).rows[0].cells]
    assert ["†" in cell for cell in cells[:4]] == [False, False, True, True]
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 0
    page_ = (tmp_path / "page.html").read_text()
    assert "† er: the stds of LCA_10 and LTR look like misprints." in page_


def test_styles_differ_in_more_than_colour(tmp_path):
    known = list(style.METHOD_STYLES.values())
    assert len({one.marker for one in known}) == 14
    for variant in ("van", "van[lr=0.1]", "van[lr=0.2]"):
        leave(tmp_path, variant)
    found = style.styles([only(tmp_path)])
    assert found["van"] == style.METHOD_STYLES["van"]
    assert len({(one.line, one.marker) for one in found.values()}) == 3


def test_no_two_methods_have_one_colour(tmp_path):
    for variant in (*METHODS, "van[lr=0.1]", "er[lr=0.2]"):
        leave(tmp_path, variant)
    for name in ("mine:A", "mine:B"):
        leave(tmp_path, "van", method=name, label=name)
    found = style.styles([only(tmp_path)])
    colours = {label: one.colour for label, one in found.items()}
    assert (colours.pop("van[lr=0.1]"), colours.pop("er[lr=0.2]")) == (
        colours["van"],
        colours["er"],
    )
    assert len(set(colours.values())) == len(colours) == 16
    light, dark, *_ = Path(page.__file__).with_name("page.css").read_text().split("@media screen")
    for number, colour in enumerate(style.COLOURS):
        assert f"--c{number}: {colour};" in light
    of_dark = re.findall(r"--c\d+: (#\w+);", dark)
    assert len(set(of_dark)) == len(of_dark) == len(style.COLOURS)


def test_names_are_text_and_nothing_else(tmp_path):
    leave(tmp_path, "van", label=EVIL)
    leave(tmp_path, "er", label="_$x_{$")
    leave(tmp_path, "van", 1, benchmark="permuted-digits")
    config = {
        **json.loads(next(tmp_path.rglob("config.json")).read_text()),
        "benchmark": EVIL.replace("/", ""),
    }
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text(json.dumps(config))
    text = html(tmp_path)
    assert EVIL not in text
    assert EVIL.replace("/", "") not in text
    assert text.count("<script>") == 1
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;" in text
    (drawn,) = figures.figures_of(read(tmp_path)[0], None, compute=False)
    for name in ("fig4", "matrices"):
        path, _ = files.write_figure(drawn, name, style.styles([drawn.study]), tmp_path)
        ET.fromstring(path.read_text())
        assert EVIL not in path.read_text()


def test_one_run_of_one_task(tmp_path):
    leave(tmp_path, "van", tasks=1)
    text = html(tmp_path)
    assert "Only one method." in text
    assert "No drift: there is only one task." in text
    assert len(charts.trend(only(tmp_path)).series) == 1


def test_runs_without_snapshots_say_so(tmp_path):
    folder = leave(tmp_path, "van")
    path = folder / "snapshots.safetensors"
    kept = load_file(path)
    path.write_bytes(b"broken")
    assert html(tmp_path, tmp_path / ".tsne").count("Not drawn: these runs saved no features") == 3
    for name, value in {
        "labels.1": kept["labels.1"] + 99, "lengths.0.1": kept["lengths.0.1"][1:], "head": kept["head"][:, 1:].copy(),
        "head.0.0": kept["head.0.0"] * np.nan, "features.0.0.0": kept["features.0.0"],
    }.items():  # fmt: skip
        save_file({**kept, name: value}, path)
        assert study.read_run(RunFolder(folder)).snapshots == {}, name
    save_file(kept, path)
    assert set(study.read_run(RunFolder(folder)).snapshots) == set(kept)


def test_long_streams_show_some_tasks():
    shown = figures.task_sample(1000)
    assert len(shown) == figures.MAX_SHOWN_TASKS
    assert (shown[0], shown[-1]) == (0, 999)
    assert figures.task_sample(17) == list(range(17))


def test_a_page_says_when_it_shows_some_of_the_tasks(tmp_path, text):
    leave(tmp_path, "van", tasks=figures.MAX_SHOWN_TASKS + 1)
    # Below the bars, the matrices and the drift.
    assert html(tmp_path).count(" Of the 41 tasks 40 are shown, evenly spaced.") == 3
    assert "evenly spaced" not in text


def test_a_chart_without_numbers_is_left_out(tmp_path, out):
    leave(tmp_path, "joint")
    assert not {"fig7", "forgetting"} & set(figures.charts_of(only(tmp_path)))
    text = html(tmp_path)
    assert "How fast a new task is learned (Fig. 7)" not in text
    assert "Accuracy against time" in text
    assert [one.label for one in figures.charts_of(only(out))["fig7"].series] == ["van", "mdmt-r"]


def test_tsne_is_kept(tmp_path, monkeypatch):
    groups = {"task 1": np.random.default_rng(1).normal(size=(12, 4)), "task 2": np.zeros((8, 4))}
    assert features.embed(groups, tmp_path / "kept", compute=False) is None
    first = features.embed(groups, tmp_path / "kept")
    assert {name: len(points) for name, points in first.items()} == {"task 1": 12, "task 2": 8}
    monkeypatch.setattr(features, "_tsne", None)
    again = features.embed(groups, tmp_path / "kept", compute=False)
    assert all(np.array_equal(first[name], again[name]) for name in groups)
    (kept,) = (tmp_path / "kept").iterdir()
    kept.write_bytes(b"broken")
    assert features.embed(groups, tmp_path / "kept", compute=False) is None
    assert features.embed({"task 1": np.zeros((3, 4))}, None) is None


def header(text):
    """An .npy file with this header and nothing behind it."""
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize(
    "content",
    [
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 2), }"),
        header("{'descr': '<f8', 'shape': (20, 2), 'x': (("),  # TokenError
        header("(" * 5000),
        b"PK\x03\x04 no archive",  # BadZipFile
        b"PK\x05\x06" + bytes(18),  # an archive without arrays
        b"\x80\x04N.",
        b"",
    ],
    ids=["rows", "token", "deep", "zip", "empty-zip", "pickle", "empty"],
)
def test_a_damaged_cache_of_tsne_is_computed_again(tmp_path, content):
    groups = {"task 1": np.random.default_rng(1).normal(size=(20, 4))}
    first = features.embed(groups, tmp_path)
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(content)
    again = features.embed(groups, tmp_path)
    assert np.array_equal(first["task 1"], again["task 1"])


def test_same_runs_same_page(out, text):
    assert html(out) == text


def test_the_page_names_no_other_place(text):
    addresses = set(re.findall(r"(?:src|href|action)=\"([^\"]*)\"|url\(([^)]*)\)", text))
    assert all((a or b).startswith(("#", "data:,")) for a, b in addresses)
    assert "default-src 'none'" in text


def test_report_writes_the_page_the_figures_and_the_tables(out, tmp_path, capsys):
    target = tmp_path / "new" / "page.html"
    assert (
        main(["report", str(out), "--out", str(target), "--figures", str(tmp_path / "figures")])
        == 0
    )
    printed = capsys.readouterr().out
    assert printed.startswith(f"{target}: 6 runs in 1 study\n")
    assert target.read_text().startswith("<!doctype html>")
    (place,) = (tmp_path / "figures").iterdir()
    names = {path.name for path in place.iterdir()}
    drawn = {
        "fig3a",
        "fig3b",
        "fig4",
        "fig5",
        "fig6",
        "fig7",
        "forgetting",
        "drift",
        "cost-seconds",
        "cost-bytes",
        "tasks",
        "matrices",
        "drifts",
    }
    assert {f"{name}{ending}" for name in drawn for ending in (".svg", ".png")} < names
    assert {"table1.csv", "table1.tex", "fig4.csv"} < names
    for path in place.glob("*.svg"):
        ET.fromstring(path.read_text())
    assert "class means, one shared head" in (place / "fig3b.svg").read_text()
    with open(place / "fig4.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == ["joint"] + 3 * ["van"] + 3 * ["mdmt-r"]
    with open(place / "table1.csv") as file:
        assert [row["label"] for row in csv.DictReader(file)] == ["joint", "van", "mdmt-r"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "nowhere"], "nowhere is not a folder: give one that holds runs"),
        (["report", "."], "no runs under ."),
        (
            ["reproduce", "fig4", "permuted-digits", "--workers", "none"],
            "--workers none: must be auto",
        ),
        (
            ["reproduce", "fig4", "permuted-digits", "--checkpoint-every", "soon"],
            "checkpoint-every soon",
        ),
        (["watch", ".", "--port", "70000"], "Invalid value for '--port'"),
    ],
)
def test_mistakes_are_one_line(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra_it_says_what_to_install(out, capsys, monkeypatch):
    monkeypatch.setattr("mdmt.cli.report.find_spec", lambda name: None)
    assert main(["report", str(out)]) == 2
    assert (
        capsys.readouterr().err
        == "mdmt: the report needs the package jinja2: pip install jinja2 matplotlib scikit-learn\n"
    )


def test_help_loads_neither_torch_nor_matplotlib():
    script = (
        "import sys; from mdmt.cli.app import main; main(['report', '--help']); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "--figures" in done.stdout
    assert not {"torch", "matplotlib", "jinja2", "sklearn"} & set(done.stdout.split())


WATCH = """
import sys, threading, urllib.request
from pathlib import Path
from mdmt.report.server import make_server
with make_server(Path(sys.argv[1]), 0) as server:
    threading.Thread(target=server.serve_forever, args=(0.05,)).start()
    page = urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/").read().decode()
    server.shutdown()
print("fig4" in page, "torch" in sys.modules)
"""


def test_what_only_reads_runs_loads_no_torch(tmp_path):
    runs = shutil.copytree(RELEASE, tmp_path / "runs")
    # Published values may stand beside it.
    full = leave(runs, "mdmt-r", benchmark="split-cifar", tasks=17)
    record = json.loads((full / "record.json").read_text())
    (full / "record.json").write_text(json.dumps({**record, "reduced": None}))
    page_ = tmp_path / "page.html"
    commands = [
        ["report", str(runs), "--out", str(page_), "--figures", str(tmp_path / "figures")],
        ["runs", "list", str(runs)],
        ["runs", "show", "mdmt-r/83607f013602", "--out", str(runs)],
        ["runs", "show", "er", "--out", str(runs)],
        ["runs", "show", "er", "--out", str(runs), "--csv"],
        ["runs", "remove", "er", "--out", str(runs), "--yes"],
    ]
    script = (
        "import sys; from mdmt.cli.app import main; codes = [main(c) for c in eval(sys.argv[1])]; "
    )
    script += "print(codes, 'torch' in sys.modules)"
    read_ = subprocess.run(
        [sys.executable, "-c", script, repr(commands)], capture_output=True, text=True, check=True
    )
    assert read_.stdout.splitlines()[-1] == "[0, 0, 0, 0, 0, 0] False"
    assert "69.20 ± 1.60" in page_.read_text()
    watched = subprocess.run(
        [sys.executable, "-c", WATCH, str(runs)], capture_output=True, text=True, check=True
    )
    assert watched.stdout == "True False\n"


def test_a_figure_of_the_paper_from_finished_runs(tmp_path, capsys):
    runs, to = tmp_path / "runs", tmp_path / "figures"
    shown = split_methods(paper.FIGURES["fig3"].methods)
    labels = [config_for("permuted-digits", variant).label for variant in shown]
    for variant in shown:
        leave(runs, variant, tasks=2)
    arguments = ["permuted-digits", "--tasks", "2", "--out", str(runs), "--to", str(to), "--quiet"]
    assert main(["reproduce", "fig3", *arguments]) == 0
    names = ["fig3a.svg", "fig3a.png", "fig3b.svg", "fig3b.png"]
    written = [to / "permuted-digits" / name for name in names]
    assert capsys.readouterr().out.split() == [str(path) for path in written]
    both = ["--methods", f"{shown[-1]},van"]
    leave(runs, "van", tasks=2)
    assert main(["reproduce", "fig3", *arguments, *both]) == 2
    assert (
        capsys.readouterr().err.splitlines()[-1]
        == "mdmt: fig3: its methods must have one kind of head"
    )
    text = written[0].read_text()
    assert all(f">{variant}<" in text for variant in labels)


def test_fig_3_compares_softmaxes_whose_tasks_have_heads_of_their_own():
    """With a shared head the task margin is 0, and the plain softmax is what the others are to
    beat.
    """
    variants = split_methods(paper.FIGURES["fig3"].methods)
    configs = [config_for("permuted-mnist", variant) for variant in variants]
    assert {config.heads for config in configs} == {"per-task"}
    parts = [
        (a["head"], a["competitors"], a["task_margin"], a["class_margin"], a["distance"])
        for a in (config.arguments for config in configs)
    ]
    assert parts == [
        ("linear", "own", 0.1, 0.01, "none"),
        ("cosine", "released", 0.0, 0.0, "none"),
        ("cosine", "released", 0.1, 0.01, "none"),
        ("cosine", "released", 0.1, 0.01, "l1"),
    ]


def test_every_figure_of_the_paper_has_a_command_and_methods_that_there_are(capsys):
    assert main(["reproduce", "--help"]) == 0
    printed = capsys.readouterr().out
    for name, one in paper.FIGURES.items():
        assert name in printed
        assert configs_for(RunRequest("permuted-digits"), split_methods(one.methods))


@contextmanager
def served(runs):
    with make_server(runs, 0) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield serving.server_port
        finally:
            serving.shutdown()
            thread.join()


def ask(port, path, **headers):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.read().decode()


def test_watch_shows_what_is_there_now_to_this_machine_alone(tmp_path):
    runs = tmp_path / "runs"
    folder = leave(runs, "van")
    done = (folder / "record.json").read_text()
    (folder / "record.json").unlink()
    with served(runs) as port:
        first = ask(port, "/version")
        page_ = ask(port, "/")
        assert "No run is finished yet." in page_
        assert f'data-version="{first}"' in page_
        assert "connect-src 'self'" in page_
        assert ask(port, "/version") == first
        (folder / "record.json").write_text(done)
        assert ask(port, "/version") != first
        assert "Average accuracy along learning" in ask(port, "/")
        for path, headers, code in (
            ("/", {"Host": "evil.example"}, 403), ("/config.json", {}, 404), ("/../../etc/passwd", {}, 404),
        ):  # fmt: skip
            with pytest.raises(urllib.error.HTTPError) as error:
                ask(port, path, **headers)
            assert error.value.code == code
            error.value.close()


def test_watch_ends_connections_whose_request_does_not_arrive(tmp_path, monkeypatch):
    monkeypatch.setattr("mdmt.report.server.Server.seconds", 0.1)
    with served(tmp_path) as port, ExitStack() as stack:
        for sent in (b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: 127"):
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))
            slow.sendall(sent)
            assert slow.recv(100) == b""  # the server closed it; before, this waited for ever
        assert "No run is finished yet." in ask(port, "/")


def test_watch_refuses_more_connections_than_it_has_threads_for(tmp_path, monkeypatch):
    monkeypatch.setattr("mdmt.report.server.Server.connections", 3)
    with served(tmp_path) as port, ExitStack() as stack:
        idle = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 10)) for _ in range(3)
        ]
        with socket.create_connection(("127.0.0.1", port), 10) as refused:
            assert refused.recv(1) == b""
        idle[0].sendall(b"GET /version HTTP/1.1\r\n\r\n")
        assert idle[0].recv(100).startswith(b"HTTP/1.0 403")
        while idle[0].recv(1000):
            pass
        assert soon(lambda: answers(port))


def answers(port):
    try:
        return ask(port, "/version")
    except OSError:
        return ""


def test_a_client_of_watch_that_reads_nothing_is_left(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("mdmt.report.server.Server.seconds", 0.1)
    monkeypatch.setattr("mdmt.report.server.Server.connections", 1)
    monkeypatch.setattr("mdmt.report.server.LivePage.html", lambda self: b"x" * 10**8)
    with served(tmp_path) as port, socket.create_connection(("127.0.0.1", port), 10) as lazy:
        lazy.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        assert soon(lambda: answers(port), 10)  # it had the only place
    assert capfd.readouterr().err == ""


def test_watch_starts_before_the_first_run(tmp_path):
    runs = tmp_path / "runs"
    with served(runs) as port:
        assert "No run is finished yet." in ask(port, "/")
        first = ask(port, "/version")
        leave(runs, "van")
        assert ask(port, "/version") != first
        assert "Average accuracy along learning" in ask(port, "/")


def test_watch_takes_a_folder_that_is_not_there_yet_but_no_file(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("mdmt.report.server.Server.serve_forever", lambda self: None)
    assert main(["watch", str(tmp_path / "later"), "--port", "0"]) == 0
    assert capsys.readouterr().err.endswith(
        "later does not exist yet: the page fills when a run begins there\n"
    )
    file = tmp_path / "file"
    file.touch()
    assert main(["watch", str(file), "--port", "0"]) == 2
    assert "is not a folder" in capsys.readouterr().err


def test_ctrl_c_ends_watch_quietly(tmp_path):
    script = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); from"
        " mdmt.cli.app import main; "
    )
    command_ = [
        sys.executable,
        "-c",
        script + f"sys.exit(main(['watch', {str(tmp_path)!r}, '--port', '0']))",
    ]
    with subprocess.Popen(
        command_, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watching:
        address = watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        out, err = watching.communicate(timeout=60)
    assert re.fullmatch(r"http://127\.0\.0\.1:[1-9]\d*/  \(Ctrl-C ends it\)\n", address)
    assert (watching.returncode, out, err.strip()) == (0, "", "")


def test_watch_binds_to_this_machine_alone(tmp_path):
    with make_server(tmp_path, 0) as serving:
        assert serving.socket.getsockname()[0] == "127.0.0.1"
        assert main(["watch", str(tmp_path), "--port", str(serving.server_port)]) == 2


def test_every_metric_has_its_formula_meaning_and_direction(text):
    assert {metric.name: metric.better for metric in metrics.METRICS} == {
        "A_T": "higher", "F_T": "lower", "LCA_10": "higher", "LTR": "lower", "A_free": "higher",
    }  # fmt: skip
    for metric in metrics.METRICS[:4]:  # A_free is A_T here
        formula = metric.formula.replace("<", "&lt;")
        assert f"<dt>{metric.heading} {metric.arrow}</dt>" in text
        assert f"{metric.meaning}; {metric.better} is better<br><code>{formula}</code>" in text


def test_sections_stand_in_their_order(text):
    for first, second in pairwise(
        [
            "setup",
            "table",
            "differences",
            "trend",
            "tasks",
            "matrices",
            "cost",
            "features",
            "angles",
            "drifts",
            "methods",
        ]
    ):
        assert text.index(f'id="s0-{first}"') < text.index(f'id="s0-{second}"')


@pytest.fixture
def worst(monkeypatch):
    """Another metric, which no run was written with."""
    added = metrics.Metric(
        "W_T",
        lambda a: min(a[-1]),
        "min_j a[T][j]",
        "accuracy on the worst task",
        better="lower",
        percent=True,
    )
    monkeypatch.setattr(metrics, "METRICS", (*metrics.METRICS, added))
    return added


def test_a_metric_added_later_is_shown_of_old_runs(worst, tmp_path, capsys):
    (folder,) = [run.path for run in find_runs(RELEASE) if run.has("record.json")]
    record = json.loads((folder / "record.json").read_text())
    assert "W_T" not in record["metrics"]
    value = f"{100 * min(record['accuracy'][-1]):.2f}"
    (found,), _ = read(RELEASE)
    assert "W_T (%) ↓" in sections.main_table(found).columns
    page_ = html(RELEASE)
    assert f"<th scope=row><span>W_T (%) ↓</span><td>{value}<td>min_j a[T][j]<" in page_
    assert "accuracy on the worst task; lower is better" in page_
    assert main(["runs", "show", str(folder)]) == 0
    assert re.search(rf"W_T \(%\) +{value} +min_j", capsys.readouterr().out)
    files.write_all(figures.figures_of([found], None, compute=False), tmp_path)
    (latex,) = tmp_path.glob("*/table1.tex")
    assert " & $W_{T}$ (\\%) & " in latex.read_text()


def test_a_metric_added_later_is_compared(worst, tmp_path, capsys):
    records = {}
    for variant in ("van", "mdmt-r"):
        folder = leave(tmp_path, variant)
        records[variant] = json.loads((folder / "record.json").read_text())
        del records[variant]["metrics"]
        (folder / "record.json").write_text(json.dumps(records[variant]))
    values = {variant: min(record["accuracy"][-1]) for variant, record in records.items()}
    arguments = [
        "--methods",
        "van,mdmt-r",
        "--tasks",
        "3",
        "--seeds",
        "1",
        "--out",
        str(tmp_path),
        "--against",
        "van",
    ]
    assert main(["compare", "permuted-digits", *arguments, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["label"]: row["metrics"]["W_T"]["mean"] for row in rows} == values
    assert rows[1]["differences"]["W_T"]["mean"] == values["mdmt-r"] - values["van"]
    for form, heading in (
        ("table", "W_T (%)"),
        ("markdown", "| W_T (%) |"),
        ("latex", "$W_{T}$ (\\%)"),
    ):
        assert main(["compare", "permuted-digits", *arguments, "--format", form]) == 0
        printed = capsys.readouterr().out
        assert heading in printed
        assert f"{100 * values['van']:.2f}" in printed
    assert main(["compare", "permuted-digits", *arguments, "--format", "csv"]) == 0
    assert "W_T_mean" in capsys.readouterr().out.splitlines()[0].split(",")
    assert (
        main(["run", "permuted-digits", "--method", "van", "--tasks", "3", "--out", str(tmp_path)])
        == 0
    )
    assert re.search(rf"W_T \(%\) +{100 * values['van']:.2f} +min_j", capsys.readouterr().out)


def test_a_network_whose_features_die_is_shown_and_named(tmp_path):
    for seed in (1, 2):
        change(
            leave(tmp_path, "er", seed), dead_features=[0, 0.1, 0.2], feature_rank=[3, 4, 5 * seed]
        )
    broken = leave(tmp_path, "gem")
    change(
        broken,
        accuracy=[[0.5] * 3] * 3,  # at chance, so that other charts leave it out
        dead_features=[0.0, 0.5, 0.96],
        feature_rank=[3.0, 1.5, 0.0],
    )
    leave(tmp_path, "van")  # of a version that did not measure it
    found = only(tmp_path)
    charts = figures.charts_of(found)
    assert [one.label for one in charts["dead"].series] == ["gem", "er"]
    gem, er = charts["dead"].series
    assert gem.y == pytest.approx([0, 50, 96])
    assert er.y == pytest.approx([0, 10, 20])
    assert charts["rank"].series[1].y == pytest.approx([3, 4, 7.5])
    line = "ost features are dead at the end (gem 96 %): they are the same for every example"
    assert f'<p class="warn" role="note">M{line}' in html(tmp_path)
    assert next(one[1:] for one in tables.warnings(found.rows) if "dead" in one).startswith(line)
    assert main(["runs", "show", str(broken)]) == 0


def test_runs_of_earlier_versions_have_no_charts_of_dead_features(out):
    assert not {"dead", "rank"} & set(figures.charts_of(only(out)))


ALONG = {
    "steps": [0, 5, 10, 10, 15, 20],
    "accuracy": [[0.5], [0.8], [1.0], [1.0, 0.5], [0.2, 0.7], [0.6, 1.0]],
}


def test_accuracies_along_the_steps_are_shown_where_they_were_measured(tmp_path, capsys):
    measured = leave(tmp_path, "er", tasks=2)
    assert "Along the steps" not in html(tmp_path)
    change(measured, anytime=ALONG)
    leave(tmp_path, "van", tasks=2)
    found = only(tmp_path)
    (drawn,) = figures.figures_of([found], None, compute=False)
    assert list(drawn.along_steps) == ["er"]
    lines = drawn.along_steps["er"]
    assert lines.boundaries == [10]
    assert [(task, *map(list, line)) for task, line in lines.lines.items()] == [
        (1, [10, 10, 15, 20], [100, 100, 20, 60])
    ]
    text = svg.task_lines(lines, "red", "name", "title")
    (path,) = re.findall(r'class="line"[^>]* d="M([^"]*)"', text)
    marks = np.array([pair.split() for pair in re.findall(r"[\d.]+ [\d.]+", path)], dtype=float)
    assert (svg.LINES_BOTTOM - marks[:, 1]) / (svg.LINES_BOTTOM - svg.TOP) == pytest.approx(
        [1, 1, 0.2, 0.6], abs=0.001
    )
    assert (marks[:, 0] - svg.LINES_LEFT) / (svg.RIGHT - svg.LINES_LEFT) == pytest.approx(
        [0.5, 0.5, 0.75, 1], abs=0.001
    )
    assert "task 1: lowest 20.0 %, 60.0 % at the end" in text
    whole = html(tmp_path)
    assert "<h3>Along the steps</h3>" in whole
    assert "stability gap 0.800</span>" in whole
    assert "min-ACC (%) ↑" in whole
    grid = tables.main_grid(found.rows)
    assert grid.columns[-5:-2] == ["AAA (%)", "gap", "min-ACC (%)"]
    assert [row[-5:-2] for row in grid.rows] == [["-", "-", "-"], ["71.67", "0.800", "20.00"]]
    capsys.readouterr()
    assert main(["runs", "show", str(measured)]) == 0
    assert re.search(r"min-ACC \(%\) +20.00 ", capsys.readouterr().out)
    assert "gap_mean" in tables.csv_lines(found.rows)[0]


def test_a_long_line_keeps_its_lowest_points():
    x = np.arange(10_000.0)
    y = np.full(10_000, 0.9)
    y[[17, 5000, 9998]] = 0.1, 0.2, 0.3
    kept, values = figures.thinned(x, y)
    assert len(kept) <= figures.MOST_POINTS + 1
    assert dict(zip(kept, values, strict=True)).items() >= {(17, 0.1), (5000, 0.2), (9998, 0.3)}
    assert (kept[0], kept[-1]) == (0, 9999)


def test_seeds_that_were_measured_at_other_steps_are_not_averaged(tmp_path):
    other = {"steps": [*ALONG["steps"][:-2], 16, 20], "accuracy": ALONG["accuracy"]}
    half = [[0.5 * one for one in row] for row in ALONG["accuracy"]]
    folders = [leave(tmp_path, "er", seed, tasks=2) for seed in (1, 2)]
    change(folders[0], anytime=ALONG)
    change(folders[1], anytime={**ALONG, "accuracy": half})
    (drawn,) = figures.figures_of([only(tmp_path)], None, compute=False)
    assert drawn.along_steps["er"].lines[1][1] == pytest.approx([75, 75, 15, 45])
    change(folders[1], anytime={**other, "accuracy": half})
    (drawn,) = figures.figures_of([only(tmp_path)], None, compute=False)
    assert drawn.along_steps["er"].lines[1][1] == pytest.approx([100, 100, 20, 60])


def test_accuracy_without_the_task_along_learning(tmp_path):
    leave(tmp_path, "van")
    for seed in (1, 2):
        assert "free" not in figures.charts_of(only(tmp_path))
        folder = leave(tmp_path, "er", seed)
    free = [[0.8, None, None], [0.2, 0.6, None], [0.1, 0.2, 0.6]]
    change(folder, accuracy_task_free=free)
    change(folder.parent / "1", accuracy_task_free=[[0.6, None, None], *free[1:]])
    chart = figures.charts_of(only(tmp_path))["free"]
    assert [one.label for one in chart.series] == ["van", "er"]
    er = chart.series[1]
    assert er.y == pytest.approx([70, 40, 30])
    assert er.high - er.y == pytest.approx([10, 0, 0])
    assert "Accuracy without the task, along learning" in html(tmp_path)
