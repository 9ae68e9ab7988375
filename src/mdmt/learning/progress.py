"""A bar on stderr while one task is learned; where stderr is no terminal, a line at its begin and
its end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def step_bar(name: str, steps: int) -> Iterator[Callable[[int], None]]:
    """Gives a function to call with the number of steps that are over."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:
        print(f"{name}: {steps:,} steps", file=sys.stderr, flush=True)
        yield lambda done: None
        print(f"{name}: learned", file=sys.stderr, flush=True)
        return
    parts: tuple[Any, ...] = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
    )
    with Progress(*parts, TimeRemainingColumn(), console=console) as bar:
        row = bar.add_task(name, total=steps)
        yield lambda done: bar.update(row, completed=done)
