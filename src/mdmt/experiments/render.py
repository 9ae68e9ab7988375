"""A comparison as a table on the terminal, as markdown, as LaTeX and as CSV."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable
from typing import Any

from mdmt.experiments.tables import METRICS, Row, format_metric

Grid = tuple[list[str], list[list[str]]]  # the heads of the columns; the rows
NOTEBOOK = "* not in the paper's Table 1: from the public notebooks behind it"


def heading(name: str) -> str:
    """A metric as the head of a column."""
    return "A_T (%)" if name == "A_T" else name


def size(count: int) -> str:
    """Bytes for people.

    >>> size(0), size(980_000), size(3_400_000)
    ('-', '980 kB', '3.4 MB')
    """
    if not count:
        return "-"
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"


def main_grid(rows: list[Row]) -> Grid:
    """Method, metrics (the published value beside each, where any row has one), seconds and bytes."""
    beside = [name for name in METRICS if any((row["published"] or {}).get(name) for row in rows)]
    heads = ["method"]
    lines: list[list[str]] = []
    for name in METRICS:
        heads += [heading(name), "published"] if name in beside else [heading(name)]
    for row in rows:
        cells: list[str] = [row["label"]]
        for name in METRICS:
            cells.append(format_metric(name, row["metrics"][name]))
            if name in beside:
                cells.append(format_metric(name, (row["published"] or {}).get(name)))
        seconds = row["seconds"]["mean"]
        lines.append([*cells, f"{seconds:.1f}" if seconds < 100 else f"{seconds:.0f}", size(row["memory_bytes"])])
    return [*heads, "seconds", "memory"], lines


def difference_grid(rows: list[Row]) -> Grid:
    """Each row less the chosen one."""
    found = [(row["label"], row["differences"]) for row in rows if row.get("differences")]
    lines = [
        [label, *(format_metric(n, d[n], signed=True) for n in METRICS), str(len(d["seeds"]))] for label, d in found
    ]
    return ["method", *map(heading, METRICS), "seeds"], lines


def captions(rows: list[Row]) -> list[str]:
    """What stands above the table: what was learned, on how many seeds, and what makes it less than the protocol."""
    first = rows[0]
    seeds = sorted({seed for row in rows for seed in row["seeds"]})
    told = f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds from {seeds[0]}, mean ± population std"
    lines = [f"{first['benchmark']}, {told}"]
    less: dict[str, Any] = {}
    for row in rows:
        less |= row["reduced"] or {}
    if less:
        named = ", ".join(f"{key} {value}" for key, value in less.items())
        lines.append(f"reduced, not the published protocol: {named}")
    for row in rows:
        if row["seeds"] != seeds:
            lines.append(f"{row['label']}: only seeds {', '.join(map(str, row['seeds']))}")
    return lines


def _blocks(rows: list[Row]) -> list[tuple[list[str], Grid, list[str]]]:
    """Each table with what stands above and below it."""
    grid = main_grid(rows)
    below = [NOTEBOOK] if any(cell.endswith("*") for line in grid[1] for cell in line[1:]) else []
    blocks = [(captions(rows), grid, below)]
    against = [row["differences"]["against"] for row in rows if row.get("differences")]
    if against:
        blocks.append(([f"difference to {against[0]}, paired by seed"], difference_grid(rows), []))
    return blocks


def as_table(rows: list[Row], width: int) -> list[Any]:
    """What rich prints, on a screen so wide."""
    from rich.text import Text

    parts: list[Any] = []
    for above, grid, below in _blocks(rows):
        parts += [Text(line, style="bold" if i == 0 else "") for i, line in enumerate(above)]
        parts += [rich_table(grid, width), *map(Text, below)]
    return parts


def rich_table(grid: Grid, width: int) -> Any:
    """A grid as a rich table, set closer where there is little room; labels have brackets, which are no markup."""
    from rich.table import Table
    from rich.text import Text

    widest = [max(map(len, column)) for column in zip(grid[0], *grid[1], strict=True)]
    gap = 2 if sum(widest) + 2 * len(widest) <= width else 1
    whole = sum(widest[1:]) + gap * len(widest) + 8 <= width  # then it is the label that is folded, not the numbers
    table = Table(box=None, header_style="bold", padding=(0, gap, 0, 0), pad_edge=False)
    for i, head in enumerate(grid[0]):
        table.add_column(head, justify="left" if i == 0 else "right", overflow="fold", no_wrap=whole and i > 0)
    for line in grid[1]:
        table.add_row(*map(Text, line))
    return table


def as_markdown(rows: list[Row]) -> str:
    """Tables of GitHub's markdown."""
    parts = []
    for above, (heads, lines), below in _blocks(rows):
        body = [heads, ["---"] + ["---:"] * (len(heads) - 1), *([f"`{line[0]}`", *line[1:]] for line in lines)]
        notes = [line.replace("*", "\\*") for line in below]
        table = ["| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |" for cells in body]
        parts.append("\n".join([*above, "", *table, *([""] if notes else []), *notes]))
    return "\n\n".join(parts)


def as_latex(rows: list[Row]) -> str:
    """Tabulars with the rules of the package booktabs."""
    parts = []
    for above, (heads, lines), below in _blocks(rows):
        body = [" & ".join(_tex(cell) for cell in cells) + r" \\" for cells in (heads, *lines)]
        rules = [r"\begin{tabular}{l" + "r" * (len(heads) - 1) + "}", r"\toprule", body[0], r"\midrule"]
        parts.append(
            "\n".join([*(f"% {line}" for line in above + below), *rules, *body[1:], r"\bottomrule", r"\end{tabular}"])
        )
    return "\n\n".join(parts)


def _tex(text: str) -> str:
    """Text as LaTeX; the metrics in mathematics.

    >>> _tex("A_T (%)"), _tex("89.51 ± 0.20"), _tex("-0.010")
    ('$A_{T}$ (\\\\%)', '$89.51 \\\\pm 0.20$', '$-0.010$')
    """
    name = text.split(" ")[0]
    if name in METRICS:
        letters, _, index = name.partition("_")
        return (f"${letters}_{{{index}}}$" if index else name) + text[len(name) :].replace("%", r"\%")
    if text[0] in "+-0123456789" and text != "-" and text[-1] != "B":
        number = text.rstrip("*").replace("±", r"\pm")
        return f"${number}$" + "*" * text.endswith("*")
    for sign in "&%$#_{}":
        text = text.replace(sign, f"\\{sign}")
    return "--" if text == "-" else text


def as_csv(rows: list[Row]) -> str:
    """One line per row, for programs: fractions, not percent; empty where there is nothing."""
    lines = []
    for row in rows:
        line: dict[str, Any] = {"benchmark": row["benchmark"], "label": row["label"], "seeds": len(row["seeds"])}
        for name in METRICS:
            sources = {"": row["metrics"], "published_": row["published"], "difference_": row.get("differences")}
            for prefix, source in sources.items():
                cell = (source or {}).get(name) or {"mean": None, "std": None}
                line |= {f"{prefix}{name}_{part}": cell[part] for part in ("mean", "std")}
        lines.append({**line, "seconds": row["seconds"]["mean"], "memory_bytes": row["memory_bytes"]})
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue().rstrip("\n")


FORMATS: dict[str, Callable[[list[Row]], str]] = {"markdown": as_markdown, "latex": as_latex, "csv": as_csv}


def check_format(name: str) -> None:
    """Refuse a format that there is not."""
    if name not in ("table", *FORMATS):
        raise ValueError(f"--format {name}: must be one of table, {', '.join(FORMATS)}")


def show(rows: list[Row], form: str) -> None:
    """Print rows in one of FORMATS, or as a table: as wide as it wants to be where no terminal limits it."""
    if form in FORMATS:
        print(FORMATS[form](rows))
        return
    from rich.console import Console

    screen = Console()
    if not screen.is_terminal and "COLUMNS" not in os.environ:
        screen = Console(width=1000)
    screen.print(*as_table(rows, screen.width), sep="\n")
