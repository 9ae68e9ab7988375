"""`mdmt cost`: time and memory per method."""

from __future__ import annotations

import sys
from json import dumps
from typing import Annotated, Any

import typer

from mdmt.cli.options import Format, Methods, RunOptions

Steps = Annotated[
    int,
    typer.Option(min=1, metavar="N", help="Number of training steps and of inferences to time."),
]
UNUSED = (
    "seeds",
    "seed",
    "weights",
    "keep_model",
    "workers",
    "cluster",
    "out",
    "checkpoint_every",
    "fresh",
)


def cost(
    options: RunOptions, methods: Methods = "all", steps: Steps = 10, format_: Format = "table"
) -> None:
    """Time and memory per method. Measures a training step and an inference at the last task."""
    from dataclasses import replace

    from mdmt.experiments.cost import measure
    from mdmt.experiments.resolve import configs_for, reduced, stream_for
    from mdmt.report.tables import cost_blocks, cost_lines
    from mdmt.report.text import check_format, show
    from mdmt.runs.request import split_methods

    check_format(format_)
    asked = configs_for(
        options.benchmark,
        split_methods(methods),
        options.all_seeds,
        options.settings,
        **options.of_every_run,
    )
    configs = list({config.label: config for (config,) in asked}.values())
    kinds = {config.heads for config in configs}
    streams = {heads: stream_for(replace(configs[0], heads=heads)) for heads in kinds}
    rows: list[dict[str, Any]] = []
    less: dict[str, Any] = {}
    for number, config in enumerate(configs, 1):
        if not options.silent:
            print(f"{config.label}: {number} of {len(configs)}", file=sys.stderr, flush=True)
        stream = streams[config.heads]
        less_here = reduced(config, stream) or {}
        less_here.pop("weights", None)  # they cost the same from wherever they come
        less |= less_here
        rows.append(measure(config, stream, steps, is_reduced=bool(less_here)))
    content = {
        "benchmark": options.benchmark,
        "task": len(stream),
        "steps": steps,
        "threads": options.threads,
        "reduced": less or None,
        "rows": rows,
    }
    if options.json:
        print(dumps(content))
    else:
        show(cost_blocks(content), cost_lines(content), format_)
