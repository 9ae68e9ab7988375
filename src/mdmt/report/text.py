"""Text tables: on the terminal, as markdown, as HTML, as LaTeX and as CSV."""

from __future__ import annotations

import csv
import io
import os
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import mdmt.metrics as metrics
from mdmt.errors import Mistake
from mdmt.metrics import Metric
from mdmt.runs.rows import Spread
from mdmt.words import fold

if TYPE_CHECKING:
    from rich.console import Console

NOTE_MARK = "†"
MARKS = "*" + NOTE_MARK  # may follow a number
BOLD = "bold: the best, and all that no 95 % interval over several seeds shows to be worse"
INTERVALS = (
    "brackets: 95 % interval of a difference paired by seed, where the variance of each row is"
    " shrunk towards what is typical of all rows"
)
FORMATS = ("table", "markdown", "latex", "csv")


class Strong(str):
    """The text of a bold cell: the best, or not shown to be worse."""


class Grid(NamedTuple):
    """A table of text; its first column names the rows."""

    columns: list[str]
    rows: list[list[str]]


class TableBlock(NamedTuple):
    """A table with the lines above and below it."""

    above: list[str]
    grid: Grid
    below: list[str]


def check_format(name: str) -> None:
    if name not in FORMATS:
        raise Mistake(f"--format {name}: must be one of {', '.join(FORMATS)}")


def print_blocks(blocks: list[TableBlock], records: list[dict[str, object]], format_: str) -> None:
    """Print blocks in one of FORMATS; CSV prints the records, since it is for programs."""
    if format_ == "csv":
        print(as_csv(records))
    elif format_ == "markdown":
        print(as_markdown(blocks))
    elif format_ == "latex":
        print(as_latex(blocks))
    else:
        console = screen()
        if console.color_system is None:  # the screen shows no bold text
            blocks = without_bold(blocks)
        console.print(*as_table(blocks, console.width), sep="\n")


def without_bold(blocks: list[TableBlock]) -> list[TableBlock]:
    """The blocks without the line that explains bold cells, for a screen that shows none."""
    return [
        block._replace(below=[line for line in block.below if line != BOLD]) for block in blocks
    ]


def screen() -> Console:
    """The console for tables; without a terminal its width is not limited."""
    from rich.console import Console

    console = Console()
    if console.is_terminal or "COLUMNS" in os.environ:
        return console
    return Console(width=1000)


def format_metric(
    metric: Metric, cell: Spread | None, *, signed: bool = False, mark: str = ""
) -> str:
    """A metric in a table: its mean, and its spread over several runs or as published.

    A `mark` after it refers to a footnote.

    >>> a_t, f_t, _, ltr, _ = metrics.METRICS
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
    mark = ("*" if cell.get("source") == "notebook" else "") + mark
    if cell["std"] is None or len(cell.get("runs", "many")) == 1:
        return mean + mark
    return f"{mean} ± {metric.text(cell['std'])}{mark}"


def format_difference(metric: Metric, cell: Spread | None) -> str:
    """A difference and the 95 % interval of its mean, if it has one.

    >>> spread = {"mean": 0.0125, "std": 0.0025, "interval": (-0.019, 0.044)}
    >>> format_difference(metrics.METRICS[0], spread)
    '+1.25 [-1.90, +4.40]'
    """
    if cell is None:
        return "-"
    mean = metric.text(cell["mean"], signed=True)
    ends = cell.get("interval")
    if ends is None:
        return mean
    low, high = (metric.text(end, signed=True) for end in ends)
    return f"{mean} [{low}, {high}]"


def plain_text(parts: list[Any], width: int) -> str:
    """What rich prints, without colours and other codes."""
    from rich.console import Console

    text = io.StringIO()
    console = Console(file=text, width=width, color_system=None, force_jupyter=False)
    console.print(*parts, sep="\n", markup=False, highlight=False)
    return "\n".join(line.rstrip() for line in text.getvalue().rstrip().splitlines())


def as_table(blocks: list[TableBlock], width: int) -> list[Any]:
    """The blocks as rich prints them on a screen of this width."""
    from rich.text import Text

    parts: list[Any] = []
    for above, grid, below in blocks:
        if parts:
            parts.append(Text())
        parts += [Text(line, style="" if number else "bold") for number, line in enumerate(above)]
        parts += [rich_table(grid, width), *map(Text, below)]
    return parts


def rich_table(grid: Grid, width: int) -> Any:
    """A grid for rich that never breaks a word or a number.

    On a narrow screen spreads and intervals move below their means, labels are folded, and the
    remaining columns continue in a table below.
    """
    from rich.console import Group

    columns = grid.columns
    rows = grid.rows
    gap = 2
    if sum(_widths(columns, rows)) + gap * len(columns) > width:
        gap = 1
        rows = [[label, *map(_stacked, cells)] for label, *cells in rows]
    widths = [space + gap for space in _widths(columns, rows)]
    names = [columns[0], *(row[0] for row in rows)]
    shortest = max(max(map(len, fold(name, 1))) for name in names) + gap
    tables = []
    start = 1
    while start < len(columns):
        end = start + 1
        while end < len(columns) and shortest + sum(widths[start : end + 1]) <= width:
            end += 1
        room = width - sum(widths[start:end]) - gap
        labels = ["\n".join(fold(row[0], max(room, shortest - gap))) for row in rows]
        part = [[label, *row[start:end]] for label, row in zip(labels, rows, strict=True)]
        tables.append(_rich_part([columns[0], *columns[start:end]], part, gap))
        start = end
    return tables[0] if len(tables) == 1 else Group(*tables)


def _rich_part(columns: list[str], rows: list[list[str]], gap: int) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", padding=(0, gap, 0, 0), pad_edge=False)
    table.add_column(columns[0], overflow="fold")
    for name in columns[1:]:
        table.add_column(name, justify="right", overflow="fold")
    for row in rows:
        # As Text, because rich reads the brackets of a label as markup.
        table.add_row(
            *(Text(cell, style="bold" if isinstance(cell, Strong) else "") for cell in row)
        )
    return table


def _widths(columns: list[str], rows: list[list[str]]) -> list[int]:
    """The width of each column: that of the longest line of any of its cells."""
    return [
        max(map(len, "\n".join(cells).split("\n"))) for cells in zip(columns, *rows, strict=True)
    ]


def _stacked(cell: str) -> str:
    """The cell with its spread or interval on a second line."""
    return type(cell)(cell.replace(" ±", "\n±").replace(" [", "\n["))


def as_markdown(blocks: list[TableBlock]) -> str:
    """The blocks as tables of GitHub's markdown."""
    return "\n\n".join(map(_markdown, blocks))


def _markdown(block: TableBlock) -> str:
    columns = block.grid.columns
    rule = ["---"] + ["---:"] * (len(columns) - 1)
    rows = [[f"`{label}`", *cells] for label, *cells in block.grid.rows]
    table = [
        "| " + " | ".join(map(_markdown_cell, cells)) + " |" for cells in (columns, rule, *rows)
    ]
    notes = [line.replace("*", "\\*") for line in block.below]
    return "\n".join([*block.above, "", *table, *([""] if notes else []), *notes])


def _markdown_cell(cell: str) -> str:
    text = cell.replace("|", "\\|").replace("*", "\\*")
    return f"**{text}**" if isinstance(cell, Strong) else text


def as_html(blocks: list[TableBlock]) -> str:
    """The blocks as tables of HTML, for notebooks."""
    return "\n".join(map(_html, blocks))


def _html(block: TableBlock) -> str:
    parts = [f"<div>{escape(line)}</div>" for line in block.above]
    header, *body = (map(_html_cell, cells) for cells in (block.grid.columns, *block.grid.rows))
    lines = ["<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>" for cells in body]
    names = "".join(f"<th>{cell}</th>" for cell in header)
    parts.append(f"<table><thead><tr>{names}</tr></thead><tbody>{''.join(lines)}</tbody></table>")
    parts += [f"<div><small>{escape(line)}</small></div>" for line in block.below]
    return "\n".join(parts)


def _html_cell(cell: str) -> str:
    return f"<b>{escape(cell)}</b>" if isinstance(cell, Strong) else escape(cell)


def as_latex(blocks: list[TableBlock]) -> str:
    """The blocks as LaTeX tabulars with the rules of the package booktabs."""
    return "\n\n".join(map(_latex, blocks))


def _latex(block: TableBlock) -> str:
    columns = block.grid.columns
    header, *body = (" & ".join(map(_tex, cells)) + r" \\" for cells in (columns, *block.grid.rows))
    lines = [f"% {line}" for line in block.above]
    lines += [
        r"\begin{tabular}{l" + "r" * (len(columns) - 1) + "}",
        r"\toprule",
        header,
        r"\midrule",
    ]
    notes = [rf"\par{{\footnotesize {_tex_text(line)}\par}}" for line in block.below]
    return "\n".join([*lines, *body, r"\bottomrule", r"\end{tabular}", *notes])


def _tex(text: str) -> str:
    """Text as LaTeX, with metrics, numbers and products in math mode.

    >>> _tex("A_T (%)"), _tex("89.51 ± 0.20"), _tex("-0.010"), _tex("P+B*H")
    ('$A_{T}$ (\\\\%)', '$89.51 \\\\pm 0.20$', '$-0.010$', '$P+B*H$')
    """
    name = text.split(" ")[0]
    if name in (metric.name for metric in metrics.METRICS):
        letters, _, index = name.partition("_")
        if len(index) > 1 and index.isalpha():  # a word is upright
            index = rf"\mathrm{{{index}}}"
        symbol = f"${letters}_{{{index}}}$" if index else name
        return symbol + text[len(name) :].replace("%", r"\%")
    number = text.rstrip(MARKS)
    if "*" in number:
        return f"${text}$"
    if text[0] in "+-0123456789" and text != "-" and text[-1] != "B":
        symbols = number.replace("±", r"\pm")
        if isinstance(text, Strong):
            symbols = rf"\mathbf{{{symbols}}}"
        return f"${symbols}$" + _tex_text(text[len(number) :])
    return "--" if text == "-" else _tex_text(text)


def _tex_text(text: str) -> str:
    """Plain text as LaTeX, with special characters escaped.

    >>> print(_tex_text("† ewc: 50 % of A_T"))
    \\dag{} ewc: 50 \\% of A\\_T
    """
    for sign in "&%$#_{}":
        text = text.replace(sign, f"\\{sign}")
    return text.replace(NOTE_MARK, r"\dag{}")


def as_csv(records: list[dict[str, object]]) -> str:
    """One line per record; None is left empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue().rstrip("\n")
