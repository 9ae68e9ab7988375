"""The results that the README shows: measured runs beside the published values.

    python bench/results.py collect RUNS     # finished runs into results/, without weights and data
    python bench/results.py write            # RESULTS.md and the README's table, from results/ alone

A run in results/ is its `config.json`, its `record.json` and a thinned `steps.csv`. What was found where
a value lies below the published one is written by hand in results/notes.json, by benchmark and row.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mdmt.experiments.comparison import Row, Spread
from mdmt.experiments.measurements import Step, steps_as_csv
from mdmt.experiments.paper import NEWER
from mdmt.experiments.store import CONFIG, RECORD, STEPS, find_runs
from mdmt.files import read_json, write_file
from mdmt.methods import METHODS
from mdmt.metrics import A_T, METRICS, Metric
from mdmt.report.study import Entry, Study, read_studies

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
NOTES = "notes.json"
STEPS_OF_A_TASK = 200
MARKS = {  # what stands between them in the README is made here
    name: (f"<!-- {name}: made by `make results` -->", f"<!-- end of {name} -->") for name in ("digits", "results")
}
DIGITS = "permuted-digits"
PUBLISHED = [metric for metric in METRICS if metric.name != "A_free"]


def collect(runs: Path, results: Path) -> int:
    """Copy what finished runs measured; how many they were."""
    done = 0
    for folder in find_runs(runs):
        if folder.state.kind != "finished" or folder.config.cross_validation:
            continue
        place = results / folder.path.relative_to(runs)
        place.mkdir(parents=True, exist_ok=True)
        for name in (CONFIG, RECORD):
            shutil.copyfile(folder.path / name, place / name)
        write_file(place / STEPS, steps_as_csv(thinned(folder.steps)).encode())
        done += 1
    return done


def thinned(steps: list[Step]) -> list[Step]:
    """At most so many steps of each task, evenly, its last among them."""
    kept: list[Step] = []
    for task in dict.fromkeys(step[0] for step in steps):
        own = [step for step in steps if step[0] == task]
        stride = -(-len(own) // STEPS_OF_A_TASK)
        kept += own[::-1][::stride][::-1]
    return kept


def verdict(row: Row) -> str:
    """Where our mean lies: inside the published mean and standard deviation, above, or below."""
    cell = (row.published or {}).get(A_T.name)
    if cell is None:
        return ""
    gap = row.accuracy - cell["mean"]
    width = cell["std"] or 0.0
    if abs(gap) <= width:
        return "inside"
    return "above" if gap > 0 else "below"


def value(metric: Metric, cell: Spread | dict[str, Any] | None) -> str:
    """A number with its spread, where it has one."""
    if cell is None:
        return ""
    several = cell["std"] is not None and len(cell.get("runs", (0, 0))) > 1
    spread = f" ± {metric.text(cell['std'])}" if several else ""
    return metric.text(cell["mean"]) + spread


def origin(entry: Entry) -> tuple[str, str]:
    """The commits and the processors of a row's runs."""
    versions = [run.record["versions"] for run in entry.runs]
    return tuple(
        ", ".join(dict.fromkeys(str(version.get(key, "unknown")) for version in versions)) for key in ("commit", "cpu")
    )  # type: ignore[return-value]


def lines_of(study: Study, notes: dict[str, str]) -> Iterator[str]:
    """The part of RESULTS.md about one study."""
    yield f"## {study.title}"
    yield ""
    if study.reduced:
        parts = ", ".join(f"{key} {content}" for key, content in study.reduced.items())
        yield f"Reduced, not the published protocol: {parts}."
        yield ""
    heads = [part for metric in PUBLISHED for part in (metric.heading, "published")]
    columns = ["method", *heads, "A_T less published", "band", "seeds", "seconds", "commit"]
    yield table_line(columns)
    yield table_line(["---"] * len(columns))
    for entry in study.entries:
        row = entry.row
        cells = [row.label if not row.reduced else f"{row.label} (reduced)"]
        for metric in PUBLISHED:
            published = (row.published or {}).get(metric.name)
            cells += [value(metric, row.metrics[metric.name]), value(metric, published)]
        published = (row.published or {}).get(A_T.name)
        gap = "" if published is None else A_T.text(row.accuracy - published["mean"], signed=True)
        seeds = ", ".join(map(str, row.seeds))
        commits, _ = origin(entry)
        yield table_line([*cells, gap, verdict(row), seeds, f"{row.seconds['mean']:.0f}", commits])
    yield ""
    processors = dict.fromkeys(origin(entry)[1] for entry in study.entries)
    yield f"Processor: {'; '.join(processors)}. Seconds are those of learning, mean of a run."
    yield ""
    for entry in study.entries:
        if entry.label in notes:
            yield f"- `{entry.label}`: {notes[entry.label]}"
    if any(entry.label in notes for entry in study.entries):
        yield ""


def table_line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def results_page(studies: list[Study], notes: dict[str, dict[str, str]]) -> str:
    """RESULTS.md."""
    lines = [
        "# Results",
        "",
        "Measured with this program, beside what the paper published; made by `make results` from the records",
        "in `results/`, never by hand. `band` says where our mean lies: inside the published mean and standard",
        "deviation, above, or below. `mdmt rerun results/BENCHMARK/METHOD/HASH/SEED` does a run again and says",
        "whether it has the same bits.",
        "",
    ]
    for study in studies:
        key = f"{study.benchmark}, {study.heads}"
        lines += lines_of(study, notes.get(key, {}))
    return "\n".join(lines).rstrip() + "\n"


def readme_table(studies: list[Study]) -> str:
    """What the README shows of it: one line a method and study that has a published value."""
    columns = ["benchmark", "head", "method", A_T.heading, "published", "seeds"]
    lines = [table_line(columns), table_line(["---"] * len(columns))]
    for study in studies:
        for row in study.rows:
            published = (row.published or {}).get(A_T.name)
            if published is not None:
                ours = value(A_T, row.metrics[A_T.name])
                cells = [study.benchmark, study.heads, f"`{row.label}`", ours, value(A_T, published)]
                lines.append(table_line([*cells, str(len(row.seeds))]))
    return "\n".join(lines)


def digits_table(studies: list[Study]) -> str:
    """All methods on the embedded digits, with what they cost."""
    (study,) = [study for study in studies if study.benchmark == DIGITS]
    shown = [metric for metric in METRICS if metric.name != "A_free"]  # one head for all tasks: it is A_T
    columns = ["method", "kind", *(metric.heading for metric in shown), "seconds", "memory (MB)"]
    lines = [table_line(columns), table_line(["---"] * len(columns))]
    for row in study.rows:
        method = METHODS[row.method]
        kind = method.source if method.kind == "bound" else method.kind
        newer = f", {method.source[-4:]}" if row.method in NEWER else ""
        cells = [value(metric, row.metrics[metric.name]) for metric in shown]
        cost = [f"{row.seconds['mean']:.0f}", f"{row.memory_bytes / 1e6:.1f}" if row.memory_bytes else ""]
        lines.append(table_line([f"`{row.label}`", kind + newer, *cells, *cost]))
    return "\n".join(lines)


def with_table(text: str, name: str, table: str) -> str:
    """A text with the table between its two marks."""
    first, last = MARKS[name]
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise SystemExit(f"README.md has no {first} and {last}")
    return f"{before}{first}\n\n{table}\n\n{last}{after}"


def made(results: Path, readme: str) -> dict[str, str]:
    """The files that `write` writes, by name."""
    studies, unusable = read_studies(find_runs(results))
    if unusable:
        raise SystemExit("\n".join(f"{run.path}: {run.reason}" for run in unusable))
    notes = read_json(results / NOTES) if (results / NOTES).is_file() else {}
    readme = with_table(readme, "digits", digits_table(studies))
    if any(row.published for study in studies for row in study.rows):
        readme = with_table(readme, "results", readme_table(studies))
    return {"RESULTS.md": results_page(studies, notes), "README.md": readme}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("collect").add_argument("runs", type=Path)
    commands.add_parser("write")
    options = parser.parse_args(arguments)
    if options.command == "collect":
        print(f"{collect(options.runs, RESULTS)} runs in {RESULTS}")
        return
    for name, text in made(RESULTS, (ROOT / "README.md").read_text()).items():
        write_file(ROOT / name, text.encode())
        print(ROOT / name)


if __name__ == "__main__":
    main(sys.argv[1:])
