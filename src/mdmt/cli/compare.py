"""`mdmt compare` and `mdmt ablate`: many runs, one table."""

from __future__ import annotations

from json import dumps
from typing import TYPE_CHECKING

import typer

from mdmt.cli.many_runs import run_all_with_progress
from mdmt.cli.options import Against, Format, Methods, RunOptions
from mdmt.cli.progress import tell
from mdmt.errors import Mistake
from mdmt.words import count

if TYPE_CHECKING:
    from mdmt.report.comparison import Comparison
    from mdmt.runs.config import RunConfig


def compare(
    options: RunOptions,
    methods: Methods = "all",
    against: Against = None,
    format_: Format = "table",
) -> None:
    """Compare methods. Mean and std over seeds, with the published values beside ours."""
    from mdmt.runs.request import split_methods

    _compare(options, split_methods(methods), against, format_)


def ablate(options: RunOptions, against: Against = None, format_: Format = "table") -> None:
    """Ablation of MDMT-R, as in the paper's Table 2. Softmax, margins, distillation."""
    from mdmt.runs.paper import VARIANTS

    _compare(options, list(VARIANTS), against, format_, ablation=True)


def _compare(
    options: RunOptions,
    variants: list[str],
    against: str | None,
    format_: str,
    ablation: bool = False,
) -> None:
    """Check the whole request, do the runs, print the rows."""
    from mdmt.report.text import check_format

    check_format(format_)
    found = run_comparison(options, variants, against, ablation=ablation)
    if options.json:
        rows = [row.to_json() for row in found.rows]
        print(dumps({"rows": rows, "failed": found.failed}))
    else:
        _print(found, format_)
    if not found.rows:
        raise typer.Exit(2)


def run_comparison(
    options: RunOptions,
    variants: list[str],
    against: str | None,
    *,
    ablation: bool = False,
    in_memory: bool = False,
) -> Comparison:
    """Do the runs, with their progress on stderr; those of a stream in memory in this process."""
    from mdmt.experiments.resolve import configs_for
    from mdmt.report.comparison import Comparison
    from mdmt.runs.differences import with_differences
    from mdmt.runs.paper import distinct_rows
    from mdmt.runs.rows import with_table_2

    configs = configs_for(options, variants)
    _warn_of_best(options, configs)
    reference = None if against is None else find_row(against, variants, configs)
    # A variant that is named twice is one row.
    configs = list({seeds[0].label: seeds for seeds in configs}.values())
    numbers = distinct_rows(configs[0][0].heads)
    if ablation:
        configs = _distinct(configs, numbers)
    rows, failed = run_all_with_progress(configs, options, in_memory=in_memory)
    if ablation:
        rows = with_table_2(rows, configs, numbers)
    finished = [row for row in rows if row is not None]
    if reference is not None:
        finished = with_differences(finished, reference)
    return Comparison(finished, failed, reference)


def _warn_of_best(options: RunOptions, configs: list[list[RunConfig]]) -> None:
    from mdmt.experiments.presets import HAS_BEST

    if options.preset == "best" and any(first.method != HAS_BEST for first, *_ in configs):
        tell(f"--preset best is for {HAS_BEST}; the other methods have none but published")


def _distinct(configs: list[list[RunConfig]], numbers: list[int]) -> list[list[RunConfig]]:
    """The rows of the ablation with these numbers; a line reports how many others there are."""
    if len(numbers) == len(configs):
        return configs
    tell(
        f"{count('row', len(configs) - len(numbers))} left out: they differ in the task margin"
        " alone, which one shared head does not have"
    )
    return [configs[number] for number in numbers]


def find_row(name: str, variants: list[str], configs: list[list[RunConfig]]) -> str:
    """The label of the row that --against names.

    The name is a variant as it was given, a label, or a method that only one row has.
    """
    labels = [seeds[0].label for seeds in configs]
    for names in (variants, labels):
        if name in names:
            return labels[names.index(name)]
    of_method = [seeds[0].label for seeds in configs if seeds[0].method == name]
    if len(of_method) != 1:
        raise Mistake(f"--against {name!r} is not one row of {', '.join(labels)}")
    return of_method[0]


def _print(found: Comparison, format_: str) -> None:
    from mdmt.report.tables import blocks, csv_lines
    from mdmt.report.text import print_blocks

    if found.rows:
        print_blocks(blocks(found.rows), csv_lines(found.rows), format_)
    for note in found.notes:
        tell(note)
