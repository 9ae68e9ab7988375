"""The results that README and docs show: measured runs beside the published values.

    python bench/results.py collect RUNS     # copy finished runs to results/
    python bench/results.py write            # make RESULTS.md, the tables and the page

`collect` leaves out weights and data: a run in results/ is its `config.json`, its `record.json`, a
thinned `steps.csv` and, for one seed of the methods in Fig. 3, 5 and 6, some of its
`snapshots.safetensors`. `write` reads results/ only. The notes in results/notes.json are written by
hand: they explain values below the published ones, by benchmark and by row or metric; `about` is a
paragraph on all of them.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any

from ablation import ABLATION, ablation_page, table
from mdmt.experiments.presets import PUBLISHED
from mdmt.methods import METHODS
from mdmt.metrics import A_FREE, A_T, METRICS, Metric
from mdmt.published import published
from mdmt.report.figures import figures_of
from mdmt.report.page import render
from mdmt.report.study import Entry, Study, read_studies
from mdmt.report.verdict import verdict
from mdmt.runs.differences import with_differences
from mdmt.runs.folder import CONFIG, RECORD, SNAPSHOTS, STEPS, find_runs
from mdmt.runs.paper import NEWER
from mdmt.runs.rows import Row, Spread
from mdmt.runs.snapshots import Snapshots
from mdmt.runs.step_log import Step, StepLog
from mdmt.system.files import read_json, write_file, write_json
from mdmt.words import count

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
NOTES = "notes.json"
ABOUT = "about"
PAGE = ROOT / "docs" / "results.html"
STEPS_OF_A_TASK = 25
DRAWN = ("a-gem", "mega", "mdmt-r")  # the methods of Fig. 5 and 6
SEED = 1234  # the run that these figures show
PAGES = {  # a table is written between two marks of each
    "README.md": "results",
    "docs/reproduce.md": "published",
    "docs/which-method.md": "digits",
}
DIGITS = "permuted-digits"
AGAINST = "mdmt-r"  # the row that the others are compared with on the digits
README_ROWS = [  # benchmark, method, and the method in words
    ("permuted-mnist", "van", "plain fine-tuning (`van`)"),
    ("permuted-mnist", "er", "experience replay (`er`)"),
    ("permuted-mnist", "mdmt-r", "MDMT-R (`mdmt-r`)"),
    ("split-cifar", "van", "plain fine-tuning (`van`)"),
    ("split-cifar", "er[reading=paper]", "experience replay, ten old for ten new (`er`)"),
    ("split-cifar", "mdmt-r", "MDMT-R (`mdmt-r`)"),
    ("split-cifar", "der++[reference_batch=10]", "dark experience replay (`der++`)"),
]
SHOWN = [metric for metric in METRICS if metric is not A_FREE]
OTHERS = [metric for metric in SHOWN if metric is not A_T]
LAST_DIGIT = {"A_T": 0.0001, "F_T": 0.01, "LCA_10": 0.001, "LTR": 0.001}  # that the paper prints
BEST = "preset=best"
# Seeds whose run broke down, by benchmark and row: today's program stops such a run.
FAILED = {("split-cifar", "pi"): [1234]}
RESULTS_INTRO = """# Results

Results of this program beside those that the paper published. `make results` writes this file from
the records in `results/`; do not edit it. `band` says where our mean lies: inside the published
mean ± standard deviation (or within the last printed digit), above, or below; with one or two seeds
that is a description, not a test. Seconds are the mean learning time of a run.
`mdmt rerun results/BENCHMARK/METHOD/HASH/SEED` repeats a run and says whether it is bit-identical;
get the data with `mdmt data fetch`, or give `--data DIR`. A_free is the accuracy if the task is not
given; the paper has none, and where it equals A_T it is left out. `make results` also writes
`docs/results.html`, a page with the figures of these runs.
"""
GROUPS = {  # the tables of a published benchmark
    "As MDMT-R's paper has them": "The settings behind its Table 1.",
    "As their own papers have them": "The settings of the papers that introduced the methods.",
    "Other settings": "Settings of our own; the notes below say why each row is here.",
}
PUBLISHED_INTRO = """\
`band` says where our mean lies: inside the published mean ± standard deviation, above, or below,
with the number of seeds; one or two seeds are no test. A_free is the accuracy if the task is not
given, and left out where it equals A_T."""


def collect(runs: Path, results: Path) -> int:
    """Copy the measurements of finished runs and return the number of runs."""
    done = 0
    for folder in find_runs(runs):
        if folder.state.kind != "finished" or folder.config.cross_validation:
            continue
        place = results / folder.path.relative_to(runs)
        place.mkdir(parents=True, exist_ok=True)
        # The path of the data on this machine is nobody else's business.
        write_json(place / CONFIG, {**folder.config.to_json(), "data": None})
        shutil.copyfile(folder.path / RECORD, place / RECORD)
        write_file(place / STEPS, thin(folder.steps).to_csv().encode())
        if folder.config.method in DRAWN and folder.config.seed == SEED:
            write_file(place / SNAPSHOTS, shown_snapshots(folder.snapshots).to_bytes())
        done += 1
    return done


def thin(steps: StepLog) -> StepLog:
    """At most 25 steps of each task, evenly spaced, with its last step among them.

    `mdmt rerun` compares the loss and gradient of these steps bit for bit, so a difference is found
    within a 25th of a task. Nothing compares time and norm, which are rounded.
    """
    kept: list[Step] = []
    for task in dict.fromkeys(step.task for step in steps):
        own = [step for step in steps if step.task == task]
        stride = -(-len(own) // STEPS_OF_A_TASK)
        kept += own[::-1][::stride][::-1]
    return StepLog(
        step._replace(
            seconds=round(step.seconds, 3), gradient_norm=float(f"{step.gradient_norm:.5g}")
        )
        for step in kept
    )


def shown_snapshots(snapshots: Snapshots) -> Snapshots:
    """The snapshots of the first, middle and last task, taken after these tasks."""
    return snapshots.after(snapshots.tasks)


# Cells.


def value(metric: Metric, cell: Spread | dict[str, Any] | None) -> str:
    """A number with its standard deviation, if it has one."""
    if cell is None:
        return ""
    several = cell["std"] is not None and len(cell.get("runs", (0, 0))) > 1
    spread = f" ± {metric.text(cell['std'])}" if several else ""
    return metric.text(cell["mean"]) + spread


def beside(row: Row, metric: Metric) -> list[str]:
    """Our value, the published one, and the band: inside its standard deviation, above or below.

    The band names the number of seeds: one seed is no test.

    The paper truncated some numbers and rounded others, so its last digit may differ by one.
    """
    ours = row.metrics[metric.name]
    theirs = (row.published or {}).get(metric.name)
    texts = [value(metric, ours), value(metric, theirs)]
    if theirs and (paper := own_paper_of(row)):
        texts[1] += f" ({paper})"
    if ours is None or theirs is None:
        return [*texts, ""]
    gap = ours["mean"] - theirs["mean"]
    band = "above" if gap > 0 else "below"
    if abs(gap) <= max(theirs["std"] or 0.0, LAST_DIGIT[metric.name]):
        band = "inside"
    failed = failed_seeds(row)
    number = count("seed", len(row.seeds)) + (f", {len(failed)} failed" if failed else "")
    return [*texts, f"{band} ({number})"]


def own_paper_of(row: Row) -> str | None:
    """The paper of the published values, if they are not those of MDMT-R's paper."""
    paper: str | None = (row.published or {}).get("paper")
    return paper


def failed_seeds(row: Row) -> list[int]:
    return FAILED.get((row.benchmark, row.label), [])


def difference(row: Row) -> str:
    theirs = (row.published or {}).get(A_T.name)
    return "" if theirs is None else A_T.text(row.accuracy - theirs["mean"], signed=True)


def without_task(row: Row) -> str:
    """A_free; nothing if it is A_T, since all tasks share one head and its classes."""
    cell = row.metrics[A_FREE.name]
    return "" if cell == row.metrics[A_T.name] else value(A_FREE, cell)


def seeds_of(row: Row) -> str:
    """The seeds of a row, and those whose run failed."""
    return "; ".join([sequence(row.seeds), *(f"{seed} failed" for seed in failed_seeds(row))])


def sequence(seeds: list[int]) -> str:
    """
    >>> sequence([1234, 1235, 1236]), sequence([1, 3])
    ('1234 to 1236', '1, 3')
    """
    first, last = min(seeds), max(seeds)
    if len(seeds) > 2 and sorted(seeds) == list(range(first, last + 1)):
        return f"{first} to {last}"
    return ", ".join(map(str, seeds))


def protocol(row: Row) -> str:
    """`full`, or how the runs are reduced against the published protocol."""
    if not row.reduced:
        return "full"
    parts = (f"{key.replace('_', ' ')} {content}" for key, content in row.reduced.items())
    return f"reduced: {', '.join(parts)}"


def origin(entry: Entry, key: str) -> str:
    """One of the recorded versions of a row's runs, such as their commits or processors."""
    versions = [run.record.versions for run in entry.runs]
    return ", ".join(dict.fromkeys(str(version.get(key, "unknown")) for version in versions))


# Tables.


def group_of(row: Row) -> str:
    """The table of a published benchmark to which a row belongs."""
    as_table_1, as_own_paper, other = GROUPS
    if not row.published:
        return other
    return as_own_paper if own_paper_of(row) else as_table_1


def in_groups(study: Study) -> list[str]:
    """The tables of a published benchmark, one for each group, and who leads by how much."""
    groups = {name: [one for one in study.entries if group_of(one.row) == name] for name in GROUPS}
    groups = {name: entries for name, entries in groups.items() if entries}
    lines = []
    for name, entries in groups.items():
        rows = [entry.row for entry in entries]
        if len(groups) > 1:
            lines += [f"### {name}", "", GROUPS[name], ""]
        lines += [*accuracy_table(study.heads, entries), "", *others_table(rows), ""]
    if len(groups) > 1:
        lines += ["### All rows", ""]
    best = verdict(study.rows)
    return [*lines, f"`{best.label}`{best.sentence}", ""]


def accuracy_table(heads: str, entries: list[Entry]) -> list[str]:
    """A_T beside the published one, and the facts about the runs."""
    columns = ["method", A_T.heading, "published", "band", "difference"]
    columns += ["seeds", "head", "protocol", "seconds", "memory (MB)", "processor", "commit"]
    lines = []
    for entry in entries:
        row = entry.row
        memory = f"{row.memory_bytes / 1e6:.1f}" if row.memory_bytes else ""
        run = [seeds_of(row), heads, protocol(row), f"{row.seconds['mean']:.0f}", memory]
        made_by = [origin(entry, "cpu"), origin(entry, "commit")]
        lines.append([f"`{row.label}`", *beside(row, A_T), difference(row), *run, *made_by])
    return table(columns, *lines)


def others_table(rows: list[Row]) -> list[str]:
    """The other metrics beside the published ones, and A_free, of which nothing is published."""
    columns = ["method"]
    for metric in OTHERS:
        columns += [metric.heading, "published", "band"]
    lines = []
    for row in rows:
        cells = [f"`{row.label}`"]
        for metric in OTHERS:
            cells += beside(row, metric)
        lines.append(cells)
    free = [without_task(row) for row in rows]
    if any(free):
        columns.append(A_FREE.heading)
        lines = [[*cells, text] for cells, text in zip(lines, free, strict=True)]
    return table(columns, *lines)


def plain_table(study: Study) -> list[str]:
    """All metrics, for a benchmark without published values."""
    columns = [
        "method",
        *(metric.heading for metric in SHOWN),
        "seeds",
        "seconds",
        "processor",
        "commit",
    ]
    lines = []
    for entry in study.entries:
        row = entry.row
        cells = [f"`{row.label}`", *(value(metric, row.metrics[metric.name]) for metric in SHOWN)]
        cells += [
            seeds_of(row),
            f"{row.seconds['mean']:.0f}",
            origin(entry, "cpu"),
            origin(entry, "commit"),
        ]
        lines.append(cells)
    return table(columns, *lines)


def about_best(study: Study, row: Row) -> str:
    """The published values to compare a row of the preset `best` with."""
    if BEST not in row.label or row.reduced:
        return ""
    beside_it = [(name, published(study.benchmark, name)) for name in (row.method, "joint")]
    texts = [
        f"{A_T.text(cells[A_T.name]['mean'])} for `{name}`" for name, cells in beside_it if cells
    ]
    values = " and ".join(texts)
    return (
        "our own settings, chosen on held-out tasks; among them an average of the weights, which no"
        f" other row got. The published values are {values}."
    )


def not_run(studies: list[Study]) -> str:
    """A line that names the benchmarks and methods of the paper's Table 1 without a full run."""
    rows = [row for study in studies for row in study.rows if row.published]
    done = {(row.benchmark, row.method) for row in rows if not own_paper_of(row)}
    parts = []
    for benchmark in PUBLISHED:
        methods = [name for name in METHODS if published(benchmark, name)]
        missing = [name for name in methods if (benchmark, name) not in done]
        if missing == methods:
            parts.append(f"{benchmark} (no method)")
        elif missing:
            parts.append(f"{benchmark} ({', '.join(missing)})")
    return f"Published, but not run yet with the published settings: {'; '.join(parts)}."


def part_of_page(study: Study, notes: dict[str, str]) -> list[str]:
    """The part of RESULTS.md about one study."""
    lines = [f"## {study.title}", ""]
    if ABOUT in notes:
        lines += [notes[ABOUT], ""]
    if study.benchmark in PUBLISHED:
        lines += in_groups(study)
    else:
        lines += ["The paper does not have this benchmark.", "", *plain_table(study), ""]
    lines += [
        f"- {metric.name} of all methods: {notes[metric.name]}"
        for metric in SHOWN
        if metric.name in notes
    ]
    for row in study.rows:
        note = f"{about_best(study, row)} {notes.get(row.label, '')}".strip()
        if note:
            lines.append(f"- `{row.label}`: {note}")
    return lines if not lines[-1] else [*lines, ""]


def results_page(
    studies: list[Study], notes: dict[str, dict[str, str]], best: dict[str, Any]
) -> str:
    """The text of RESULTS.md."""
    lines = [RESULTS_INTRO, not_run(studies), ""]
    for study in studies:
        lines += part_of_page(study, notes.get(notes_key(study), {}))
    lines += ablation_page(best) if best else []
    return "\n".join(lines).rstrip() + "\n"


def readme_table(studies: list[Study]) -> str:
    """A few rows of the published benchmarks, in words; empty before the first such run."""
    rows = {(row.benchmark, row.label): row for study in studies for row in study.rows}
    lines = []
    for benchmark, label, words in README_ROWS:
        row = rows.get((benchmark, label))
        if row is not None and row.published:
            ours, theirs, _ = beside(row, A_T)
            minutes = f"{row.seconds['mean'] / 60:.0f}"
            free = without_task(row) or ours
            lines.append([benchmark, words, ours, theirs, free, str(len(row.seeds)), minutes])
    columns = ["benchmark", "method", "accuracy (%)", "published (%)", "task not given (%)"]
    columns += ["seeds", "minutes"]
    return "\n".join(table(columns, *lines)) if lines else ""


def published_table(studies: list[Study]) -> str:
    """All rows of the published benchmarks; empty before the first such run."""
    lines = []
    for study in studies:
        for row in study.rows:
            if row.published or (BEST in row.label and not row.reduced):
                cells = [
                    study.benchmark,
                    study.heads,
                    f"`{row.label}`",
                    *beside(row, A_T),
                    difference(row),
                    without_task(row),
                ]
                lines.append([*cells, seeds_of(row)])
    if not lines:
        return ""
    columns = [
        "benchmark",
        "head",
        "method",
        A_T.heading,
        "published",
        "band",
        "difference",
        A_FREE.heading,
        "seeds",
    ]
    intro = PUBLISHED_INTRO
    if any(BEST in cells[2] for cells in lines):
        intro += (
            f"\n`mdmt-r[{BEST}]` has our own settings, for which nothing is published; among them"
            "\nan average of the weights, which no other row got."
        )
    return "\n".join([intro, "", *table(columns, *lines), "", not_run(studies)])


def digits_table(studies: list[Study]) -> str:
    """All methods on the embedded digits, with their cost and their difference to one of them."""
    (study,) = [study for study in studies if study.benchmark == DIGITS]
    columns = ["method", "kind", A_T.heading, f"difference to `{AGAINST}`"]
    columns += [*(metric.heading for metric in OTHERS), "seconds", "memory (MB)"]
    lines = []
    rows = with_differences(study.rows, AGAINST)
    for row in rows:
        method = METHODS[row.method]
        kind = method.source if method.kind == "bound" else method.kind
        newer = f", {method.source[-4:]}" if row.method in NEWER else ""
        cells = [value(A_T, row.metrics[A_T.name]), with_interval(row)]
        cells += [value(metric, row.metrics[metric.name]) for metric in OTHERS]
        cost = [
            f"{row.seconds['mean']:.0f}",
            f"{row.memory_bytes / 1e6:.1f}" if row.memory_bytes else "",
        ]
        lines.append([f"`{row.label}`", kind + newer, *cells, *cost])
    verdicts = [not_shown_to_differ(rows, name) for name in ("A_T", "F_T")]
    return "\n".join([*table(columns, *lines), "", *verdicts])


def with_interval(row: Row) -> str:
    """The difference in A_T to the row that others are compared with."""
    gap = row.differences.metrics[A_T.name] if row.differences else None
    if gap is None:
        return ""
    ends = [A_T.text(end, signed=True) for end in gap.get("interval") or ()]
    return A_T.text(gap["mean"], signed=True) + (f" [{', '.join(ends)}]" if ends else "")


def not_shown_to_differ(rows: list[Row], name: str) -> str:
    """A line that names the rows whose interval of one metric contains 0."""
    same = []
    for row in rows:
        gap = row.differences.metrics[name] if row.differences else None
        low, high = (gap and gap.get("interval")) or (1, 1)
        if low <= 0 <= high:
            same.append(f"`{row.label}`")
    return f"- Not shown to differ from `{AGAINST}` in {name}: {', '.join(same) or 'none'}."


# Files.


def marks(name: str) -> tuple[str, str]:
    """The lines before and after a table that is written into a page."""
    return f"<!-- {name}: made by `make results` -->", f"<!-- end of {name} -->"


def with_table(text: str, name: str, content: str) -> str:
    """Put a table between its two marks in a text."""
    first, last = marks(name)
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise SystemExit(f"the page has no {first} and {last}")
    inside = f"\n\n{content}\n\n" if content else "\n"
    return f"{before}{first}{inside}{last}{after}"


def read_results(results: Path) -> list[Study]:
    """The studies in the order of the paper's benchmarks, followed by all others."""
    studies, unusable = read_studies(find_runs(results))
    if unusable:
        raise SystemExit("\n".join(f"{run.path}: {run.reason}" for run in unusable))
    order = [*PUBLISHED, *(study.benchmark for study in studies)]
    return sorted(
        studies,
        key=lambda study: (order.index(study.benchmark), study.stream == "own", len(study.reduced)),
    )


def notes_key(study: Study) -> str:
    """The name of a study in the notes."""
    stream = ", published stream" if study.stream == "published" else ""
    return f"{study.benchmark}, {study.heads}{stream}"


def check_notes(notes: dict[str, dict[str, str]], studies: list[Study]) -> None:
    """Refuse a note for a row that is not in the results."""
    labels: dict[str, set[str]] = {}
    for study in studies:
        names = labels.setdefault(notes_key(study), {ABOUT})
        names |= {*(metric.name for metric in SHOWN), *(row.label for row in study.rows)}
    for key, own in notes.items():
        for label in own:
            if label not in labels.get(key, set()):
                raise SystemExit(f"{NOTES} has a note for a row that is missing: {key}: {label}")


def make_texts(results: Path, pages: dict[str, str]) -> dict[str, str]:
    """The texts of RESULTS.md and of the pages with a table, by name."""
    studies = read_results(results)
    notes, best = (
        read_json(path) if path.is_file() else {}
        for path in (results / NOTES, results / ABLATION.name)
    )
    check_notes(notes, studies)
    tables = {
        "results": readme_table(studies),
        "published": published_table(studies),
        "digits": digits_table(studies),
    }
    texts = {
        name: with_table(text, PAGES[name], tables[PAGES[name]]) for name, text in pages.items()
    }
    return {"RESULTS.md": results_page(studies, notes, best), **texts}


def read_pages() -> dict[str, str]:
    return {name: (ROOT / name).read_text() for name in PAGES}


def report(results: Path, *, compute: bool = True) -> str:
    """The page with the figures; it names runs by their path in the project.

    Without `compute` it has only the t-SNE figures that are in the cache.
    """
    with chdir(results.parent):
        place = Path(results.name)
        figures = figures_of(read_results(place), place / ".tsne", compute=compute)
        return render(figures, [], where=results.name)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("collect").add_argument("runs", type=Path)
    commands.add_parser("write")
    options = parser.parse_args(arguments)
    if options.command == "collect":
        print(f"{collect(options.runs, RESULTS)} runs in {RESULTS}")
        return
    for name, text in make_texts(RESULTS, read_pages()).items():
        write_file(ROOT / name, text.encode())
        print(ROOT / name)
    write_file(PAGE, report(RESULTS).encode())
    print(PAGE)


if __name__ == "__main__":
    main(sys.argv[1:])
