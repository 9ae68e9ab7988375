"""Grids of text as tables on the terminal, as markdown, as LaTeX and as CSV."""

from __future__ import annotations

import csv
import io
import os
from typing import TYPE_CHECKING, Any

import mdmt.metrics as metrics
from mdmt.errors import Mistake
from mdmt.experiments.comparison import Spread, interval
from mdmt.metrics import Metric

if TYPE_CHECKING:
    from rich.console import Console

Grid = tuple[list[str], list[list[str]]]  # the heads of the columns; the rows
Block = tuple[list[str], Grid, list[str]]  # a grid with the lines above and below it
FORMATS = ("table", "markdown", "latex", "csv")


def check_format(name: str) -> None:
    """Refuse a format that there is not."""
    if name not in FORMATS:
        raise Mistake(f"--format {name}: must be one of {', '.join(FORMATS)}")


def show(blocks: list[Block], lines: list[dict[str, Any]], form: str) -> None:
    """Print blocks in one of FORMATS; as CSV, `lines` instead, for programs."""
    if form == "table":
        _print_table(blocks)
    else:
        print(as_csv(lines) if form == "csv" else {"markdown": as_markdown, "latex": as_latex}[form](blocks))


def _print_table(blocks: list[Block]) -> None:
    wide = screen()
    wide.print(*as_table(blocks, wide.width), sep="\n")


def screen() -> Console:
    """Where tables are printed: as wide as they want to be where no terminal limits it."""
    from rich.console import Console

    plain = Console()
    return plain if plain.is_terminal or "COLUMNS" in os.environ else Console(width=1000)


def format_metric(metric: Metric, cell: Spread | None, *, signed: bool = False) -> str:
    """A metric in a table: its mean, and the spread when there are several runs or it is published.

    >>> a_t, f_t, _, ltr = metrics.METRICS
    >>> format_metric(a_t, {"mean": 0.8951, "std": 0.002, "runs": [0.8931, 0.8971]})
    '89.51 ± 0.20'
    >>> format_metric(f_t, {"mean": 0.0125, "std": 0.0, "runs": [0.0125]}, signed=True)
    '+0.013'
    >>> format_metric(ltr, {"mean": 3.0775, "std": 0.1986, "source": "notebook"})
    '3.078 ± 0.199*'
    """
    if cell is None:
        return "-"
    mean = metric.text(cell["mean"], signed=signed)
    mark = "*" if cell.get("source") == "notebook" else ""
    if cell["std"] is None or len(cell.get("runs", "many")) == 1:
        return mean + mark
    return f"{mean} ± {metric.text(cell['std'])}{mark}"


def format_difference(metric: Metric, cell: Spread | None) -> str:
    """A difference with the interval of its mean, where there are several pairs.

    >>> format_difference(metrics.METRICS[0], {"mean": 0.0125, "std": 0.0025, "runs": [0.01, 0.015]})
    '+1.25 [-1.93, +4.43]'
    """
    if cell is None:
        return "-"
    mean = metric.text(cell["mean"], signed=True)
    ends = interval(cell["runs"])
    if ends is None:
        return mean
    low, high = (metric.text(end, signed=True) for end in ends)
    return f"{mean} [{low}, {high}]"


def as_table(blocks: list[Block], width: int) -> list[Any]:
    """What rich prints, on a screen so wide."""
    from rich.text import Text

    parts: list[Any] = []
    for above, grid, below in blocks:
        parts += [Text()] if parts else []
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


def as_markdown(blocks: list[Block]) -> str:
    """Tables of GitHub's markdown."""
    parts = []
    for above, (heads, lines), below in blocks:
        body = [heads, ["---"] + ["---:"] * (len(heads) - 1), *([f"`{line[0]}`", *line[1:]] for line in lines)]
        notes = [line.replace("*", "\\*") for line in below]
        table = ["| " + " | ".join(c.replace("|", "\\|").replace("*", "\\*") for c in cells) + " |" for cells in body]
        parts.append("\n".join([*above, "", *table, *([""] if notes else []), *notes]))
    return "\n\n".join(parts)


def as_latex(blocks: list[Block]) -> str:
    """Tabulars with the rules of the package booktabs."""
    parts = []
    for above, (heads, lines), below in blocks:
        body = [" & ".join(_tex(cell) for cell in cells) + r" \\" for cells in (heads, *lines)]
        rules = [r"\begin{tabular}{l" + "r" * (len(heads) - 1) + "}", r"\toprule", body[0], r"\midrule"]
        parts.append(
            "\n".join([*(f"% {line}" for line in above + below), *rules, *body[1:], r"\bottomrule", r"\end{tabular}"])
        )
    return "\n\n".join(parts)


def _tex(text: str) -> str:
    """Text as LaTeX; metrics, numbers and products in mathematics.

    >>> _tex("A_T (%)"), _tex("89.51 ± 0.20"), _tex("-0.010"), _tex("P+B*H")
    ('$A_{T}$ (\\\\%)', '$89.51 \\\\pm 0.20$', '$-0.010$', '$P+B*H$')
    """
    name = text.split(" ")[0]
    if name in (metric.name for metric in metrics.METRICS):
        letters, _, index = name.partition("_")
        return (f"${letters}_{{{index}}}$" if index else name) + text[len(name) :].replace("%", r"\%")
    if "*" in text[:-1]:
        return f"${text}$"
    if text[0] in "+-0123456789" and text != "-" and text[-1] != "B":
        number = text.rstrip("*").replace("±", r"\pm")
        return f"${number}$" + "*" * text.endswith("*")
    for sign in "&%$#_{}":
        text = text.replace(sign, f"\\{sign}")
    return "--" if text == "-" else text


def as_csv(lines: list[dict[str, Any]]) -> str:
    """One line per row; empty where there is nothing."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue().rstrip("\n")
