"""The options of the command line, and `@command`, which gives a command those of all runs.

An option of all runs is a field of `RunRequest` or `RunOptions` and a help text in `WORDS`. An
option of a single command stands in the signature of its function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar, get_type_hints

import typer
from typer.models import ParameterInfo

from mdmt.errors import Mistake
from mdmt.runs.request import RunRequest

if TYPE_CHECKING:
    from mdmt.experiments.workers import Workers

WORDS: dict[str, ParameterInfo] = {  # the help text of each field of RunOptions
    "benchmark": typer.Argument(
        help="What to learn: see `mdmt list benchmarks`; your own as module:stream."
    ),
    "method": typer.Option(
        metavar="METHOD",
        help="A method, a variant such as 'mdmt-r[distance=none]', module:Class or file.py:Class.",
    ),
    "seeds": typer.Option(min=1, metavar="N", help="Number of seeds, one run each."),
    "seed": typer.Option(min=0, metavar="N", help="The first seed."),
    "tasks": typer.Option(metavar="N", help="Number of tasks instead of the benchmark's own."),
    "set": typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; may be repeated."),
    "reading": typer.Option(
        metavar="code|paper",
        help="Follow the released code (default) or the paper where they differ.",
    ),
    "preset": typer.Option(
        metavar="published|best",
        help="Settings of mdmt-r: the published ones (default), or more accurate ones.",
    ),
    "data": typer.Option(metavar="DIR", help="Folder of the data sets, or of your own images."),
    "image_size": typer.Option(
        metavar="N", help="Resize images to N x N instead of the published size."
    ),
    "subset": typer.Option(min=1, metavar="N", help="Use at most N training examples per task."),
    "backbone": typer.Option(
        metavar="NAME",
        help="Another network: resnet18, 'reduced_resnet18[width=32]', or your own as module:name.",
    ),
    "weights": typer.Option(
        metavar="FILE", help="Start ResNet-18 from a torchvision state dict; imagenet downloads it."
    ),
    "skip_broken": typer.Option("--skip-broken", help="Skip images of yours that cannot be read."),
    "keep_model": typer.Option(
        "--keep-model", help="Keep the learned network in the run folder, for Learner.load."
    ),
    "evaluate_every": typer.Option(
        min=0,
        metavar="N",
        help="Also evaluate the tasks so far every N steps: AAA, stability gap, min-ACC; 0: never.",
    ),
    "threads": typer.Option(min=1, metavar="N", help="Threads per run."),
    "device": typer.Option(
        metavar="DEVICE",
        help="Where to learn: cpu, cuda, cuda:N, mps, xpu; auto takes an accelerator if present.",
    ),
    "precision": typer.Option(
        metavar="fp32|bf16",
        help="bf16 rounds the products of matrices; weights and losses stay fp32.",
    ),
    "workers": typer.Option(
        metavar="N|auto", help="Number of runs at a time; auto is one per core."
    ),
    "cluster": typer.Option(
        metavar="auto|HOST:PORT", help="Do the runs on this Ray cluster instead of this machine."
    ),
    "out": typer.Option(metavar="DIR", help="Folder of the runs."),
    "checkpoint_every": typer.Option(
        metavar="TIME|N", help="Time (30s, 5m) or number of steps between checkpoints."
    ),
    "fresh": typer.Option(
        "--fresh",
        help="Start over, even if finished or interrupted. A finished result stays until then.",
    ),
    "json": typer.Option("--json", help="Print one JSON object instead of text."),
    "quiet": typer.Option("--quiet", help="Show no progress."),
}

# Options that other commands have too.
Data = Annotated[str | None, WORDS["data"]]
Weights = Annotated[str | None, WORDS["weights"]]
Out = Annotated[str, WORDS["out"]]
Json = Annotated[bool, WORDS["json"]]
Quiet = Annotated[bool, WORDS["quiet"]]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Methods = Annotated[
    str,
    typer.Option(
        metavar="LIST",
        help="all, paper (its methods), or a list such as van,er,'mdmt-r[distance=none]'.",
    ),
]
Against = Annotated[
    str | None,
    typer.Option(metavar="ROW", help="Also print the differences to this row, paired by seed."),
]
Format = Annotated[
    str, typer.Option("--format", metavar="FORMAT", help="table, markdown, latex or csv.")
]
RunArgument = Annotated[
    str,
    typer.Argument(help="A run: its folder, or whole parts of its path, as in hash or hash/seed."),
]


def may_remove(thing: str, description: str, yes: bool) -> bool:
    """Ask whether to remove something, unless --yes says so; no answer is a Mistake."""
    try:
        return yes or typer.confirm(f"remove {thing} ({description})?", err=True)
    except typer.Abort:
        typer.echo(err=True)  # the question's line ends here
        raise Mistake(
            f"{thing} was not removed: nobody answered; --yes removes without asking"
        ) from None


@dataclass(frozen=True)
class RunOptions(RunRequest):
    """A request, and how its runs are done: where, how many at a time, with which output."""

    fresh_words: ClassVar[str] = "--fresh"  # how the user asks for it
    workers: str = "auto"
    cluster: str | None = None
    out: str = "runs"
    checkpoint_every: str | None = None
    fresh: bool = False
    json: bool = False
    quiet: bool = False

    @property
    def worker_count(self) -> int | Literal["auto"]:
        if self.workers == "auto":
            return "auto"
        if not self.workers.isdecimal() or int(self.workers) < 1:
            raise Mistake(f"--workers {self.workers}: must be auto or a whole number from 1")
        return int(self.workers)

    def find_workers(self) -> Workers | int | Literal["auto"]:
        """The number of worker processes, or the cluster, which must answer."""
        count = self.worker_count
        if self.cluster is None:
            return count
        if count != "auto":
            raise Mistake(
                "--workers and --cluster exclude each other: a cluster decides how many runs it"
                " does at a time"
            )
        from mdmt.experiments.cluster import Cluster

        return Cluster(
            self.cluster,
            self.out,
            threads=self.threads,
            fresh=self.fresh,
            every=self.checkpoint_every,
        )

    @property
    def silent(self) -> bool:
        """Whether progress is unwanted: --json is for programs."""
        return self.quiet or self.json


F = TypeVar("F", bound=Callable[..., None])


def command(
    app: typer.Typer, name: str | None = None, *, without: Collection[str] = (), **defaults: Any
) -> Callable[[F], F]:
    """Make a command of a function that takes RunOptions and options of its own.

    The command has the fields of RunOptions except those in `without`; help shows the function's
    own options behind benchmark and method. `defaults` replaces default values of either.
    """

    def register(function: F) -> F:
        shared = [parameter for parameter in _parameters() if parameter.name not in without]
        _, *own = inspect.signature(function, eval_str=True).parameters.values()
        first = [parameter for parameter in shared if parameter.name in ("benchmark", "method")]
        parameters = [
            parameter.replace(
                kind=inspect.Parameter.KEYWORD_ONLY,
                default=defaults.get(parameter.name, parameter.default),
            )
            for parameter in (*first, *own, *shared[len(first) :])
        ]

        def call(**values: Any) -> None:
            options = {parameter.name: values.pop(parameter.name) for parameter in shared}
            function(RunOptions(**options), **values)

        call.__doc__ = function.__doc__
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        app.command(name or function.__name__)(call)
        return function

    return register


def _parameters() -> list[inspect.Parameter]:
    """The fields of RunOptions as parameters that typer understands."""
    hints = get_type_hints(RunOptions)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=Annotated[hints[field.name], WORDS[field.name]],
        )
        for field in fields(RunOptions)
    ]
