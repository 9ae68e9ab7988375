"""RESULTS.md is made from records only, with a band beside each published value."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import ablation
import picture
import results
from mdmt.published import published
from mdmt.report import features
from mdmt.report.figures import charts_of
from mdmt.runs.config import RunConfig, folder_of
from mdmt.runs.rows import values_by_seed
from mdmt.runs.snapshots import Snapshots
from mdmt.runs.step_log import Step, StepLog
from support.configs import config_for
from support.helpers import some_row
from support.run_folders import leave

ROOT = Path(__file__).parents[2]


def full_run(out, variant, seed, accuracy):
    """A full run on Permuted MNIST in which every task ended at one accuracy."""
    folder = leave(out, variant, seed, benchmark="permuted-mnist", tasks=17)
    config = config_for(
        "permuted-mnist",
        variant,
        seed=seed,
        data="/a/folder/of/this/machine",
    )
    (folder / "config.json").write_text(json.dumps(config.to_json()))
    record = json.loads((folder / "record.json").read_text())
    record["accuracy"][-1] = record["accuracy_task_free"][-1] = [accuracy] * 17
    record |= {"reduced": None, "versions": {"commit": "abc", "cpu": "a fast one"}}
    (folder / "record.json").write_text(json.dumps(record))
    (folder / "steps.csv").write_text(
        StepLog(Step(1 + i // 1000, 1 + i % 1000, 0.5, 0.1, i, 0.2) for i in range(2000)).to_csv()
    )
    target = folder_of(config, out)
    target.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(target)
    return target


@pytest.fixture
def measured(tmp_path):
    """The results of six finished runs; a seventh run is not finished."""
    runs = tmp_path / "runs"
    van = published("permuted-mnist", "van")["A_T"]
    for seed, shift in ((1234, -0.002), (1235, 0.004)):
        full_run(runs, "van", seed, van["mean"] + shift)
    full_run(runs, "mdmt-r", 1234, published("permuted-mnist", "mdmt-r")["A_T"]["mean"] - 0.02)
    for seed in (1, 2):
        leave(runs, "er", seed)
    leave(runs, "der++", 1)
    unfinished = full_run(runs, "er", 1234, 0.5)
    (unfinished / "record.json").unlink()
    assert results.collect(runs, tmp_path / "results") == 6
    return tmp_path / "results"


def made(folder):
    """RESULTS.md and the pages with a table, each made from a page with an old one."""
    pages = {}
    for page, name in results.PAGES.items():
        begin, end = results.marks(name)
        pages[page] = f"# Title\n\n{begin}\nold\n{end}\n\nrest\n"
    return results.make_texts(folder, pages)


def test_each_row_stands_beside_what_was_published(measured):
    (measured / "notes.json").write_text(
        '{"permuted-mnist, shared": {"mdmt-r": "looked for, and found.", "LTR": "all lower."}}'
    )
    page = made(measured)["RESULTS.md"]
    van = next(line for line in page.splitlines() if line.startswith("| `van` |"))
    assert "± 2.37 | inside (2 seeds) | +0.10 | 1234, 1235 | shared | full |" in van
    ours = next(line for line in page.splitlines() if line.startswith("| `mdmt-r` |"))
    assert "| 92.33 | 94.33 ± 0.04 | below (1 seed) | -2.00 | 1234 | shared | full |" in ours
    assert ours.endswith("| a fast one | abc |")
    assert "- LTR of all methods: all lower.\n- `mdmt-r`: looked for, and found." in page
    assert (
        "| method | F_T | published | band | LCA_10 | published | band | LTR | published | band |"
        in page
    )
    assert page.index("permuted-mnist") < page.index("permuted-digits")
    digits = page[page.index("## permuted-digits") :]
    assert "The paper does not have this benchmark." in digits
    assert "reduced" not in digits
    assert "| published |" not in digits
    assert (
        "| permuted-mnist | shared | `mdmt-r` | 92.33 | 94.33 ± 0.04 | below (1 seed) | -2.00 |  | 1234 |"
        in made(measured)["docs/reproduce.md"]
    )
    choice = made(measured)["docs/which-method.md"]
    lines = [line for line in choice.splitlines() if line.startswith(("| `er`", "| `der++`"))]
    assert [line.count("|") for line in lines] == [10, 10]
    assert lines[0].startswith("| `er` | rehearsal | ")
    assert lines[1].startswith("| `der++` | rehearsal, 2020 | ")


def test_a_table_replaces_the_one_between_its_marks_and_nothing_else(measured):
    for name, text in made(measured).items():
        if name in results.PAGES:
            assert text.startswith("# Title\n\n<!-- ")
            assert text.endswith(" -->\n\nrest\n")
            assert "old" not in text
            assert "\n| --- |" in text
    with pytest.raises(SystemExit, match="the page has no <!-- results"):
        results.make_texts(measured, {"README.md": "no marks"})


def test_the_readme_has_a_few_rows_in_words(measured):
    readme = made(measured)["README.md"]
    assert "| permuted-mnist | MDMT-R (`mdmt-r`) | 92.33 | 94.33 ± 0.04 | 92.33 | 1 |" in readme
    (van,) = [line for line in readme.splitlines() if "plain fine-tuning (`van`)" in line]
    assert "| 47.65 ± 0.30 | 47.55 ± 2.37 | 47.65 ± 0.30 | 2 |" in van
    assert "split-cifar" not in readme, "there is no such run"
    assert "band" not in readme


def test_differences_on_the_digits_have_an_interval_and_a_sentence(tmp_path):
    for seed, noise in ((1, 0.0), (2, 0.01), (3, -0.01)):
        for method, accuracy in (("mdmt-r", 0.9), ("er", 0.9 + noise), ("van", 0.6 + noise)):
            folder = leave(tmp_path / "runs", method, seed)
            record = json.loads((folder / "record.json").read_text())
            record["accuracy"][-1] = [accuracy] * len(record["accuracy"][-1])
            (folder / "record.json").write_text(json.dumps(record))
    results.collect(tmp_path / "runs", tmp_path / "results")
    choice = made(tmp_path / "results")["docs/which-method.md"]
    assert "Not shown to differ from `mdmt-r` in A_T: `er`." in choice
    assert re.search(r"\| `er` \|.*\| \+0\.00 \[-\d\.\d\d, \+\d\.\d\d\] \|", choice)
    assert re.search(r"\| `van` \|.*\| -30\.00 \[-\d+\.\d\d, -\d+\.\d\d\] \|", choice)


def test_the_published_stream_has_a_table_and_notes_of_its_own(measured, tmp_path):
    full_run(tmp_path / "more", "van[stream=published]", 1234, 0.47)
    results.collect(tmp_path / "more", measured)
    notes = {
        "permuted-mnist, shared": {"about": "streams of their own."},
        "permuted-mnist, shared, published stream": {"van[stream=published]": "one stream."},
    }
    (measured / "notes.json").write_text(json.dumps(notes))
    page = made(measured)["RESULTS.md"]
    theirs, own = page.split("## permuted-mnist, 17 tasks, one shared head")[1:]
    assert theirs.startswith(", the published stream\n")
    assert "| `van[stream=published]` | 47.00 | 47.55 ± 2.37 | inside (1 seed) | -0.55 |" in theirs
    assert "- `van[stream=published]`: one stream." in theirs
    assert own.startswith("\n\nstreams of their own.\n\n| method |")
    assert "| `van` |" in own


def test_what_was_published_but_never_run_is_named(measured):
    pages = made(measured)
    for text in (pages["RESULTS.md"], pages["docs/reproduce.md"]):
        (line,) = [line for line in text.splitlines() if line.startswith("Published, but not run")]
        assert "split-cub (no method); split-awa (no method)." in line
        assert "permuted-mnist (joint, ewc, " in line
        assert "van" not in line
        assert "mdmt-r" not in line


def test_a_seed_that_failed_is_named_beside_those_that_count():
    row = some_row(method="pi", label="pi", seeds=[1235, 1236])
    assert results.seeds_of(row) == "1235, 1236; 1234 failed"
    row.metrics["A_T"]["mean"] = published("split-cifar", "pi")["A_T"]["mean"]
    beside = replace(row, published=published("split-cifar", "pi"))
    assert results.beside(beside, results.A_T)[-1] == "inside (2 seeds, 1 failed)"
    assert results.seeds_of(some_row(seeds=[1, 2, 3])) == "1 to 3"


def test_a_note_on_no_row_stops_it(measured):
    (measured / "notes.json").write_text('{"permuted-mnist, shared": {"ewc": "not measured"}}')
    with pytest.raises(
        SystemExit,
        match=r"notes\.json has a note for a row that is missing: permuted-mnist, shared: ewc",
    ):
        made(measured)


def test_a_reduced_run_says_what_is_less_and_has_nothing_published_beside_it(measured):
    path = next(measured.glob("*/mdmt-r/*/1234/record.json"))
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"reduced": {"reference_batch": 64}}))
    ours = next(
        line
        for line in made(measured)["RESULTS.md"].splitlines()
        if line.startswith("| `mdmt-r` |")
    )
    assert "| 92.33 |  |  |  | 1234 | shared | reduced: reference batch 64 |" in ours
    pages = made(measured)
    assert "`mdmt-r`" not in pages["docs/reproduce.md"]
    assert "`mdmt-r`" not in pages["README.md"]


def test_accuracy_without_the_task_is_shown_where_it_is_another(measured):
    assert "A_free (%)" not in made(measured)["RESULTS.md"]
    path = next(measured.glob("*/mdmt-r/*/1234/record.json"))
    record = json.loads(path.read_text())
    record["accuracy_task_free"][-1] = [0.25] * 17
    path.write_text(json.dumps(record))
    pages = made(measured)
    page, published_rows = pages["RESULTS.md"], pages["docs/reproduce.md"]
    assert "| LTR | published | band | A_free (%) |" in page
    rows = [line for line in page.splitlines() if line.startswith("| `mdmt-r` |")]
    assert rows[1].endswith("| 25.00 |")
    assert "| below (1 seed) | -2.00 | 25.00 | 1234 |" in published_rows


def test_the_preset_best_is_shown_though_nothing_is_published_of_it(measured, tmp_path):
    full_run(tmp_path / "best", "mdmt-r[preset=best]", 1234, 0.955)
    results.collect(tmp_path / "best", measured)
    pages = made(measured)
    page, rows = pages["RESULTS.md"], pages["docs/reproduce.md"]
    assert (
        "- `mdmt-r[preset=best]`: our own settings, chosen on held-out tasks; among them an average"
        " of the weights, which no other row got. The published values are 94.33 for `mdmt-r`"
        in page
    )
    assert "and 95.30 for `joint`." in page
    assert "| permuted-mnist | shared | `mdmt-r[preset=best]` | 95.50 |  |  |  |  | 1234 |" in rows
    assert (
        "\n`mdmt-r[preset=best]` has our own settings, for which nothing is published; among them"
        "\nan average of the weights, which no other row got.\n" in rows
    )


def test_a_difference_in_the_last_printed_digit_is_none(measured):
    (row,) = [
        row
        for study in results.read_results(measured)
        for row in study.rows
        if row.method == "mdmt-r"
    ]
    for ours, place in ((0.0295, "inside"), (0.0305, "above"), (0.0095, "below")):
        row.metrics["F_T"] = {"mean": ours, "std": 0.0, "runs": [ours]}
        assert results.beside(row, results.OTHERS[0])[-1] == f"{place} (1 seed)"


def test_nothing_published_was_measured_yet(tmp_path):
    leave(tmp_path / "runs", "er", 1)
    results.collect(tmp_path / "runs", tmp_path / "results")
    pages = made(tmp_path / "results")
    for page in ("README.md", "docs/reproduce.md"):
        first, last = results.marks(results.PAGES[page])
        assert f"\n{first}\n{last}\n" in pages[page]


def test_a_changed_record_changes_the_page(measured):
    before = made(measured)
    path = next(measured.glob("*/van/*/1235/record.json"))
    record = json.loads(path.read_text())
    record["accuracy"][-1][3] += 0.05
    path.write_text(json.dumps(record))
    after = made(measured)
    for page in ("RESULTS.md", "README.md", "docs/reproduce.md"):
        assert before[page] != after[page]


def test_what_is_kept_of_a_run_is_small_and_reads_as_a_run(measured):
    folder = next(measured.glob("*/van/*/1234"))
    assert {path.name for path in folder.iterdir()} == {"config.json", "record.json", "steps.csv"}
    steps = StepLog.from_csv((folder / "steps.csv").read_text())
    assert len(steps) == 50
    assert [steps[24][:2], steps[-1][:2]] == [(1, 1000), (2, 1000)]


def test_the_first_seed_of_the_methods_that_are_drawn_keeps_its_features(tmp_path):
    runs = tmp_path / "runs"
    of_task_1 = {f"features.0.{after}": np.eye(2, 5, dtype=np.float16) for after in range(5)}
    snapshots = {
        **of_task_1,
        "features.4.4": np.eye(2, 5, dtype=np.float16),
        "labels.4": np.arange(2),
    }
    assert set(results.shown_snapshots(Snapshots(snapshots))) == {
        "features.0.0",
        "features.0.4",
        "features.4.4",
        "labels.4",
    }
    for method, seed in (("mdmt-r", 1234), ("mdmt-r", 1235), ("er", 1234)):
        leave(runs, method, seed)
    results.collect(runs, tmp_path / "results")
    kept = list((tmp_path / "results").rglob("snapshots.safetensors"))
    assert [(path.parts[-4], path.parts[-2]) for path in kept] == [("mdmt-r", "1234")]


def test_a_result_can_be_done_again_elsewhere(measured):
    """Its configuration is complete, except for the path of the data."""
    for path in (*measured.rglob("config.json"), *(ROOT / "results").rglob("config.json")):
        config = RunConfig.from_json(json.loads(path.read_text()))
        assert config.data is None, path
        assert config.hash == path.parts[-3]


def test_a_damaged_record_stops_it(measured):
    next(measured.glob("*/van/*/1234/record.json")).write_text("{")
    with pytest.raises(SystemExit, match=r"record\.json"):
        made(measured)


def test_the_files_of_the_repository_are_what_its_records_give():
    for name, text in results.make_texts(ROOT / "results", results.read_pages()).items():
        assert (ROOT / name).read_text() == text, f"{name} differs from results/: make results"


def test_the_picture_of_the_readme_shows_these_records():
    study = picture.read_study(ROOT / "results")
    drawn = picture.draw(study)
    (legend,) = drawn.legends
    assert [len(axes.get_lines()) for axes in drawn.axes] == [len(picture.WORDS)] * 2
    for text, entry in zip(legend.get_texts(), study.entries, strict=True):
        assert text.get_text().endswith(f"({entry.label})")
    with Image.open(picture.PICTURE) as image:
        inside = image.text["Description"]
    assert inside == picture.description(study), "python bench/picture.py"
    assert "mdmt-r 91.3; er 90.9;" in inside


def test_what_which_method_says_in_words_is_what_the_records_say():
    """docs/which-method.md: rewrite its sentences if new records make one of them wrong."""
    studies = results.read_results(ROOT / "results")
    (digits,) = [study for study in studies if study.benchmark == results.DIGITS]
    rows = {row.label: row for row in digits.rows}
    ours = rows["mdmt-r"]
    learned_in_turn = [row for row in digits.rows if row.metrics["F_T"] is not None]
    for name in ("F_T", "LCA_10"):
        assert ours.metrics[name]["mean"] == min(
            row.metrics[name]["mean"] for row in learned_in_turn
        )
    assert "`er`" in results.not_shown_to_differ(
        results.with_differences(digits.rows, "mdmt-r"), "A_T"
    )
    assert rows["er"].seconds["mean"] < 0.6 * ours.seconds["mean"]
    assert rows["er"].memory_bytes < 0.6 * ours.memory_bytes
    for benchmark, leader in (("permuted-mnist", "mdmt-r"), ("split-cifar", "der++")):
        full = [row for study in studies for row in study.rows if row.benchmark == benchmark]
        best = max((row for row in full if row.method != "joint"), key=lambda row: row.accuracy)
        assert best.method == leader, f"{best.label} on {benchmark}"
    by_label = {row.label: values_by_seed(row, "A_T") for row in full}
    dark, ours = by_label["der++[reference_batch=10]"], by_label["mdmt-r"]
    shared = dark.keys() & ours.keys()  # the README says so too
    assert len(shared) == 2
    assert all(dark[seed] > ours[seed] for seed in shared)


def test_rows_with_the_batch_of_their_own_paper_stand_in_its_table():
    rows = {row.label: row for one in results.read_results(ROOT / "results") for row in one.rows}
    for label in ("der++[reference_batch=10]", "er-ace[reference_batch=10]", "er[reading=paper]"):
        assert results.group_of(rows[label]) == "As their own papers have them"
        assert results.protocol(rows[label]) == "full"


def test_the_results_of_the_repository_stay_small():
    files = [path for path in (ROOT / "results").rglob("*.*") if path.is_file()]
    kept = [path for path in files if ".tsne" not in path.parts]  # a cache, not in the repository
    assert sum(path.stat().st_size for path in kept) < 8_000_000


def test_the_page_of_the_results_shows_every_row_and_stays_small():
    page = results.report(ROOT / "results", compute=False)
    assert len(page.encode()) < 1_000_000
    assert "<code>results/" in page
    assert "<code>/" not in page, "a path of the machine that made it"
    for study in results.read_results(ROOT / "results"):
        for row in study.rows:
            assert f'<td data-value="{row.accuracy}"' in page, row.label


def held_out_run(out, variant, seed, accuracy, subset=None):
    folder = leave(
        out, variant, seed, benchmark="permuted-mnist", cross_validation=True, subset=subset
    )
    record = json.loads((folder / "record.json").read_text())
    record["accuracy"][-1] = [accuracy] * 3
    (folder / "record.json").write_text(json.dumps(record))


def test_the_ablation_of_best_is_made_of_runs_on_held_out_tasks(tmp_path, measured):
    best = {"average": 0.5, "scale": 20.0}
    for seed, shift in ((1, 0.0), (2, 0.02)):
        for variant, accuracy in (
            ("mdmt-r", 0.9),
            ("mdmt-r[average=0.5]", 0.92),
            ("mdmt-r[scale=20]", 0.91),
            ("mdmt-r[average=0.5,scale=20]", 0.94),
            ("mdmt-r[distance=none]", 0.8),
        ):
            held_out_run(tmp_path / "ablation", variant, seed, accuracy + shift)
    held_out_run(tmp_path / "ablation", "mdmt-r[lr=0.3]", 1, 0.7, subset=500)
    full_run(tmp_path / "ablation", "mdmt-r", 1, 0.3)  # not on held-out tasks
    content = {
        "best": best,
        "tasks": 3,
        "trials": ablation.trials(tmp_path / "ablation", "permuted-mnist"),
    }
    assert ablation.worth_table(content)[1:] == [
        ["none", "91.00 ± 1.00", "", "95.00 ± 1.00", ""],
        ["`average=0.5`", "93.00 ± 1.00", "+2.00", "92.00 ± 1.00", "-3.00"],
        ["`scale=20.0`", "92.00 ± 1.00", "+1.00", "93.00 ± 1.00", "-2.00"],
    ]
    assert ablation.other_trials(content)[1:] == [
        ["`distance=none`", "all", "1, 2", "81.00 ± 1.00", "-10.00", "none"],
        ["`lr=0.3`", "500", "1", "70.00", "", "none"],
    ]
    record = {
        "command": "a command",
        "versions": {"cpu": "a fast one"},
        "benchmarks": {"permuted-mnist": content},
    }
    (measured / "ablation.json").write_text(json.dumps(record))
    assert (
        "| `average=0.5` | 93.00 ± 1.00 | +2.00 | 92.00 ± 1.00 | -3.00 |"
        in made(measured)["RESULTS.md"]
    )


def test_figures_3_5_and_6_are_drawn_from_the_one_seed_that_keeps_its_features(tmp_path):
    for seed in (1234, 1235):
        leave(tmp_path / "runs", "mdmt-r", seed)
    results.collect(tmp_path / "runs", tmp_path / "results")
    (study,) = results.read_results(tmp_path / "results")
    (line,) = charts_of(study)["fig3a"].series
    assert line.x.tolist() == [1, 2, 3]
    run = features.first_run(study.entries[0])
    assert list(features.groups_by_task(run)) == ["task 1", "task 2", "task 3"]
    assert list(features.groups_by_time(run)) == ["after task 1", "after task 2", "after task 3"]
