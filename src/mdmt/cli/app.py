"""The command line. What a command needs is imported inside it, so that `mdmt --help` answers at once."""

from __future__ import annotations

from json import dumps
from typing import TYPE_CHECKING, Any

import typer

from mdmt.cli import catalog, compare, cost, data, doctor, options, report, reproduce, runs, tune
from mdmt.cli.process import exit_code, in_child
from mdmt.cli.progress import Progress, tell
from mdmt.errors import Mistake, go_on
from mdmt.words import count

if TYPE_CHECKING:
    from mdmt.experiments.comparison import Row
    from mdmt.experiments.config import RunConfig

app = typer.Typer(
    help="Lifelong learning: one network learns task after task without forgetting the earlier ones.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.command()
def run(
    benchmark: options.Benchmark = "permuted-digits",
    method: options.Method = "mdmt-r",
    seed: options.Seed = 1234,
    seeds: options.Seeds = 1,
    tasks: options.Tasks = None,
    set_: options.Set = None,
    reading: options.Reading = None,
    data: options.Data = None,
    image_size: options.ImageSize = None,
    subset: options.Subset = None,
    weights: options.Weights = None,
    out: options.Out = "runs",
    workers: options.Workers = "auto",
    threads: options.Threads = 1,
    checkpoint_every: options.CheckpointEvery = None,
    log: options.Log = None,
    fresh: options.Fresh = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Learn a stream of tasks and print A_T, F_T, LCA_10 and LTR."""

    def work() -> None:
        from mdmt.experiments import comparison, tensorboard
        from mdmt.experiments.config import folder_of
        from mdmt.experiments.resolve import parse_setting, resolve

        settings = dict(parse_setting(text) for text in set_ or [])
        configs = [
            resolve(
                benchmark, method, seed=seed + i, tasks=tasks, settings=settings, reading=reading, threads=threads, data=data,
                image_size=image_size, subset=subset, weights=weights,
            )
            for i in range(seeds)
        ]  # fmt: skip
        if log not in (None, "tensorboard"):
            raise Mistake(f"--log {log}: must be tensorboard; steps.csv and record.json are always written")
        if log:
            tensorboard.writer()  # refused before the run, not after
        processes = compare.parse_workers(workers)
        if seeds > 1:
            _, failed = compare.run_all([configs], out, processes, checkpoint_every, fresh, quiet or json)
            if failed:
                raise Mistake(f"seed {failed[0]['seed']}: {failed[0]['reason']}")
        records = [
            _learn(config, out, fresh and seeds == 1, checkpoint_every, log is not None, quiet or json)
            for config in configs
        ]
        row = comparison.row_of(configs, records, [str(folder_of(c, out)) for c in configs])
        if json:
            print(dumps(row.to_json(cost=False)))
        else:
            _print_table(row, records)

    in_child(work, f"; {go_on(fresh)} goes on from the last checkpoint")


def _learn(config: RunConfig, out: str, fresh: bool, every: str | None, log: bool, quiet: bool) -> dict[str, Any]:
    """Do a run in this process, with its progress on stderr, and with event files when asked for."""
    from mdmt.experiments import tensorboard
    from mdmt.experiments.config import folder_of
    from mdmt.experiments.run import run as run_one
    from mdmt.experiments.store import RunFolder

    folder = folder_of(config, out)
    with Progress(f"{config.label}, seed {config.seed}", quiet) as progress:
        record = run_one(
            config, out, fresh=fresh, every=every, on_step=tensorboard.also(folder, progress.step) if log else progress.step,
            on_image=progress.image, tell=tell,
        )  # fmt: skip
    if log:
        tensorboard.write_events(folder, record["accuracy"], RunFolder(folder).steps)
    return record


app.command()(compare.compare)
app.command()(compare.ablate)
app.command()(cost.cost)
app.command()(tune.tune)
app.command()(report.report)
app.command()(report.watch)

app.add_typer(catalog.app, name="list")
app.add_typer(data.app, name="data")
app.add_typer(runs.app, name="runs")
app.command()(runs.rerun)
app.command()(doctor.doctor)
app.add_typer(reproduce.app, name="reproduce")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; a person's mistake is one line on stderr and exit code 2."""
    return exit_code(lambda: app(args=arguments, prog_name="mdmt", standalone_mode=False))


def _print_table(row: Row, records: list[dict[str, Any]]) -> None:
    from rich.console import Console

    from mdmt.report.tables import metrics_table

    tasks, seeds = len(records[0]["tasks"]), row.seeds
    title = f"{row.label} on {row.benchmark}, {count('task', tasks)}, " + (
        f"seed {seeds[0]}" if len(seeds) == 1 else f"{count('seed', len(seeds))} from {seeds[0]}"
    )
    console = Console()
    console.print(title, style="bold", markup=False, highlight=False, soft_wrap=True)
    if row.reduced:
        less = ", ".join(f"{key} {value}" for key, value in row.reduced.items())
        console.print(f"reduced, not the published protocol: {less}", markup=False, highlight=False, soft_wrap=True)
    console.print(metrics_table(row.metrics))
    for folder in row.runs:
        console.print(folder, style="dim", markup=False, highlight=False, soft_wrap=True)
