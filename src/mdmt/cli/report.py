"""`mdmt report` and `mdmt watch`: what runs found, on one page."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from mdmt.cli import options
from mdmt.errors import Mistake
from mdmt.experiments.paper import FIGURES
from mdmt.words import count

NEEDS = ("jinja2", "matplotlib", "sklearn")
Runs = Annotated[str, typer.Argument(help="A folder of runs.")]


def report(
    runs: Runs = "runs",
    out: Annotated[str, typer.Option(help="Where the page goes.")] = "report.html",
    figures: Annotated[
        str | None, typer.Option(help="Also write each figure (SVG, PNG) and table (CSV, LaTeX) into this folder.")
    ] = None,
) -> None:
    """Write one HTML page of what runs found. Tables, every figure of the paper, drift, cost, differences."""
    folder = _folder(runs)
    from mdmt.experiments.store import find_runs
    from mdmt.files import write_file
    from mdmt.report.files import write_all
    from mdmt.report.page import figures_of, render
    from mdmt.report.study import read_studies

    studies, unusable = read_studies(find_runs(folder))
    if not studies and not unusable:
        raise Mistake(f"no runs under {runs}: `mdmt run` and `mdmt compare` leave them in --out")
    content = figures_of(studies, folder / ".tsne")
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, render(content, unusable, where=runs).encode())
    finished = sum(len(study.runs) for study in studies)
    print(f"{path}: {count('run', finished)} in {count('study', len(studies), 'studies')}")
    for run in unusable:
        print(f"mdmt: not shown: {run.name}: {run.reason}", file=sys.stderr)
    if figures is not None:
        print(f"{figures}: {count('file', len(write_all(content, Path(figures))))}")


def watch(
    runs: Runs = "runs",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen; 0 takes a free one.")] = 8765,
) -> None:
    """Show the report while runs go on. In a browser of this machine alone; it refreshes itself."""
    folder = _folder(runs)
    from mdmt.report.server import HOST, make_server

    try:
        server = make_server(folder, port)
    except OSError as error:
        raise Mistake(f"port {port} cannot be used ({error.strerror}): give another --port") from None
    with server:
        try:
            print(f"http://{HOST}:{server.server_address[1]}/  (Ctrl-C ends it)", flush=True)
            server.serve_forever()
        except KeyboardInterrupt:
            print(file=sys.stderr)


def figure(name: str) -> Callable[..., None]:
    """The command that makes a figure of the paper."""
    wanted = FIGURES[name]

    def command(
        benchmark: options.Benchmark = wanted.benchmark,
        methods: options.Methods = wanted.methods,
        seeds: options.Seeds = wanted.seeds,
        seed: options.Seed = 1234,
        tasks: options.Tasks = None,
        set_: options.Set = None,
        reading: options.Reading = None,
        data: options.Data = None,
        image_size: options.ImageSize = None,
        subset: options.Subset = None,
        weights: options.Weights = None,
        out: options.Out = "runs",
        to: Annotated[str, typer.Option(help="Where the figure goes, in a folder of the benchmark.")] = "figures",
        workers: options.Workers = "auto",
        threads: options.Threads = 1,
        checkpoint_every: options.CheckpointEvery = None,
        fresh: options.Fresh = False,
        quiet: options.Quiet = False,
    ) -> None:
        _check()
        from mdmt.checkpoints import parse_every
        from mdmt.cli.compare import parse_workers, run_all
        from mdmt.experiments.resolve import configs_for, parse_settings, split_methods

        configs = configs_for(
            benchmark, split_methods(methods), range(seed, seed + seeds), parse_settings(set_, reading),
            tasks=tasks, threads=threads, data=data, image_size=image_size, subset=subset, weights=weights,
        )  # fmt: skip
        if checkpoint_every is not None:
            parse_every(checkpoint_every)
        rows, failed = run_all(configs, out, parse_workers(workers), checkpoint_every, fresh, quiet)
        for one in failed:
            print(f"mdmt: failed: {one['label']}, seed {one['seed']}: {one['reason']}", file=sys.stderr)
        finished = [Path(run) for row in rows if row is not None for run in row.runs]
        for path in _write(name, finished, Path(out, ".tsne"), Path(to, benchmark)):
            print(path)

    command.__doc__ = f"{wanted.title}. Fig. {name[3:]} as SVG and PNG; runs that are missing are done first."
    return command


def _write(name: str, runs: list[Path], cache: Path, place: Path) -> list[Path]:
    """The files of a figure, from the runs that it shows."""
    from mdmt.experiments.store import RunFolder
    from mdmt.report.files import figure_names, write_figure
    from mdmt.report.page import figures_of
    from mdmt.report.study import read_studies
    from mdmt.report.style import styles

    studies, _ = read_studies(RunFolder(run) for run in runs)
    if len(studies) != 1:
        raise Mistake(f"{name}: " + ("its methods must have one kind of head" if studies else "no run finished"))
    (figures,) = figures_of(studies, cache, compute=name in ("fig5", "fig6"))
    place.mkdir(parents=True, exist_ok=True)
    parts = [part for part in FIGURES[name].files if part in figure_names(figures)]
    return [path for part in parts for path in write_figure(figures, part, styles(studies), place)]


def _folder(runs: str) -> Path:
    _check()
    folder = Path(runs)
    if not folder.is_dir():
        raise Mistake(f"{runs} is not a folder of runs")
    return folder


def _check() -> None:
    if any(find_spec(name) is None for name in NEEDS):
        raise Mistake("the report needs more packages: pip install 'mdmt[report]'")
