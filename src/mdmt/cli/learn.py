"""`mdmt learn`: a delivery becomes a new version of a model."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mdmt.cli.model_folder import (
    Label,
    ModelFolder,
    open_model,
    percent,
    place_of,
    print_grid,
    print_json,
    weights_file,
)
from mdmt.cli.options import Json, Quiet
from mdmt.errors import Stopped
from mdmt.system.own_code import is_own
from mdmt.words import bytes_text, printable

if TYPE_CHECKING:
    from mdmt.living.lessons import Lesson
    from mdmt.living.model_folder import LivingModel

NOT_PROMOTED = 3  # the exit code if the new version forgot too much to be used
DataToLearn = Annotated[
    str, typer.Argument(metavar="DATA", help="Folder of class folders, .npz (x, y), or .csv.")
]
Name = Annotated[
    str | None, typer.Option(metavar="NAME", help="Name of the delivery; default: that of DATA.")
]
NewNetwork = Annotated[
    str | None,
    typer.Option(
        "--backbone",
        metavar="NAME",
        help="Network of a new model: resnet18, reduced_resnet18, mlp, or your own as module:name.",
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="First weights of a new model: a state dict; imagenet downloads one."
    ),
]
Method = Annotated[str | None, typer.Option(metavar="METHOD", help="How a new model learns.")]
Memory = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Bytes for all that is kept of examples, such as 50MB."),
]
Holdout = Annotated[
    float | None,
    typer.Option(metavar="SHARE", help="Share of each class that is held back to measure with."),
]
MaxForgetting = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        help="Do not use the new version if a class loses more accuracy, such as 0.02.",
    ),
]
HeadKind = Annotated[
    str | None,
    typer.Option(
        "--heads",
        metavar="shared|per-task",
        help="A new model: all classes compete (default), or those of a task.",
    ),
]
Epochs = Annotated[int | None, typer.Option(min=1, metavar="N", help="Passes over the delivery.")]
Rate = Annotated[
    float | None, typer.Option("--lr", metavar="X", help="Learning rate of a new model.")
]
BatchSize = Annotated[
    int | None, typer.Option("--batch", min=1, metavar="N", help="Mini-batch of a new model.")
]
ImageSize = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="A new model reads images as N x N pixels.")
]
Seed = Annotated[int | None, typer.Option(min=0, metavar="N", help="Seed of a new model.")]
Discard = Annotated[
    bool, typer.Option("--discard", help="Give up a delivery that was interrupted.")
]


def learn(
    model: ModelFolder,
    data: DataToLearn,
    name: Name = None,
    backbone: NewNetwork = None,
    weights: Weights = None,
    method: Method = None,
    memory: Memory = None,
    holdout: Holdout = None,
    max_forgetting: MaxForgetting = None,
    heads: HeadKind = None,
    label: Label = None,
    epochs: Epochs = None,
    lr: Rate = None,
    batch: BatchSize = None,
    image_size: ImageSize = None,
    seed: Seed = None,
    discard: Discard = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Learn a delivery into a model. New classes, more of known ones, or both.

    It becomes a new version. After an interruption the same command goes on where it stopped. Exit
    code 3: learned, but not used, as --max-forgetting says.
    """
    own = backbone if backbone is not None and is_own(backbone) else None
    settings = {"heads": heads, "method": method, "epochs": epochs, "lr": lr, "batch": batch}
    settings |= {"image_size": image_size, "seed": seed, "weights": weights_file(weights, own)}
    settings["backbone"] = backbone if own is None else None
    settings |= {"memory": memory, "holdout": holdout, "max_forgetting": max_forgetting}
    settings |= {"label": label, "discard": discard, "progress": not (quiet or json)}
    lesson = _learn(open_model(model, own, seed), data, name, json, settings)
    if json:
        print_json(asdict(lesson))
    else:
        _print_lesson(lesson, model)
    if not lesson.promoted:
        raise typer.Exit(NOT_PROMOTED)


def _learn(
    model: LivingModel, data: str, name: str | None, json: bool, settings: dict[str, Any]
) -> Lesson:
    tell = None if json else lambda line: print(printable(line), flush=True)
    try:
        return model.learn(data, name, tell=tell, **settings)
    except KeyboardInterrupt:
        raise Stopped("interrupted; the same command goes on where it stopped") from None


def _print_lesson(lesson: Lesson, folder: str) -> None:
    """Each class before and after, and whether the new version is used."""
    from mdmt.report.text import Grid

    with_task = any(change.task is not None for change in lesson.changes)
    rows = [
        [
            place_of(change.task, change.label),
            "new" if change.before is None else percent(change.before),
            percent(change.after),
            "" if change.before is None else f"{100 * (change.after - change.before):+.1f}",
            str(change.examples),
        ]
        for change in lesson.changes
    ]
    first = "task / class" if with_task else "class"
    print_grid(Grid([first, "before (%)", "after (%)", "change", "held back"], rows))
    words = [f"version {lesson.version}"]
    if lesson.accuracy is not None:
        words.append(f"accuracy {percent(lesson.accuracy)} % on held-back examples")
    if lesson.forgot is not None:
        words.append(f"largest loss of a class {100 * max(0.0, lesson.forgot):.1f} points")
    words += [f"{bytes_text(lesson.stored_bytes)} kept", f"{lesson.seconds:.1f} s"]
    print(", ".join(words))
    if not lesson.promoted:
        print(
            f"version {lesson.version} is not used: a class lost more than --max-forgetting allows;"
            f" to use it: mdmt rollback {printable(folder)} --to {lesson.version}"
        )
