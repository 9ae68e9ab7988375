"""`mdmt cost`: time and memory per method."""

from __future__ import annotations

import sys
from dataclasses import replace
from json import dumps
from typing import Annotated

import typer

from mdmt.cli.options import Format, Methods, RunOptions

Steps = Annotated[
    int,
    typer.Option(min=1, metavar="N", help="Number of training steps and of inferences to time."),
]
UNUSED = (
    "method",
    "seeds",
    "seed",
    "weights",
    "keep_model",
    "evaluate_every",
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
    from mdmt.report.tables import cost_blocks, cost_lines
    from mdmt.report.text import check_format, print_blocks

    check_format(format_)
    content = _measure(options, methods, steps)
    if options.json:
        print(dumps(content))
    else:
        print_blocks(cost_blocks(content), cost_lines(content), format_)


def _measure(options: RunOptions, methods: str, steps: int) -> dict[str, object]:
    """The costs of all methods, as --json prints them."""
    from mdmt.experiments.cost import measure
    from mdmt.experiments.resolve import configs_for, reduced, stream_for
    from mdmt.runs.request import split_methods

    variants = configs_for(options, split_methods(methods))
    configs = list({config.label: config for (config,) in variants}.values())
    kinds = {config.heads for config in configs}
    streams = {heads: stream_for(replace(configs[0], heads=heads)) for heads in kinds}
    rows = []
    reductions: dict[str, object] = {}
    for number, config in enumerate(configs, 1):
        if not options.silent:
            print(f"{config.label}: {number} of {len(configs)}", file=sys.stderr, flush=True)
        stream = streams[config.heads]
        reduction = reduced(config, stream) or {}
        reduction.pop("weights", None)  # a step costs the same from any first weights
        reductions |= reduction
        rows.append(measure(config, stream, steps, is_reduced=bool(reduction)))
    return {
        "benchmark": options.benchmark,
        "task": len(stream),
        "steps": steps,
        "threads": options.threads,
        "reduced": reductions or None,
        "rows": rows,
    }
