"""The gain of each setting of the preset `best`, on held-out tasks.

    python bench/ablation.py --data DIR --out runs/ablation

Runs MDMT-R with the published settings, with each setting of `best` added to them, with `best`,
and with `best` less each setting, on seeds that no run is measured on. Finished runs in --out are
read, so an interrupted command can be run again. The record also has every other trial on held-out
tasks in --out: settings that were tried and are not part of the preset.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from mdmt.experiments.presets import BEST, HAS_BEST
from mdmt.experiments.resolve import resolve, with_seeds
from mdmt.experiments.sweep import run_all
from mdmt.metrics import A_FREE, A_T, METRICS
from mdmt.runs.config import RunConfig
from mdmt.runs.folder import find_runs
from mdmt.runs.record import versions
from mdmt.runs.request import RunRequest
from mdmt.runs.rows import mean_std
from mdmt.system.files import write_json

ABLATION = Path(__file__).parents[1] / "results" / "ablation.json"
SEEDS = range(2001, 2003)  # runs are measured from 1234 on
SHOWN = [metric for metric in METRICS if metric is not A_FREE]
CHOICE = {  # how the settings were chosen
    "permuted-mnist": (
        "Three tasks forget little, so the learning rate was settled on six permutations that no"
        " run is\nmeasured on (18 to 23 of seed 2001, one trial each with a working copy,"
        " `average=0.999`): 97.01 with 0.6, 96.65\nwith 0.1, 96.76 with 1.2; with 0.1 and steps"
        " that shorten (`last_step=0`) 95.98."
    ),
    "permuted-digits": (
        "Chosen on these tasks alone, with the settings that `mdmt-r` had before all methods were"
        " tuned again\n(`lr=0.3`, `class_margin=0.04`, `scale=60`)."
    ),
}
TRIED = [
    (
        "Also tried on these tasks, and not part of the preset; differences are to the preset"
        " `published`. Trials of no"
    ),
    "commit were made with a working copy.",
]
GONE = "memory_weight"  # a setting that no release has
NOT_KEPT = (
    f"`{GONE}` weighed the margin loss of kept examples, `distillation` the distillation: one"
    " seed\nshowed no gain worth a setting."
)
Settings = dict[str, Any]  # the settings that differ from the published ones
Trial = dict[str, Any]  # an entry of `trials`, as the record holds it


def variants_of(best: Settings) -> list[Settings]:
    """The published settings, each of the preset alone, the preset, and the preset without each.

    >>> variants_of({"average": 0.9, "lr": 1})
    [{}, {'average': 0.9}, {'lr': 1}, {'average': 0.9, 'lr': 1}]
    """
    alone = [{key: value} for key, value in best.items()]
    without = [{key: value for key, value in best.items() if key != left_out} for left_out in best]
    distinct = {
        repr(sorted(settings.items())): settings for settings in ({}, *alone, best, *without)
    }
    return list(distinct.values())


def changes(config: RunConfig, published: RunConfig) -> Settings:
    """The settings in which a config differs from the published one."""
    ours = {"lr": config.lr, **config.arguments}
    theirs = {"lr": published.lr, **published.arguments}
    return {key: value for key, value in ours.items() if value != theirs.get(key)}


def trials(out: str, benchmark: str) -> list[dict[str, Any]]:
    """The finished trials of MDMT-R on held-out tasks, with all their seeds; best first."""
    published = resolve(RunRequest(benchmark, HAS_BEST), cross_validation=True)
    groups: dict[tuple[int, str], list[tuple[RunConfig, dict[str, Any]]]] = {}
    for folder in find_runs(Path(out)):
        config = folder.config
        if (
            folder.state.kind == "finished"
            and config.cross_validation
            and config.benchmark == benchmark
        ):
            groups.setdefault((config.subset or 0, config.hash), []).append((config, folder.record))
    rows = []
    for runs in groups.values():
        runs.sort(key=lambda run: run[0].seed)
        row: dict[str, Any] = {
            "settings": changes(runs[0][0], published),
            "subset": runs[0][0].subset,
            "seeds": [config.seed for config, _ in runs],
            "commits": sorted({record.versions.get("commit", "none") for _, record in runs}),
        }
        rows.append(
            row
            | {metric.name: mean_std([metric.of(record) for _, record in runs]) for metric in SHOWN}
        )
    return sorted(
        rows, key=lambda row: (row["subset"] or 10**9, row[A_T.name]["mean"]), reverse=True
    )


def find(rows: list[Trial], settings: Settings, subset: int | None = None) -> Trial | None:
    """The trial of these settings."""
    return next(
        (row for row in rows if row["settings"] == settings and row["subset"] == subset), None
    )


def accuracy(row: Trial | None) -> str:
    """
    >>> accuracy({"A_T": {"mean": 0.9, "std": 0.01, "runs": [0.89, 0.91]}}), accuracy(None)
    ('90.00 ± 1.00', '')
    """
    if row is None:
        return ""
    cell = row[A_T.name]
    spread = f" ± {A_T.text(cell['std'])}" if len(cell["runs"]) > 1 else ""
    return A_T.text(cell["mean"]) + spread


def less(row: Trial | None, other: Trial | None) -> str:
    """The difference in accuracy between two trials, over the seeds that both have."""
    if row is None or other is None:
        return ""
    ours, theirs = (
        dict(zip(trial["seeds"], trial[A_T.name]["runs"], strict=True)) for trial in (row, other)
    )
    gaps = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    return A_T.text(sum(gaps) / len(gaps), signed=True) if gaps else ""


def words(settings: Settings) -> str:
    return ", ".join(f"`{key}={value}`" for key, value in settings.items()) or "`published`"


def worth_table(content: dict[str, Any]) -> list[list[str]]:
    """The gain of each setting of the preset: alone, and together with the others."""
    rows, best = content["trials"], content["best"]
    lines = [["setting", "added to `published`", "difference", "taken from `best`", "difference"]]
    lines.append(["none", accuracy(find(rows, {})), "", accuracy(find(rows, best)), ""])
    for key, value in best.items():
        alone = find(rows, {key: value})
        without = find(rows, {name: other for name, other in best.items() if name != key})
        gaps = [less(alone, find(rows, {})), less(without, find(rows, best))]
        lines.append([words({key: value}), accuracy(alone), gaps[0], accuracy(without), gaps[1]])
    return lines


def other_trials(content: dict[str, Any]) -> list[list[str]]:
    """All other trials on the held-out tasks, compared with the published settings."""
    rows = content["trials"]
    known = [repr(sorted(settings.items())) for settings in variants_of(content["best"])]
    lines = [["settings", "examples of a task", "seeds", "accuracy (%)", "difference", "commit"]]
    for row in rows:
        if row["subset"] is None and repr(sorted(row["settings"].items())) in known:
            continue
        published = find(rows, {}, row["subset"])
        size = "all" if row["subset"] is None else f"{row['subset']:,}"
        seeds = ", ".join(map(str, row["seeds"]))
        lines.append(
            [
                words(row["settings"]),
                size,
                seeds,
                accuracy(row),
                less(row, published),
                ", ".join(row["commits"]),
            ]
        )
    return lines


def table(columns: list[str], *lines: list[str]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *lines)]


def ablation_page(content: dict[str, Any]) -> list[str]:
    """The part of RESULTS.md about the preset `best`."""
    cpu, commit = content["versions"].get("cpu"), content["versions"].get("commit")
    lines = []
    for benchmark, trials in content["benchmarks"].items():
        lines += [
            f"## `--preset best` on {benchmark}",
            "",
            (
                "What each setting of the preset is worth: mean accuracy (%) after the"
                f" {trials['tasks']} held-out tasks,"
            ),
            "one pass over all their examples; differences are paired by seed.",
            CHOICE[benchmark],
            (
                f"Made by `{content['command']}` ({cpu}, commit {commit});"
                f" `results/{ABLATION.name}` has every number."
            ),
            "",
            *table(*worth_table(trials)),
            "",
        ]
        first, *others = other_trials(trials)
        if others:
            gone = (
                [NOT_KEPT] if any(GONE in trial["settings"] for trial in trials["trials"]) else []
            )
            lines += [*TRIED, *gone, "", *table(first, *others), ""]
    return lines


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--benchmarks", nargs="+", default=list(BEST), choices=list(BEST))
    parser.add_argument("--data", help="folder of the data sets")
    parser.add_argument("--out", default="runs/ablation", help="folder of the runs")
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--workers", type=int, help="processes; one per core unless given")
    parser.add_argument("--record", type=Path, default=ABLATION, help="file to write")
    options = parser.parse_args(arguments)
    seeds = range(SEEDS.start, SEEDS.start + options.seeds)
    content: dict[str, Any] = {}
    for benchmark in options.benchmarks:
        data = None if benchmark.endswith("digits") else options.data
        configs = []
        for settings in variants_of(BEST[benchmark]):
            request = RunRequest(benchmark, HAS_BEST, data=data).with_settings(settings)
            first = resolve(request, cross_validation=True)
            configs.append(with_seeds(first, seeds))
        _, failed = run_all(configs, options.out, options.workers or "auto")
        if failed:
            raise SystemExit(
                "\n".join(f"{run['label']}, seed {run['seed']}: {run['reason']}" for run in failed)
            )
        content[benchmark] = {
            "best": BEST[benchmark],
            "tasks": first.tasks,
            "trials": trials(options.out, benchmark),
        }
    command = shlex.join(["python", "bench/ablation.py", *arguments])
    write_json(options.record, {"command": command, "versions": versions(), "benchmarks": content})
    print(options.record)


if __name__ == "__main__":
    main(sys.argv[1:])
