"""`mdmt cost`: what methods cost in time and bytes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from mdmt.cli import options

Steps = Annotated[int, typer.Option(min=1, help="How many training steps and inferences are timed.")]


def cost(
    benchmark: options.Benchmark = "permuted-digits",
    methods: options.Methods = "all",
    tasks: options.Tasks = None,
    set_: options.Set = None,
    reading: options.Reading = None,
    data: options.Data = None,
    image_size: options.ImageSize = None,
    subset: options.Subset = None,
    steps: Steps = 10,
    threads: options.Threads = 1,
    format_: options.Format = "table",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Time and bytes of each method. Of a training step and of an inference at the last task: the paper's cost table."""
    import sys
    from dataclasses import replace

    from mdmt.experiments.cost import measure
    from mdmt.experiments.resolve import configs_for, parse_settings, reduced, split_methods, stream_for
    from mdmt.report.tables import cost_blocks, cost_lines
    from mdmt.report.text import check_format, show

    check_format(format_)
    asked = configs_for(
        benchmark, split_methods(methods), range(1234, 1235), parse_settings(set_, reading),
        tasks=tasks, data=data, image_size=image_size, subset=subset, threads=threads,
    )  # fmt: skip
    configs = list({config.label: config for (config,) in asked}.values())
    streams = {heads: stream_for(replace(configs[0], heads=heads)) for heads in {c.heads for c in configs}}
    rows: list[dict[str, Any]] = []
    less: dict[str, Any] = {}
    for number, config in enumerate(configs, 1):
        if not (quiet or json):
            print(f"{config.label}: {number} of {len(configs)}", file=sys.stderr, flush=True)
        stream = streams[config.heads]
        less |= reduced(replace(config, weights=""), stream) or {}  # weights cost the same wherever they come from
        rows.append(measure(config, stream, steps))
    found = {
        "benchmark": benchmark, "task": len(stream), "steps": steps, "threads": threads, "reduced": less or None,
        "rows": rows,
    }  # fmt: skip
    if json:
        import json as writer

        print(writer.dumps(found))
    else:
        show(cost_blocks(found), cost_lines(found), format_)
