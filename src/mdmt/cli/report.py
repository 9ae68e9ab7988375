"""`mdmt report`, `mdmt watch`, and the figures of `mdmt reproduce`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mdmt.cli.many_runs import run_all, tell_failures
from mdmt.cli.options import Methods, Quiet, RunOptions
from mdmt.cli.progress import tell
from mdmt.errors import Mistake
from mdmt.runs.paper import FIGURES
from mdmt.words import count

if TYPE_CHECKING:
    from mdmt.runs.folder import RunFolder

NEEDS = ("jinja2", "matplotlib", "sklearn")
Runs = Annotated[str, typer.Argument(help="A folder of runs.")]
To = Annotated[
    str,
    typer.Option(metavar="DIR", help="Folder of the figures, each in a folder of its benchmark."),
]


def report(
    runs: Runs = "runs",
    out: Annotated[str, typer.Option(metavar="FILE", help="The page to write.")] = "report.html",
    figures: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Also write each figure (SVG, PNG) and table (CSV, LaTeX) to this folder.",
        ),
    ] = None,
    benchmark: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only runs of this benchmark; may be repeated."),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(metavar="LIST", help="Only runs of these methods or labels.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="DATE", help="Only runs that finished since, as 2026-11-16 or 2026-11-16T14:00."
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Write an HTML report of runs. Tables, the paper's figures, drift, cost, differences."""
    folder = _folder(runs)
    from mdmt.report.exports import write_all
    from mdmt.report.figures import figures_of
    from mdmt.report.page import render
    from mdmt.report.study import read_studies
    from mdmt.runs.folder import find_runs
    from mdmt.system.files import write_file

    chosen = [
        run for run in find_runs(folder) if _wanted(run, benchmark, _labels(methods), _date(since))
    ]
    studies, unusable = read_studies(chosen)
    if not studies and not unusable:
        others = "" if (benchmark, methods, since) == (None, None, None) else " of those asked for"
        raise Mistake(
            f"no runs{others} under {runs}: `mdmt run` and `mdmt compare` leave them in --out"
        )
    content = []
    for number, study in enumerate(studies, 1):
        if not quiet:
            print(
                f"{study.title}: {number} of {count('study', len(studies), 'studies')}",
                file=sys.stderr,
                flush=True,
            )
        content += [
            replace(figures, number=number - 1) for figures in figures_of([study], folder / ".tsne")
        ]
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, render(content, unusable, where=runs).encode())
    finished = sum(len(study.runs) for study in studies)
    print(f"{path}: {count('run', finished)} in {count('study', len(studies), 'studies')}")
    for run in unusable:
        tell(f"not shown: {run.name}: {run.reason}")
    if figures is not None:
        print(f"{figures}: {count('file', len(write_all(content, Path(figures))))}")


def _labels(methods: str | None) -> list[str] | None:
    """A list of methods or labels, cut at the commas outside of brackets."""
    return (
        None if methods is None else [name.strip() for name in re.split(r",(?![^\[]*\])", methods)]
    )


def _date(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        raise Mistake(f"--since {text}: write it as 2026-11-16 or 2026-11-16T14:00") from None


def _wanted(
    run: RunFolder, benchmarks: list[str] | None, names: list[str] | None, since: datetime | None
) -> bool:
    """Whether a run is one of those asked for; one that cannot be read is shown with its reason
    when nothing is.
    """
    if benchmarks is None and names is None and since is None:
        return True
    try:
        config = run.config
        is_recent = since is None or run.finished_at >= since
    except (Mistake, OSError):
        return False
    is_of_benchmark = benchmarks is None or config.benchmark in benchmarks
    return (
        is_recent
        and is_of_benchmark
        and (names is None or config.method in names or config.label in names)
    )


def watch(
    runs: Runs = "runs",
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, metavar="N", help="Port to listen on; 0 takes a free one."),
    ] = 8765,
) -> None:
    """Serve the live report on localhost. It may be started before the first run."""
    folder = _folder(runs, must_exist=False)
    from mdmt.report.server import HOST, make_server

    try:
        server = make_server(folder, port)
    except OSError as error:
        raise Mistake(
            f"port {port} cannot be used ({error.strerror}): give another --port"
        ) from None
    if not folder.exists():
        tell(f"{runs} does not exist yet: the page fills when a run begins there")
    with server:
        try:
            print(f"http://{HOST}:{server.server_address[1]}/  (Ctrl-C ends it)", flush=True)
            server.serve_forever()
        except KeyboardInterrupt:
            print(file=sys.stderr)


def figure_command(name: str) -> Callable[..., None]:
    """The command that draws a figure of the paper."""

    def draw(options: RunOptions, methods: Methods = "all", to: To = "figures") -> None:
        _check()
        _pin_threads()
        from mdmt.experiments.resolve import configs_for
        from mdmt.runs.request import split_methods

        configs = configs_for(options, split_methods(methods))
        rows, failed = run_all(configs, options)
        tell_failures(failed)
        finished = [Path(run) for row in rows if row is not None for run in row.runs]
        cache = Path(options.out, ".tsne")
        for path in _write(name, finished, cache, Path(to, options.benchmark)):
            print(path)

    draw.__doc__ = (
        f"{FIGURES[name].title}. Fig. {name[3:]} as SVG and PNG; missing runs are done first."
    )
    return draw


def _write(name: str, runs: list[Path], cache: Path, place: Path) -> list[Path]:
    """The files of a figure, from the runs that it shows."""
    from mdmt.report.exports import figure_names, write_figure
    from mdmt.report.figures import figures_of
    from mdmt.report.study import read_studies
    from mdmt.report.style import styles
    from mdmt.runs.folder import RunFolder

    studies, _ = read_studies(RunFolder(run) for run in runs)
    if len(studies) != 1:
        reason = "its methods must have one kind of head" if studies else "no run finished"
        raise Mistake(f"{name}: {reason}")
    (figures,) = figures_of(studies, cache, compute=name in ("fig5", "fig6"))
    place.mkdir(parents=True, exist_ok=True)
    parts = [part for part in FIGURES[name].files if part in figure_names(figures)]
    return [path for part in parts for path in write_figure(figures, part, styles(studies), place)]


def _pin_threads() -> None:
    """One thread for the libraries that compute figures: on arrays this small, many get into each
    other's way.

    It must be said before they are loaded.
    """
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def _folder(runs: str, *, must_exist: bool = True) -> Path:
    _check()
    _pin_threads()
    folder = Path(runs)
    if not folder.is_dir() and (must_exist or folder.exists()):
        raise Mistake(f"{runs} is not a folder: give one that holds runs")
    return folder


def _check() -> None:
    if any(find_spec(name) is None for name in NEEDS):
        raise Mistake("the report needs more packages: pip install '.[report]' in mdmt's folder")
