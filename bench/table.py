"""The results as Markdown tables, written between two marks of docs/performance.md."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- make bench -->", "<!-- end -->"
TITLES = {
    "steps": "A step on the MLP (784-256-256-10)",
    "resnet": "A step on the reduced ResNet-18",
    "evaluation": "Evaluation",
    "checkpoint": "Checkpoints",
    "startup": "Start-up",
    "growth": "Growth",
    "scale": "Many runs",
    "ranks": "A step on the reduced ResNet-18 by two ranks",
    "answers": "Answers of a model folder",
    "start": "Start of `mdmt predict`",
    "serving": "`mdmt serve`, 16 clients",
}


def table(rows: list[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(chain.from_iterable(rows)))
    lines = [
        "| " + " | ".join("" if c == "row" else c for c in columns) + " |",
        "|---" + "|---:" * (len(columns) - 1) + "|",
    ]
    lines += ["| " + " | ".join(cell(row.get(c)) for c in columns) + " |" for row in rows]
    return "\n".join(lines)


def cell(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def write(results: dict[str, Any], page: Path) -> None:
    parts = [
        f"**{title}**\n\n{table(results[name])}"
        for name, title in TITLES.items()
        if name in results
    ]
    machine = results["machine"]
    parts.append(
        f"{machine['processor']}, one thread, torch {machine['torch']}, Python {machine['python']}."
    )
    if not page.exists():
        return
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n" + "\n\n".join(parts) + f"\n\n{END}{after}")
