"""`mdmt report`, `mdmt watch`, and the figures of `mdmt reproduce`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mdmt.cli.many_runs import run_all_with_progress, tell_failures
from mdmt.cli.options import Methods, Quiet, RunOptions
from mdmt.cli.progress import tell
from mdmt.errors import Mistake
from mdmt.runs.paper import FIGURES
from mdmt.runs.request import split_at_commas
from mdmt.system.packages import missing
from mdmt.words import count

if TYPE_CHECKING:
    from mdmt.report.figures import Figures
    from mdmt.report.study import Study
    from mdmt.runs.folder import RunFolder

NEEDS = ("jinja2", "matplotlib", "sklearn")
Runs = Annotated[str, typer.Argument(help="A folder of runs.")]
To = Annotated[
    str,
    typer.Option(metavar="DIR", help="Folder of the figures, each in a folder of its benchmark."),
]
Page = Annotated[str, typer.Option(metavar="FILE", help="The page to write.")]
FiguresFolder = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        help="Also write each figure (SVG, PNG) and table (CSV, LaTeX) to this folder.",
    ),
]
Benchmarks = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Only runs of this benchmark; may be repeated."),
]
MethodsOrLabels = Annotated[
    str | None, typer.Option(metavar="LIST", help="Only runs of these methods or labels.")
]
Since = Annotated[
    str | None,
    typer.Option(
        metavar="DATE", help="Only runs that finished since, as 2026-11-16 or 2026-11-16T14:00."
    ),
]


def report(
    runs: Runs = "runs",
    out: Page = "report.html",
    figures: FiguresFolder = None,
    benchmark: Benchmarks = None,
    methods: MethodsOrLabels = None,
    since: Since = None,
    quiet: Quiet = False,
) -> None:
    """Write an HTML report of runs. Tables, the paper's figures, drift, cost, differences."""
    folder = _folder(runs)
    from mdmt.report.page import render
    from mdmt.report.study import read_studies
    from mdmt.runs.folder import find_runs
    from mdmt.system.files import write_file

    wanted = Filter.of(benchmark, methods, since)
    studies, unusable = read_studies([run for run in find_runs(folder) if wanted.accepts(run)])
    if not studies and not unusable:
        which = "" if wanted == Filter() else " of those asked for"
        raise Mistake(
            f"no runs{which} under {runs}: `mdmt run` and `mdmt compare` leave them in --out"
        )
    content = _figures(studies, folder / ".tsne", quiet)
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, render(content, unusable, where=runs).encode())
    finished = sum(len(study.runs) for study in studies)
    print(f"{path}: {count('run', finished)} in {count('study', len(studies), 'studies')}")
    for run in unusable:
        tell(f"not shown: {run.name}: {run.reason}")
    if figures is not None:
        from mdmt.report.exports import write_all  # loads matplotlib, which takes half a second

        print(f"{figures}: {count('file', len(write_all(content, Path(figures))))}")


def _figures(studies: list[Study], cache: Path, quiet: bool) -> list[Figures]:
    """The figures of each study, which are computed unless the cache has them."""
    from mdmt.report.figures import figures_of

    content: list[Figures] = []
    for number, study in enumerate(studies, 1):
        if not quiet:
            total = count("study", len(studies), "studies")
            print(f"{study.title}: {number} of {total}", file=sys.stderr, flush=True)
        (figures,) = figures_of([study], cache)
        content.append(replace(figures, number=number - 1))
    return content


@dataclass(frozen=True)
class Filter:
    """The runs that a report is about; None is no restriction."""

    benchmarks: list[str] | None = None
    names: list[str] | None = None  # methods or labels
    since: datetime | None = None

    @classmethod
    def of(cls, benchmarks: list[str] | None, names: str | None, since: str | None) -> Filter:
        """The filter that --benchmark, --methods and --since describe."""
        try:
            date = None if since is None else datetime.fromisoformat(since)
        except ValueError:
            raise Mistake(f"--since {since}: write it as 2026-11-16 or 2026-11-16T14:00") from None
        return cls(benchmarks, None if names is None else split_at_commas(names), date)

    def accepts(self, run: RunFolder) -> bool:
        """Whether a run is shown; one that cannot be read is shown only without restrictions."""
        if self == Filter():
            return True
        try:
            config = run.config
            is_recent = self.since is None or run.finished_at >= self.since
        except (Mistake, OSError):
            return False
        if self.benchmarks is not None and config.benchmark not in self.benchmarks:
            return False
        return is_recent and (
            self.names is None or bool({config.method, config.label} & {*self.names})
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
    """A command that draws one figure of the paper."""

    def draw(options: RunOptions, methods: Methods = "all", to: To = "figures") -> None:
        _check()
        _pin_threads()
        from mdmt.experiments.resolve import configs_for
        from mdmt.runs.request import split_methods

        configs = configs_for(options, split_methods(methods))
        rows, failed = run_all_with_progress(configs, options)
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
    """Write the files of a figure of these runs."""
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
    """Give the libraries that compute figures one thread: more slow each other down.

    They read these variables when they are loaded.
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
    for name in NEEDS:
        if find_spec(name) is None:
            raise missing("the report", name, "report")
