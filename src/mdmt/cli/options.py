"""The options that several commands share, each with its one help text."""

from __future__ import annotations

from typing import Annotated

import typer

Benchmark = Annotated[str, typer.Argument(help="What to learn: see `mdmt list benchmarks`.")]
Seeds = Annotated[int, typer.Option(min=1, help="How many seeds, one run each.")]
Seed = Annotated[int, typer.Option(min=0, help="The first seed.")]
Tasks = Annotated[int | None, typer.Option(help="How many tasks, when not all.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="A setting as key=value; may be repeated.")]
Data = Annotated[str | None, typer.Option(help="Where data sets lie, or your folder of images.")]
ImageSize = Annotated[int | None, typer.Option(help="Bring images to this size, when not the published one.")]
Subset = Annotated[int | None, typer.Option(min=1, help="Train on so many examples of each task.")]
Weights = Annotated[
    str | None, typer.Option(help="Start ResNet-18 from a torchvision state dict; imagenet fetches it.")
]
Run = Annotated[str, typer.Argument(help="A run: its folder, or a part of its path such as its hash or hash/seed.")]
Out = Annotated[str, typer.Option(help="Where run folders go.")]
Workers = Annotated[str, typer.Option(help="Runs at a time: a number, or auto for one per core.")]
Threads = Annotated[int, typer.Option(min=1, help="Threads of one run.")]
Against = Annotated[str | None, typer.Option(help="Also print differences to this row, paired by seed.")]
Format = Annotated[str, typer.Option("--format", help="table, markdown, latex or csv.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start over what was finished or interrupted before.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]
Method = Annotated[str, typer.Option(help="A method, a variant such as 'mdmt-r[distance=none]', or module:Class.")]
Methods = Annotated[str, typer.Option(help="all, or a list of methods and variants: van,er,'mdmt-r[distance=none]'.")]
Reading = Annotated[str | None, typer.Option(help="Of a method's paper, for those that have it: code or paper.")]
CheckpointEvery = Annotated[
    str | None, typer.Option(help="A time such as 30s or 5m, or a number of steps, between checkpoints.")
]
Log = Annotated[str | None, typer.Option(help="tensorboard: also write event files, in the run's folder.")]
