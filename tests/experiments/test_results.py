"""The page of results is made of records alone, and says where each stands to what was published."""

import importlib.util
import json
from pathlib import Path

import pytest

from mdmt.experiments.config import folder_of
from mdmt.experiments.measurements import steps_as_csv, steps_from_csv
from mdmt.experiments.resolve import resolve
from mdmt.published import published
from support.run_folders import leave

ROOT = Path(__file__).parents[2]


def load_script():
    spec = importlib.util.spec_from_file_location("results", ROOT / "bench" / "results.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


results = load_script()


def full_run(out, variant, seed, accuracy):
    """A full run on Permuted MNIST in which every task ended at one accuracy."""
    folder = leave(out, variant, seed, benchmark="permuted-mnist", tasks=17)
    config = resolve("permuted-mnist", variant, seed=seed)
    (folder / "config.json").write_text(json.dumps(config.to_json()))
    record = json.loads((folder / "record.json").read_text())
    record["accuracy"][-1] = [accuracy] * 17
    record |= {"reduced": None, "versions": {"commit": "abc", "cpu": "a fast one"}}
    (folder / "record.json").write_text(json.dumps(record))
    (folder / "steps.csv").write_text(
        steps_as_csv([[1 + i // 1000, 1 + i % 1000, 0.5, 0.1, i, 0.2] for i in range(2000)])
    )
    target = folder_of(config, out)
    target.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(target)
    return target


@pytest.fixture
def measured(tmp_path):
    """Two rows, collected from finished runs; one run is not finished, one is of held-out tasks."""
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
    marks = "\n\n".join(f"{begin}\nold\n{end}" for begin, end in results.MARKS.values())
    return results.made(folder, f"# Title\n\n{marks}\n\nrest\n")


def test_each_row_stands_beside_what_was_published(measured):
    (measured / "notes.json").write_text('{"permuted-mnist, shared": {"mdmt-r": "looked for, and found."}}')
    page = made(measured)["RESULTS.md"]
    van = next(line for line in page.splitlines() if line.startswith("| van |"))
    assert "| +0.10 | inside | 1234, 1235 |" in van
    ours = next(line for line in page.splitlines() if line.startswith("| mdmt-r |"))
    assert "| 92.33 | 94.33 ± 0.04 |" in ours
    assert "| -2.00 | below | 1234 |" in ours
    assert ours.endswith("| abc |")
    assert "- `mdmt-r`: looked for, and found." in page
    assert "Processor: a fast one." in page
    readme = made(measured)["README.md"]
    assert "| permuted-mnist | shared | `mdmt-r` | 92.33 | 94.33 ± 0.04 | 1 |" in readme
    lines = [line for line in readme.splitlines() if line.startswith(("| `er`", "| `der++`"))]
    assert [line.count("|") for line in lines] == [9, 9]
    assert lines[0].startswith("| `er` | rehearsal | ")
    assert lines[1].startswith("| `der++` | rehearsal, 2020 | ")
    assert readme.startswith("# Title\n\n")
    assert readme.endswith("\n\nrest\n")
    assert "old" not in readme


def test_a_changed_record_changes_the_page(measured):
    before = made(measured)
    path = next(measured.glob("*/van/*/1235/record.json"))
    record = json.loads(path.read_text())
    record["accuracy"][-1][3] += 0.05
    path.write_text(json.dumps(record))
    after = made(measured)
    assert before["RESULTS.md"] != after["RESULTS.md"]
    assert before["README.md"] != after["README.md"]


def test_what_is_kept_of_a_run_is_small_and_reads_as_a_run(measured):
    folder = next(measured.glob("*/van/*/1234"))
    assert {path.name for path in folder.iterdir()} == {"config.json", "record.json", "steps.csv"}
    steps = steps_from_csv((folder / "steps.csv").read_text())
    assert len(steps) == 400
    assert [steps[199][:2], steps[-1][:2]] == [[1, 1000], [2, 1000]]


def test_a_damaged_record_stops_it(measured):
    next(measured.glob("*/van/*/1234/record.json")).write_text("{")
    with pytest.raises(SystemExit, match=r"record\.json"):
        made(measured)


def test_the_files_of_the_repository_are_what_its_records_give():
    for name, text in results.made(ROOT / "results", (ROOT / "README.md").read_text()).items():
        assert (ROOT / name).read_text() == text, f"{name} differs from results/: make results"
