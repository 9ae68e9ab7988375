"""`mdmt compare` and `mdmt ablate`: many runs, one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from mdmt.experiments.config import Config
    from mdmt.experiments.tables import Row

Benchmark = Annotated[str, typer.Argument(help="What to learn: see `mdmt list benchmarks`.")]
Seeds = Annotated[int, typer.Option(min=1, help="How many seeds, one run each.")]
Seed = Annotated[int, typer.Option(min=0, help="The first seed.")]
Tasks = Annotated[int | None, typer.Option(help="How many tasks, when not all.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="key=value, for the methods that have it; may be repeated.")
]
Data = Annotated[str | None, typer.Option(help="Where data sets lie, or your folder of images.")]
ImageSize = Annotated[int | None, typer.Option(help="Bring images to this size, when not the published one.")]
Subset = Annotated[int | None, typer.Option(min=1, help="Train on so many examples of each task.")]
Weights = Annotated[str | None, typer.Option(help="Start ResNet-18 from a torchvision state dict.")]
Out = Annotated[str, typer.Option(help="Where run folders go.")]
Workers = Annotated[str, typer.Option(help="Runs at a time: a number, or auto for one per core.")]
Threads = Annotated[int, typer.Option(min=1, help="Threads of one run.")]
Against = Annotated[str | None, typer.Option(help="Also print differences to this row, paired by seed.")]
Format = Annotated[str, typer.Option("--format", help="table, markdown, latex or csv.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Run again what was finished before.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]


def compare(
    benchmark: Benchmark = "permuted-digits",
    methods: Annotated[
        str, typer.Option(help="all, or a list of methods and variants: van,er,'mdmt-r[distance=none]'.")
    ] = "all",
    seeds: Seeds = 5,
    seed: Seed = 1234,
    tasks: Tasks = None,
    set_: Set = None,
    data: Data = None,
    image_size: ImageSize = None,
    subset: Subset = None,
    weights: Weights = None,
    out: Out = "runs",
    workers: Workers = "auto",
    threads: Threads = 1,
    against: Against = None,
    format_: Format = "table",
    fresh: Fresh = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare methods (Table 1): every metric, mean and std over seeds, the published value beside it."""
    from mdmt.experiments.variants import split_methods

    options = {
        "tasks": tasks, "threads": threads, "data": data, "image_size": image_size, "subset": subset, "weights": weights
    }  # fmt: skip
    _compare(
        benchmark, split_methods(methods), range(seed, seed + seeds), set_ or [], options, out, workers, against,
        format_, fresh, json, quiet,
    )  # fmt: skip


def ablate(
    benchmark: Benchmark = "split-cifar",
    seeds: Seeds = 5,
    seed: Seed = 1234,
    tasks: Tasks = None,
    set_: Set = None,
    data: Data = None,
    image_size: ImageSize = None,
    subset: Subset = None,
    weights: Weights = None,
    out: Out = "runs",
    workers: Workers = "auto",
    threads: Threads = 1,
    against: Against = None,
    format_: Format = "table",
    fresh: Fresh = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """What the parts of MDMT-R are worth (Table 2): softmax, margins, distillation."""
    from mdmt.experiments.ablation import VARIANTS

    options = {
        "tasks": tasks, "threads": threads, "data": data, "image_size": image_size, "subset": subset, "weights": weights
    }  # fmt: skip
    _compare(
        benchmark, list(VARIANTS), range(seed, seed + seeds), set_ or [], options, out, workers, against,
        format_, fresh, json, quiet, ablation=True,
    )  # fmt: skip


def _compare(
    benchmark: str,
    variants: list[str],
    seeds: range,
    settings: list[str],
    options: dict[str, Any],
    out: str,
    workers: str,
    against: str | None,
    format_: str,
    fresh: bool,
    json: bool,
    quiet: bool,
    ablation: bool = False,
) -> None:
    """Check all that was asked, do the runs, print the rows."""
    from mdmt.experiments.config import parse_setting
    from mdmt.experiments.render import FORMATS
    from mdmt.experiments.variants import configs_for, find_row

    if format_ not in ("table", *FORMATS):
        raise ValueError(f"--format {format_}: must be one of table, {', '.join(FORMATS)}")
    configs = configs_for(benchmark, variants, seeds, dict(map(parse_setting, settings)), **options)
    chosen = None if against is None else find_row(against, variants, configs)
    configs = list({of_seed[0]["label"]: of_seed for of_seed in configs}.values())  # asked twice: one row
    rows, failed = _run_all(configs, out, _workers(workers), fresh, quiet or json)
    if ablation:
        _put_table_2_beside(rows, configs)
    _put_differences_beside(rows, chosen)
    finished = [row for row in rows if row is not None]
    _print(finished, failed, format_, json)
    if not finished:
        raise typer.Exit(2)


def _workers(text: str) -> Any:
    if text == "auto":
        return text
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"--workers {text}: must be auto or a whole number from 1")
    return int(text)


def _run_all(
    configs: list[list[Config]], out: str, workers: Any, fresh: bool, quiet: bool
) -> tuple[list[Row | None], list[dict[str, Any]]]:
    """A row for each variant, of the seeds that finished (None where none did), and what failed."""
    from contextlib import closing

    from mdmt.experiments.live import Live
    from mdmt.experiments.run import folder_of
    from mdmt.experiments.sweep import sweep
    from mdmt.experiments.tables import comparison

    records: dict[tuple[str, int], dict[str, Any]] = {}
    reasons: dict[tuple[str, int], str] = {}

    def row(of_seed: list[Config]) -> Row | None:
        done = [c for c in of_seed if _key(c) in records]
        return (
            comparison(done, [records[_key(c)] for c in done], [str(folder_of(c, out)) for c in done]) if done else None
        )

    flat = [config for number in zip(*configs, strict=True) for config in number]  # a seed of each first
    try:
        with (
            Live([c[0]["label"] for c in configs], len(configs[0]), quiet) as live,
            closing(sweep(flat, out, workers, live.event, fresh=fresh)) as outcomes,
        ):
            for outcome in outcomes:
                if outcome.record is None:
                    reasons[_key(outcome.config)] = outcome.reason
                else:
                    records[_key(outcome.config)] = outcome.record
                mine = next(of_seed for of_seed in configs if outcome.config in of_seed)
                live.outcome(outcome, row(mine))
    except KeyboardInterrupt:
        raise ValueError("interrupted; the same command goes on from there") from None
    failed = [
        {"label": c["label"], "seed": c["seed"], "reason": reasons[_key(c)]}
        for of_seed in configs
        for c in of_seed
        if _key(c) in reasons
    ]
    return [row(of_seed) for of_seed in configs], failed


def _key(config: Config) -> tuple[str, int]:
    return config["label"], config["seed"]


def _put_differences_beside(rows: list[Row | None], chosen: str | None) -> None:
    from mdmt.experiments.tables import differences

    if chosen is None:
        return
    finished = [row for row in rows if row is not None]
    other = next((row for row in finished if row["label"] == chosen), None)
    for row in finished:
        row["differences"] = None if other is None or row is other else differences(row, other)


def _put_table_2_beside(rows: list[Row | None], configs: list[list[Config]]) -> None:
    from mdmt.experiments.ablation import published_for

    for number, row in enumerate(rows):
        if row is not None:
            row["published"] = None if row["reduced"] else published_for(configs[number][0], number)


def _print(rows: list[Row], failed: list[dict[str, Any]], format_: str, as_json: bool) -> None:
    import json
    import sys

    from mdmt.experiments.render import show

    if as_json:
        print(json.dumps({"rows": rows, "failed": failed}))
        return
    if rows:
        show(rows, format_)
    for run in failed:
        print(f"mdmt: failed: {run['label']}, seed {run['seed']}: {run['reason']}", file=sys.stderr)
