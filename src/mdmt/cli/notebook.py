"""`mdmt.compare`: the command in Python, for notebooks and programs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mdmt.cli.compare import run_comparison
from mdmt.cli.options import RunOptions
from mdmt.errors import Mistake, Stopped
from mdmt.runs.request import split_methods

if TYPE_CHECKING:
    from mdmt.methods.base import Method
    from mdmt.report.comparison import Comparison
    from mdmt.tasks import Stream

NOT_HERE = ("benchmark", "method", "set", "json", "quiet")  # given otherwise, or for terminals only
OWN_METHOD = (
    "{name} is defined in {module}, which no other process can load: write it to a file, such as"
    " mine.py, and pass 'mine.py:{name}'"
)


class CallOptions(RunOptions):
    """The options of a call in Python."""

    fresh_words = "fresh=True"


def compare(
    stream: str | Stream,
    methods: str | Sequence[str | type[Method]] = "all",
    *,
    seeds: int = 3,
    against: str | None = None,
    settings: Mapping[str, object] | None = None,
    out: str | Path = "runs",
    workers: int | Literal["auto"] = "auto",
    fresh: bool = False,
    progress: bool = True,
    **options: Any,
) -> Comparison:
    """Learn a stream by several methods with several seeds, as `mdmt compare` does.

    `stream` is the name of a benchmark (`mdmt.benchmarks.BENCHMARKS`), your own as module:name or
    file.py:name, or an `mdmt.Stream`. `methods` are names, variants such as "er[lr=0.03]", your own
    as module:Class or file.py:Class, or classes. Every run has a folder below `out`; the same call
    again reads the finished ones, unless `fresh`, and goes on with interrupted ones.

    `workers` processes do the runs. A stream in memory cannot be loaded by other processes: its
    runs are done in this one, one after the other.

    `settings` go to every method that has them: {"lr": 0.03, "epochs": 5}. `against` names the row
    that the others are compared with, paired by seed. `options` are the other options of `mdmt
    compare`, such as tasks=5, seed=1, subset=200, data="DIR", device="cuda" or preset="best".
    """
    request = CallOptions(
        seeds=_number("seeds", seeds),
        set=[f"{key}={value}" for key, value in (settings or {}).items()],
        out=str(out),
        workers=str(workers),
        fresh=fresh,
        quiet=not progress,
        **_checked(options),
    )
    names = methods if isinstance(methods, str) else ",".join(map(_method_name, methods))
    return _comparison(request, stream, split_methods(names), against)


def _comparison(
    request: CallOptions, stream: str | Stream, names: list[str], against: str | None
) -> Comparison:
    with nullcontext(stream) if isinstance(stream, str) else _named(stream) as benchmark:
        request = replace(request, benchmark=benchmark)
        in_memory = not isinstance(stream, str)
        try:
            found = run_comparison(request, names, against, in_memory=in_memory)
        except Stopped:
            again = f"without {request.fresh_words} " if request.fresh else ""
            raise Stopped(f"interrupted; the same call {again}goes on from there") from None
    # The folders stay right when the program changes its working directory.
    rows = [replace(row, runs=[str(Path(run).resolve()) for run in row.runs]) for row in found.rows]
    return replace(found, rows=rows)


def _named(stream: Any) -> AbstractContextManager[str]:
    """The name of a stream in memory, as long as it is needed."""
    from mdmt.benchmarks.own import named
    from mdmt.tasks import Stream

    if not isinstance(stream, Stream):
        raise Mistake(
            f"a {type(stream).__name__} cannot be compared on: pass the name of a benchmark, or"
            " mdmt.Stream(name, tasks)"
        )
    return named(stream)


def _method_name(method: str | type[Method]) -> str:
    """The name under which a worker process finds a method."""
    from mdmt.methods import METHODS

    if isinstance(method, str):
        return method
    if not isinstance(method, type):
        raise Mistake(
            f"{method!r} is not a method: pass its name or class, with settings as in 'er[lr=0.1]'"
        )
    ours = {kind: name for name, kind in METHODS.items()}
    if method in ours:
        return ours[method]
    module = sys.modules.get(method.__module__)
    if method.__module__ == "__main__" or not getattr(module, "__file__", None):
        raise Mistake(OWN_METHOD.format(name=method.__qualname__, module=method.__module__))
    return f"{method.__module__}:{method.__qualname__}"


def _number(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Mistake(f"{name}={value!r}: must be a whole number from 1")
    return value


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    known = [one.name for one in fields(RunOptions) if one.name not in NOT_HERE]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise Mistake(f"compare takes no {unknown[0]}; its other options are {', '.join(known)}")
    return options
