"""The rows of a comparison: what runs measured, with the published value and the difference to another row."""

from __future__ import annotations

import statistics
from typing import Any

from mdmt.experiments.config import RunConfig
from mdmt.published import published

Row = dict[str, Any]
PRESET = ("tasks", "heads", "arguments", "memory", "lr", "batch", "epochs", "optimiser")


def result(configs: list[RunConfig], records: list[dict[str, Any]], folders: list[str]) -> Row:
    """What `--json` prints for the runs of one method that differ in the seed alone."""
    first, less = configs[0], records[0].get("reduced")
    return {
        "benchmark": first.benchmark,
        "method": first.method,
        "label": first.label,
        "reading": first.arguments.get("reading"),
        "seeds": [c.seed for c in configs],
        "reduced": less,
        "metrics": {name: spread([r["metrics"][name] for r in records]) for name in records[0]["metrics"]},
        "published": None if less else published_for(first),
        "runs": folders,
    }


def comparison(configs: list[RunConfig], records: list[dict[str, Any]], folders: list[str]) -> Row:
    """The same with its cost: the seconds that learning took, and the bytes of the memory."""
    return {
        **result(configs, records, folders),
        "seconds": spread([r["seconds"] for r in records]),
        "memory_bytes": max(r["memory_bytes"] for r in records),
    }


def spread(values: list[float | None]) -> dict[str, Any] | None:
    """Mean and population standard deviation over the runs; None where the metric is not defined.

    >>> spread([0.25, 0.75])
    {'mean': 0.5, 'std': 0.25, 'runs': [0.25, 0.75]}
    """
    numbers = [v for v in values if v is not None]
    if not numbers or len(numbers) < len(values):
        return None
    return {"mean": statistics.fmean(numbers), "std": statistics.pstdev(numbers), "runs": numbers}


def differences(row: Row, other: Row) -> Row:
    """Each metric of a row less that of another, paired by seed: over the seeds that both have.

    >>> metrics = lambda *runs: {"metrics": {"A_T": {"runs": list(runs)}}}
    >>> differences({"seeds": [1, 2], **metrics(0.75, 0.5)}, {"label": "er", "seeds": [2, 1], **metrics(0.25, 0.25)})
    {'against': 'er', 'seeds': [1, 2], 'A_T': {'mean': 0.375, 'std': 0.125, 'runs': [0.5, 0.25]}}
    """
    both = [seed for seed in row["seeds"] if seed in other["seeds"]]
    found: Row = {"against": other["label"], "seeds": both}
    for name in row["metrics"]:
        mine, theirs = row["metrics"][name], other["metrics"].get(name)
        if mine is None or theirs is None:
            found[name] = None
            continue
        ours, others = (dict(zip(r["seeds"], m["runs"], strict=True)) for r, m in ((row, mine), (other, theirs)))
        found[name] = spread([ours[seed] - others[seed] for seed in both])
    return found


def published_for(config: RunConfig) -> dict[str, Any] | None:
    """The row of Table 1 for a config that has the preset's settings, in either reading of the paper; else None."""
    row = published(config.benchmark, config.method)
    return row if row is not None and is_preset(config, config.method) else None


def is_preset(config: RunConfig, variant: str) -> bool:
    """Whether a config has the settings that the preset has for this variant."""
    from mdmt.experiments.resolve import resolve

    usual = resolve(config.benchmark, variant, reading=config.arguments.get("reading"))
    return all(getattr(config, key) == getattr(usual, key) for key in PRESET)
