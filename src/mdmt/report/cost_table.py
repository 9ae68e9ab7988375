"""What `mdmt cost` prints: times, and bytes of training and of inference, beside the paper's."""

from __future__ import annotations

from typing import Any

from mdmt.report.text import Block, Grid
from mdmt.words import count

LETTERS = {
    "parameters": "P", "buffers": "S", "vectors": "G", "memory": "M", "representations": "F", "activations": "H",
    "total": "sum",
}  # fmt: skip
MEANINGS = (
    "P parameters, S what the method remembers from step to step, G gradients and other vectors as long as P, "
    "M examples in memory, F their representations, H activations of the whole batch"
)
PAPER = (
    "paper: its formulas, with T tasks, B samples in a batch, H activations of one sample and H_l of its last layer; "
    "most of G is left out there"
)
BUSY = "other jobs on this machine make its times longer, not its bytes more"
MACHINE = "published: milliseconds of the authors' machine, which say nothing of yours"


def cost_blocks(found: dict[str, Any]) -> list[Block]:
    """Three tables: times, bytes of training, bytes of inference."""
    rows = found["rows"]
    less = ", ".join(f"{key} {value}" for key, value in (found["reduced"] or {}).items())
    above = [
        f"{found['benchmark']}, cost of a mini-batch at task {found['task']}",
        f"median of {found['steps']} after warming up, {count('thread', found['threads'])}",
        *([f"reduced, not the published protocol: {less}"] if less else []),
    ]
    times = _times(rows)
    blocks: list[Block] = [(above, times, [BUSY, *([MACHINE] if "published" in times[0] else [])])]
    for kind, key in (("training", "memory_training"), ("inference", "memory_testing")):
        grid = _sizes(rows, kind, key)
        below = [MEANINGS, *([PAPER] if grid[0][-1] == "paper" else [])] if kind == "inference" else []
        blocks.append(([f"MB of {kind}"], grid, below))
    return blocks


def _times(rows: list[dict[str, Any]]) -> Grid:
    """Milliseconds, and the published ones where any row has them."""
    lines = [[r["label"], str(r["batch"]), milliseconds(r["step_ms"]), milliseconds(r["inference_ms"])] for r in rows]
    published = [(row["published"] or {}).get("inference_ms") for row in rows]
    beside = any(p is not None for p in published)
    if beside:
        lines = [[*line, "-" if p is None else f"{p:.2f}"] for line, p in zip(lines, published, strict=True)]
    return ["method", "batch", "step ms", "inference ms", *(["published"] if beside else [])], lines


def _sizes(rows: list[dict[str, Any]], kind: str, key: str) -> Grid:
    """Megabytes of each kind, and the paper's formula where any row has one."""
    letters = [name for name in LETTERS if name in rows[0][kind]]
    lines = [[row["label"], *(megabytes(row[kind][name]) for name in letters)] for row in rows]
    beside = any(row["published"] for row in rows)
    if beside:
        lines = [[*line, (row["published"] or {}).get(key, "-")] for line, row in zip(lines, rows, strict=True)]
    return ["method", *(LETTERS[name] for name in letters), *(["paper"] if beside else [])], lines


def milliseconds(value: float) -> str:
    """A time for people.

    >>> milliseconds(0.2345), milliseconds(123.45)
    ('0.23', '123')
    """
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def megabytes(count: int) -> str:
    """Bytes as millions of them, without the unit.

    >>> megabytes(0), megabytes(1_200), megabytes(4_560_000), megabytes(123_400_000)
    ('-', '<0.01', '4.56', '123')
    """
    if count < 10_000:
        return "<0.01" if count else "-"
    return milliseconds(count / 1e6)


def cost_lines(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows for programs: milliseconds and bytes."""
    lines = []
    for row in found["rows"]:
        line = {"benchmark": found["benchmark"], "task": found["task"], "steps": found["steps"]}
        line |= {key: row[key] for key in ("label", "batch", "step_ms", "inference_ms")}
        line |= {f"{kind}_{name}": row[kind][name] for kind in ("training", "inference") for name in row[kind]}
        published = row["published"] or {}
        names = ("inference_ms", "memory_training", "memory_testing")
        lines.append({**line, **{f"published_{name}": published.get(name) for name in names}})
    return lines
