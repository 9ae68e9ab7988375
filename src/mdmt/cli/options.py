"""Each option once, with its help text; `RunOptions`, which many commands share; `@command`, which
adds them.

An option of all of them is one alias and one field here. An option of a single command stands in
its signature.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_type_hints

import typer

from mdmt.errors import Mistake

if TYPE_CHECKING:
    from mdmt.experiments.workers import Workers as WorkersOfRuns

Benchmark = Annotated[
    str,
    typer.Argument(help="What to learn: see `mdmt list benchmarks`; your own as module:stream."),
]
Method = Annotated[
    str,
    typer.Option(
        metavar="METHOD",
        help="A method, a variant such as 'mdmt-r[distance=none]', module:Class or file.py:Class.",
    ),
]
Methods = Annotated[
    str,
    typer.Option(
        metavar="LIST",
        help="all, paper (Table 1), or a list such as van,er,'mdmt-r[distance=none]'.",
    ),
]
Seeds = Annotated[int, typer.Option(min=1, metavar="N", help="Number of seeds, one run each.")]
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="The first seed.")]
Tasks = Annotated[
    int | None, typer.Option(metavar="N", help="Number of tasks instead of the benchmark's own.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; may be repeated."),
]
Reading = Annotated[
    str | None,
    typer.Option(
        metavar="code|paper",
        help="Follow the released code (default) or the paper where they differ.",
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        metavar="published|best",
        help="Settings of mdmt-r: the published ones (default), or more accurate ones.",
    ),
]
Data = Annotated[
    str | None, typer.Option(metavar="DIR", help="Folder of the data sets, or of your own images.")
]
ImageSize = Annotated[
    int | None,
    typer.Option(metavar="N", help="Resize images to N x N instead of the published size."),
]
Subset = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Use at most N training examples per task.")
]
Backbone = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Another network: resnet18, 'reduced_resnet18[width=32]', or your own as module:name.",
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Start ResNet-18 from a torchvision state dict; imagenet downloads it."
    ),
]
SkipBroken = Annotated[
    bool, typer.Option("--skip-broken", help="Pass over images of yours that cannot be read.")
]
KeepModel = Annotated[
    bool,
    typer.Option(
        "--keep-model", help="Keep the learned network in the run folder, for Learner.load."
    ),
]
Threads = Annotated[int, typer.Option(min=1, metavar="N", help="Threads per run.")]
Device = Annotated[
    str,
    typer.Option(
        metavar="DEVICE",
        help="Where to learn: cpu, cuda, cuda:N, mps, xpu; auto takes what is there.",
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        metavar="fp32|bf16",
        help="bf16 rounds the products of matrices; weights and losses stay fp32.",
    ),
]
Out = Annotated[str, typer.Option(metavar="DIR", help="Folder of the runs.")]
Workers = Annotated[
    str, typer.Option(metavar="N|auto", help="Number of runs at a time; auto is one per core.")
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="auto|HOST:PORT", help="Do the runs on this Ray cluster instead of this machine."
    ),
]
CheckpointEvery = Annotated[
    str | None,
    typer.Option(metavar="TIME|N", help="Time (30s, 5m) or number of steps between checkpoints."),
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Start over, even what is finished or was interrupted.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
Against = Annotated[
    str | None,
    typer.Option(metavar="ROW", help="Also print the differences to this row, paired by seed."),
]
Format = Annotated[
    str, typer.Option("--format", metavar="FORMAT", help="table, markdown, latex or csv.")
]
Run = Annotated[
    str,
    typer.Argument(help="A run: its folder, or a part of its path such as its hash or hash/seed."),
]


@dataclass(frozen=True)
class RunOptions:
    """What is learned, how, and where the runs go; in the order in which help shows it."""

    benchmark: Benchmark = "permuted-digits"
    seeds: Seeds = 1
    seed: Seed = 1234
    tasks: Tasks = None
    set: Set = None
    reading: Reading = None
    preset: Preset = None
    data: Data = None
    image_size: ImageSize = None
    subset: Subset = None
    backbone: Backbone = None
    weights: Weights = None
    skip_broken: SkipBroken = False
    keep_model: KeepModel = False
    threads: Threads = 1
    device: Device = "cpu"
    precision: Precision = "fp32"
    workers: Workers = "auto"
    cluster: Cluster = None
    out: Out = "runs"
    checkpoint_every: CheckpointEvery = None
    fresh: Fresh = False
    json: Json = False
    quiet: Quiet = False

    @property
    def all_seeds(self) -> range:
        return range(self.seed, self.seed + self.seeds)

    @property
    def settings(self) -> dict[str, str]:
        """What --set, --reading and --preset say, by key."""
        from mdmt.runs.request import parse_settings

        return parse_settings(self.set, reading=self.reading, preset=self.preset)

    @property
    def of_every_run(self) -> dict[str, Any]:
        """What goes into each config as it is: keyword arguments of `resolve`."""
        names = (
            "tasks",
            "threads",
            "device",
            "precision",
            "data",
            "image_size",
            "subset",
            "backbone",
            "weights",
            "skip_broken",
            "keep_model",
        )
        return {name: getattr(self, name) for name in names}

    @property
    def worker_count(self) -> int | Literal["auto"]:
        if self.workers == "auto":
            return "auto"
        if not self.workers.isdecimal() or int(self.workers) < 1:
            raise Mistake(f"--workers {self.workers}: must be auto or a whole number from 1")
        return int(self.workers)

    def find_workers(self) -> WorkersOfRuns | int | Literal["auto"]:
        """Who does the runs: so many processes of this machine, or a cluster, which has to
        answer.
        """
        count = self.worker_count
        if self.cluster is None:
            return count
        if count != "auto":
            raise Mistake(
                "--workers and --cluster: a cluster decides itself how many runs it has room for"
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

    The command has the fields of RunOptions but for those `without`, and the function's own options
    behind the benchmark; `defaults` are the values of either unless a person gives others.
    """

    def register(function: F) -> F:
        hints = get_type_hints(RunOptions, include_extras=True)
        shared = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=hints[field.name],
            )
            for field in fields(RunOptions)
            if field.name not in without
        ]
        _, *own = inspect.signature(function, eval_str=True).parameters.values()
        parameters = [
            parameter.replace(
                kind=inspect.Parameter.KEYWORD_ONLY,
                default=defaults.get(parameter.name, parameter.default),
            )
            for parameter in (shared[0], *own, *shared[1:])
        ]

        def call(**values: Any) -> None:
            options = {parameter.name: values.pop(parameter.name) for parameter in shared}
            function(RunOptions(**options), **values)

        call.__doc__ = function.__doc__
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        app.command(name or function.__name__)(call)
        return function

    return register
