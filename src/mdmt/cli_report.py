"""`mdmt report` and `mdmt watch`: what runs found, on one page."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

NEEDS = ("jinja2", "matplotlib", "sklearn")
Runs = Annotated[str, typer.Argument(help="A folder of runs.")]

# What each figure of the paper shows, and how many seeds it takes. Figures 4 and 7 have all methods that learn task by task.
SEQUENTIAL = "van,ewc,mas,rwalk,pi,mer,gem,a-gem,er,mega,mdmt-r"
FIGURES = {
    "fig3": ("mdmt-r[class_margin=0,distance=none,task_margin=0],mdmt-r[distance=none],mdmt-r", 1, ("fig3a", "fig3b")),
    "fig4": (SEQUENTIAL, 5, ("fig4",)),
    "fig5": ("a-gem,mega,mdmt-r", 1, ("fig5",)),
    "fig6": ("a-gem,mega,mdmt-r[distance=none],mdmt-r", 1, ("fig6",)),
    "fig7": (SEQUENTIAL, 5, ("fig7",)),
}


def report(
    runs: Runs = "runs",
    out: Annotated[str, typer.Option(help="Where the page goes.")] = "report.html",
    figures: Annotated[
        str | None, typer.Option(help="Also write each figure (SVG, PNG) and table (CSV, LaTeX) into this folder.")
    ] = None,
) -> None:
    """Write one HTML page that shows what runs found: tables, every figure of the paper, drift, cost, differences."""
    folder = _folder(runs)
    from mdmt.report import files, folders, page, study
    from mdmt.state import write_file

    studies, absent = study.read(folders.find(folder))
    if not studies and not absent:
        raise ValueError(f"no runs under {runs}: `mdmt run` and `mdmt compare` leave them in --out")
    drawn = page.drawings(studies, folder / ".tsne")
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, page.render(drawn, absent, where=runs).encode())
    finished = sum(len(s.runs) for s in studies)
    print(f"{path}: {_count(finished, 'run')} in {_count(len(studies), 'study', 'studies')}")
    for one in absent:
        print(f"mdmt: not shown: {one.name}: {one.reason}", file=sys.stderr)
    if figures is not None:
        print(f"{figures}: {_count(len(files.write_all(drawn, Path(figures))), 'file')}")


def watch(
    runs: Runs = "runs",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen; 0 takes a free one.")] = 8765,
) -> None:
    """Show the report in a browser while runs are going on; it refreshes itself. Only this machine can see it."""
    folder = _folder(runs)
    from mdmt.report.watch import HOST, server

    try:
        serving = server(folder, port)
    except OSError as error:
        raise ValueError(f"port {port} cannot be used ({error.strerror}): give another --port") from None
    with serving:
        print(f"http://{HOST}:{serving.server_address[1]}/  (Ctrl-C ends it)", flush=True)
        try:
            serving.serve_forever()
        except KeyboardInterrupt:
            print(file=sys.stderr)


def figure(
    name: str,
    benchmark: str = "permuted-mnist",
    *,
    methods: str | None = None,
    seeds: int | None = None,
    seed: int = 1234,
    settings: list[str] | None = None,
    options: dict[str, Any] | None = None,
    out: str = "runs",
    to: str = "figures",
    workers: int | str = "auto",
    fresh: bool = False,
    quiet: bool = False,
) -> list[Path]:
    """Do the runs of a figure of the paper that are not there yet, and write it as SVG and PNG; the files written."""
    if name not in FIGURES:
        raise ValueError(f"{name!r} is not one of {', '.join(FIGURES)}")
    _check()
    from mdmt.cli_compare import _run_all
    from mdmt.experiments.config import parse_setting
    from mdmt.experiments.variants import configs_for, split_methods
    from mdmt.report import files, page, study
    from mdmt.report.style import styles

    usual, count, parts = FIGURES[name]
    span = range(seed, seed + (seeds or count))
    given = dict(map(parse_setting, settings or []))
    configs = configs_for(benchmark, split_methods(methods or usual), span, given, **(options or {}))
    rows, failed = _run_all(configs, out, workers, fresh, quiet)
    for one in failed:
        print(f"mdmt: failed: {one['label']}, seed {one['seed']}: {one['reason']}", file=sys.stderr)
    studies, _ = study.read(Path(folder) for row in rows if row is not None for folder in row["runs"])
    if not studies:
        raise ValueError(f"{name}: no run finished")
    (drawn,) = page.drawings(studies, Path(out, ".tsne"))
    Path(to).mkdir(parents=True, exist_ok=True)
    there = [part for part in parts if part in files.figure_names(drawn)]
    return [path for part in there for path in files.write_figure(drawn, part, styles(studies), Path(to))]


def _folder(runs: str) -> Path:
    _check()
    folder = Path(runs)
    if not folder.is_dir():
        raise ValueError(f"{runs} is not a folder of runs")
    return folder


def _check() -> None:
    if any(find_spec(name) is None for name in NEEDS):
        raise ValueError("the report needs more packages: pip install 'mdmt[report]'")


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
