"""The command line. What a command needs is imported inside it, so that `mdmt --help` answers at once."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mdmt import cli_compare, cli_cost, cli_data, cli_reproduce
from mdmt import cli_options as given
from mdmt.mistakes import FORESEEN, one_line

if TYPE_CHECKING:
    from rich.console import Console

    from mdmt.learner import Learner

app = typer.Typer(
    help="Lifelong learning: one network learns task after task without forgetting the earlier ones.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.command()
def run(
    benchmark: given.Benchmark = "permuted-digits",
    method: given.Method = "mdmt-r",
    seed: given.Seed = 1234,
    seeds: given.Seeds = 1,
    tasks: given.Tasks = None,
    set_: given.Set = None,
    reading: given.Reading = None,
    data: given.Data = None,
    image_size: given.ImageSize = None,
    subset: given.Subset = None,
    weights: given.Weights = None,
    out: given.Out = "runs",
    threads: given.Threads = 1,
    checkpoint_every: given.CheckpointEvery = None,
    fresh: given.Fresh = False,
    json: given.Json = False,
    quiet: given.Quiet = False,
) -> None:
    """Learn a stream of tasks and print A_T, F_T, LCA_10 and LTR."""
    from mdmt.experiments import tables
    from mdmt.experiments.config import parse_setting, resolve
    from mdmt.experiments.run import folder_of
    from mdmt.experiments.run import run as run_one

    settings = dict(parse_setting(text) for text in set_ or [])
    configs = [
        resolve(
            benchmark,
            method,
            seed=seed + i,
            tasks=tasks,
            settings=settings,
            reading=reading,
            threads=threads,
            data=data,
            image_size=image_size,
            subset=subset,
            weights=weights,
        )
        for i in range(seeds)
    ]
    records = []
    for config in configs:
        with _Progress(f"{config['label']}, seed {config['seed']}", quiet or json) as progress:
            record = run_one(
                config, out, fresh=fresh, every=checkpoint_every,
                on_step=progress.step, on_image=progress.image, tell=_tell,
            )  # fmt: skip
            records.append(record)
    result = tables.result(configs, records, [str(folder_of(c, out)) for c in configs])
    if json:
        _print_json(result)
    else:
        _print_table(result, records)


app.command()(cli_compare.compare)
app.command()(cli_compare.ablate)
app.command()(cli_cost.cost)

listing = typer.Typer(help="List what there is.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(listing, name="list")
app.add_typer(cli_data.app, name="data")
app.add_typer(cli_reproduce.app, name="reproduce")


@listing.command("methods")
def list_methods(json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """The methods, with their settings and defaults."""
    from mdmt.methods import METHODS

    rows = {
        name: {"kind": m.kind, "paper": m.source, "settings": m().arguments, "summary": _first_line(m)}
        for name, m in METHODS.items()
    }
    if not json:
        for row in rows.values():
            del row["summary"]  # a narrow terminal has no room for it
    _print_rows(rows, json)


@listing.command("benchmarks")
def list_benchmarks(json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """The benchmarks."""
    from mdmt.benchmarks import BENCHMARKS

    rows = {
        b.name: {"summary": b.summary, "tasks": b.tasks, "heads": " or ".join(b.heads)} for b in BENCHMARKS.values()
    }
    _print_rows(rows, json)


@listing.command("presets")
def list_presets(json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """The hyper-parameters a run uses unless told otherwise, with their sources."""
    from mdmt.experiments.presets import COLUMNS, cells
    from mdmt.methods import METHODS

    rows = {
        name: {benchmark: _preset_cells(cells(benchmark, name), method) for benchmark in COLUMNS}
        for name, method in METHODS.items()
    }
    if json:
        _print_json(rows)
        return
    from rich.table import Table

    table = Table("method", "setting", *COLUMNS, box=None, header_style="bold")
    for name, of_benchmark in rows.items():
        for key in next(iter(of_benchmark.values())):
            found = (of_benchmark[benchmark][key] for benchmark in COLUMNS)
            table.add_row(name, key, *(f"{cell['value']} {cell['source'][0]}" for cell in found))
            name = ""
    _console().print(table, "p published, s script (the programs behind the published numbers), o ours")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; a person's mistake is one line on stderr and exit code 2."""
    try:
        return app(args=arguments, prog_name="mdmt", standalone_mode=False) or 0
    except Exception as error:
        said = error.format_message() if hasattr(error, "format_message") else None  # typer's own
        stopped = type(error).__name__ == "Stopped"
        if not (said is not None or stopped or isinstance(error, FORESEEN)) or os.environ.get("MDMT_TRACEBACK"):
            raise
        _tell((str(error) if stopped else one_line(error)) if said is None else said or "see mdmt --help")
        return 130 if stopped else 2


def _tell(message: str) -> None:
    """One line for a person, on stderr."""
    print(f"mdmt: {message}", file=sys.stderr, flush=True)


def _print_table(result: dict[str, Any], records: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    from mdmt.experiments.tables import format_metric
    from mdmt.metrics import FORMULAS

    tasks, seeds = len(records[0]["tasks"]), result["seeds"]
    title = f"{result['label']} on {result['benchmark']}, {tasks} tasks, " + (
        f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds from {seeds[0]}"
    )
    console = _console()
    console.print(title, style="bold", markup=False, highlight=False, soft_wrap=True)
    if result["reduced"]:
        less = ", ".join(f"{key} {value}" for key, value in result["reduced"].items())
        console.print(f"reduced, not the published protocol: {less}", markup=False, highlight=False, soft_wrap=True)
    table = Table("metric", "value", "formula", box=None, header_style="bold")
    for name, spread in result["metrics"].items():
        formula = Text(FORMULAS[name])  # its brackets are no markup
        table.add_row(f"{name} (%)" if name == "A_T" else name, format_metric(name, spread), formula)
    console.print(table)
    for folder in result["runs"]:
        console.print(folder, style="dim", markup=False, highlight=False, soft_wrap=True)


class _Progress:
    """Task, step, accuracy so far and time left, on stderr; plain lines where that is no terminal."""

    def __init__(self, title: str, quiet: bool) -> None:
        self.title, self.quiet, self.said = title, quiet, ""

    def __enter__(self) -> _Progress:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TimeRemainingColumn(),
        )
        hidden = self.quiet or not console.is_terminal
        self.bar = Progress(*columns, console=console, transient=True, refresh_per_second=4, disable=hidden)
        self.row = self.bar.add_task(self.title, total=None)
        self.bar.start()
        return self

    def step(self, learner: Learner) -> None:
        """After every step of learning."""
        number, task = learner.current + 1, learner.task
        assert task is not None
        accuracy = learner.record.accuracy[-1] if learner.record.accuracy else []
        known = [a for a in accuracy[: learner.current] if a is not None]
        so_far = f", accuracy {100 * sum(known) / len(known):.1f} %" if known else ""
        where = f"{self.title}: task {number}/{learner.planned}"
        steps = learner.steps_of(task) // len(task.parts)
        self._show(f"{where}, step {learner.done}{so_far}", (number - len(task.parts)) * steps + learner.done,
                   learner.planned * steps, where + so_far)  # fmt: skip

    def image(self, done: int, total: int) -> None:
        """After some images were decoded."""
        self._show(f"decoding images: {done:,} of {total:,}", done, total, "decoding images, once")

    def _show(self, text: str, done: int, total: int, plain: str) -> None:
        self.bar.update(self.row, description=text, completed=done, total=total)
        if self.bar.disable and not self.quiet and plain != self.said:
            print(plain, file=sys.stderr, flush=True)
            self.said = plain

    def __exit__(self, *_: object) -> None:
        self.bar.stop()


def _console() -> Console:
    from rich.console import Console

    return Console()


def _preset_cells(found: dict[str, Any], method: Any) -> dict[str, Any]:
    """The cells that matter to a method."""
    settings = {"batch", "epochs", "lr", *method().arguments}
    settings |= {"memory", "policy"} if method.uses_memory else set()
    return {key: cell._asdict() for key, cell in found.items() if key in settings}


def _first_line(thing: object) -> str:
    return (thing.__doc__ or "").strip().splitlines()[0]


def _print_rows(rows: dict[str, dict[str, Any]], as_json: bool) -> None:
    """A table with a row per name, or one JSON object."""
    if as_json:
        _print_json(rows)
        return
    from rich.table import Table

    table = Table("name", *next(iter(rows.values())), box=None, header_style="bold")
    for name, cells in rows.items():
        table.add_row(name, *(_cell(c) for c in cells.values()))
    _console().print(table)


def _cell(value: Any) -> str:
    return ", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


def _print_json(content: Any) -> None:
    import json

    print(json.dumps(content))
