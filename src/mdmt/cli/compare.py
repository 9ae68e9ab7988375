"""`mdmt compare` and `mdmt ablate`: many runs, one table."""

from __future__ import annotations

from json import dumps
from typing import TYPE_CHECKING

import typer

from mdmt.cli.many_runs import run_all, tell_failures
from mdmt.cli.options import Against, Format, Methods, RunOptions
from mdmt.cli.progress import tell
from mdmt.words import count

if TYPE_CHECKING:
    from mdmt.runs.config import RunConfig
    from mdmt.runs.rows import Failure, Row


def compare(
    options: RunOptions,
    methods: Methods = "all",
    against: Against = None,
    format_: Format = "table",
) -> None:
    """Compare methods (Table 1). Mean and std over seeds, with the published values beside ours."""
    from mdmt.runs.request import split_methods

    _compare(options, split_methods(methods), against, format_)


def ablate(options: RunOptions, against: Against = None, format_: Format = "table") -> None:
    """Ablation of MDMT-R (Table 2). Softmax, margins, distillation."""
    from mdmt.runs.paper import VARIANTS

    _compare(options, list(VARIANTS), against, format_, ablation=True)


def _compare(
    options: RunOptions,
    variants: list[str],
    against: str | None,
    format_: str,
    ablation: bool = False,
) -> None:
    """Check all that was asked, do the runs, print the rows."""
    from mdmt.experiments.presets import HAS_BEST
    from mdmt.experiments.resolve import configs_for, find_row
    from mdmt.report.text import check_format
    from mdmt.runs.paper import distinct_rows
    from mdmt.runs.rows import with_differences, with_table_2

    check_format(format_)
    configs = configs_for(
        options.benchmark, variants, options.all_seeds, options.settings, **options.of_every_run
    )
    if options.preset == "best" and any(first.method != HAS_BEST for first, *_ in configs):
        tell(f"--preset best is for {HAS_BEST}; the other methods have none but published")
    reference = None if against is None else find_row(against, variants, configs)
    configs = _one_of_each_label(configs)
    numbers = distinct_rows(configs[0][0].heads)
    if ablation and len(numbers) < len(configs):
        more = len(configs) - len(numbers)
        tell(
            f"{count('row', more)} left out: they differ in the task margin alone, which one shared"
            " head does not have"
        )
        configs = [configs[number] for number in numbers]
    rows, failed = run_all(configs, options)
    if ablation:
        rows = with_table_2(rows, configs, numbers)
    finished = [row for row in rows if row is not None]
    if reference is not None:
        finished = with_differences(finished, reference)
    if options.json:
        print(dumps({"rows": [row.to_json() for row in finished], "failed": failed}))
    else:
        _print(finished, failed, format_)
    if finished and reference not in (None, *(row.label for row in finished)):
        tell(f"no differences: {reference}, which --against names, has no finished run")
    if not finished:
        raise typer.Exit(2)


def _one_of_each_label(configs: list[list[RunConfig]]) -> list[list[RunConfig]]:
    """A variant that was named twice is one row."""
    return list({seeds[0].label: seeds for seeds in configs}.values())


def _print(rows: list[Row], failed: list[Failure], format_: str) -> None:
    from mdmt.report.tables import blocks, chance_line, csv_lines
    from mdmt.report.text import show

    if rows:
        show(blocks(rows), csv_lines(rows), format_)
    if (warning := chance_line(rows)) is not None:
        tell(warning)
    tell_failures(failed)
