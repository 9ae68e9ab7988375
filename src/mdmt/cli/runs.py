"""`mdmt runs`: list, show and remove runs; `mdmt rerun`."""

from __future__ import annotations

from json import dumps
from typing import Annotated

import typer

from mdmt.cli.options import Data, Json, Out, Quiet, RunArgument, Weights, Yes, may_remove
from mdmt.cli.process import in_child
from mdmt.cli.progress import RunBar, tell
from mdmt.errors import Mistake

app = typer.Typer(help="List, show and remove runs.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_(
    out: Annotated[str, typer.Argument(help="The folder to search.")] = "runs",
    json: Json = False,
) -> None:
    """List the runs in a folder. State, A_T, seconds, size, tasks and date."""
    from pathlib import Path

    from mdmt.report.run_tables import describe, distinctions, list_runs
    from mdmt.runs.folder import find_runs

    if not Path(out).is_dir():
        raise Mistake(f"{out} is not a folder: runs are where --out put them, by default in runs")
    folders = find_runs(out)
    words = distinctions(folders)
    runs = [describe(folder, words.get(folder.path, "")) for folder in folders]
    runs.sort(
        key=lambda run: (
            run["benchmark"] is None,
            str(run["benchmark"]),
            str(run["label"]),
            run["path"],
        )
    )
    if json:
        print(dumps({"runs": runs}))
        return
    if not runs:
        print(f"no runs in {out}")
        return
    list_runs(runs, out)


@app.command()
def show(
    run: RunArgument,
    out: Out = "runs",
    json: Json = False,
    csv: Annotated[
        bool,
        typer.Option(
            "--csv", help="Print the step log: task, step, loss, gradient, seconds, gradient norm."
        ),
    ] = False,
) -> None:
    """Show a run. Metrics, accuracies, drift, cost, versions and settings."""
    from mdmt.report.run_tables import describe, show_run
    from mdmt.runs.folder import find_run

    folder = find_run(run, out)
    about = describe(folder)
    if about["benchmark"] is None or about["state"] in ("damaged", "foreign"):
        raise Mistake(f"{folder} cannot be shown: {about['state']}: {about['reason']}")
    if csv:
        print(folder.steps.to_csv(), end="")
        return
    config, record = folder.config, folder.record_so_far
    if json:
        content = None if record is None else record.to_json()
        print(dumps({"path": str(folder.path), "config": config.to_json(), "record": content}))
        return
    show_run(about, config, record)
    for line in folder.traceback:
        print(line)


@app.command()
def remove(
    runs: Annotated[
        list[str],
        typer.Argument(help="Runs: their folders, or whole parts of their paths, as in hash/seed."),
    ],
    out: Out = "runs",
    yes: Yes = False,
) -> None:
    """Remove runs. A run that a process is working on is refused; files of others stay."""
    from mdmt.report.run_tables import describe
    from mdmt.runs.folder import find_run

    folders = {folder.path: folder for folder in (find_run(run, out) for run in runs)}
    for folder in folders.values():
        folder.check_removable()
    for folder in folders.values():
        about = describe(folder)
        if may_remove(str(folder), f"{about['state']}, {about['label']}", yes):
            folder.remove()
            stays = "; files that mdmt did not write are still there"
            print(f"removed {folder}{stays if folder.path.exists() else ''}")


def rerun(
    run: RunArgument,
    out: Out = "runs",
    data: Data = None,
    weights: Weights = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Import the code outside mdmt that the run names.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Repeat a run and check that it is bit-identical. It works in a temporary folder."""
    in_child(lambda: _rerun(run, out, data, weights, trust, json, quiet))


def _rerun(
    run: str, out: str, data: str | None, weights: str | None, trust: bool, json: bool, quiet: bool
) -> None:
    from mdmt.experiments.rerun import rerun as run_again
    from mdmt.runs.folder import find_run

    folder = find_run(run, out)
    with RunBar(f"again: {folder}", quiet or json) as progress:
        answer = run_again(
            folder,
            data=data,
            weights=weights,
            trust=trust,
            on_step=progress.step,
            on_image=progress.image,
            warn=tell,
        )
    if json:
        print(dumps(answer.to_json()))
    else:
        print(answer.answer)
        for name, (then, now) in answer.versions.items():
            print(f"{name} was {then}, is {now}: bits may differ between versions")
    if not answer.same:
        raise typer.Exit(1)
