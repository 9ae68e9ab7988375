"""Answers and versions of a model: `mdmt predict`, `evaluate`, `info`, `rollback` and others.

`living/model_folder.py` does the work; here it becomes text.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mdmt.cli.forget import forget
from mdmt.cli.learn import learn
from mdmt.cli.model_folder import (
    Label,
    ModelFolder,
    Network,
    agreed,
    date_text,
    input_of,
    open_model,
    percent,
    place_of,
    print_grid,
    print_json,
    text_of,
)
from mdmt.cli.options import Json, Yes
from mdmt.errors import Mistake
from mdmt.words import bytes_text, count, printable

if TYPE_CHECKING:
    from mdmt.living.answers import Answer, ClassAccuracy
    from mdmt.living.forgetting import Evaluation
    from mdmt.report.text import Grid

DAMAGED = 1


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for function in (learn, predict, evaluate, info, rollback, forget, verify, prune):
        app.command()(function)


def predict(
    model: ModelFolder,
    inputs: Annotated[
        list[str], typer.Argument(metavar="INPUT", help="Images, or .npy, .npz or .csv files.")
    ],
    task: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only the classes of this delivery.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, metavar="K", help="Show the K best classes.")] = 1,
    reject: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, metavar="P", help="Less probable classes are unknown."),
    ] = 0.0,
    backbone: Network = None,
    json: Json = False,
) -> None:
    """Answer which class an input has, and how probably."""
    from mdmt.living.deliveries import example_digests
    from mdmt.living.questions import read_files

    opened = open_model(model, backbone)
    answering = opened.answers()
    names, x = read_files(inputs, *input_of(opened))
    answers = answering.answers(x, task, top=top, reject=reject)
    if not json:
        for name, answer in zip(names, answers, strict=True):
            print(f"{name}: {_answer_text(answer)}")
        return
    rows = [
        {"input": name, **asdict(answer), "checksum": digest}
        for name, answer, digest in zip(names, answers, example_digests(x), strict=True)
    ]
    print_json({"version": answering.version, "answers": rows})


def _answer_text(answer: Answer) -> str:
    best = ", ".join(f"{text_of(label)} {percent(share)} %" for label, share in answer.top)
    return f"unknown ({best})" if answer.label is None else best


def evaluate(
    model: ModelFolder,
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="Default: the held-back examples.")
    ] = None,
    label: Label = None,
    backbone: Network = None,
    json: Json = False,
) -> None:
    """Measure a model. Accuracy and calibration, on held-back examples or on your data."""
    opened = open_model(model, backbone)
    measured = opened.evaluate(data, label=label)
    if json:
        print_json({"version": opened.version, **asdict(measured)})
        return
    if measured.accuracy is None:
        raise Mistake(f"{printable(model)} holds nothing back: name data to measure it on")
    _print_evaluation(measured, f"version {opened.version}", data or "held-back examples")


def _print_evaluation(measured: Evaluation, version: str, data: str) -> None:
    from mdmt.report.text import Grid

    assert measured.accuracy is not None
    assert measured.calibration is not None
    assert measured.uncalibrated is not None
    rows = [_class_row(one) for one in measured.classes]
    print_grid(Grid(["class", "accuracy (%)", "examples"], rows))
    print(f"{version} on {printable(data)}: accuracy {percent(measured.accuracy)} %")
    print(
        f"calibration error {percent(measured.calibration)} %, without the temperature"
        f" {percent(measured.uncalibrated)} %"
    )


def _class_row(one: ClassAccuracy) -> list[str]:
    return [place_of(one.task, one.label), percent(one.accuracy), str(one.examples)]


def info(model: ModelFolder, json: Json = False) -> None:
    """Show a model. Classes, what is kept of each, deliveries and versions."""
    about = open_model(model).info()
    if json:
        print_json(about)
        return
    for line in _info_lines(about):
        print(line)
    for grid in _info_grids(about):
        print()
        print_grid(grid)


def _info_grids(about: dict[str, Any]) -> list[Grid]:
    """The classes, the deliveries and the versions."""
    from mdmt.report.text import Grid

    classes = [
        [place_of(one.get("task"), one["label"]), str(one["kept"]), str(one["held_back"])]
        for one in about["classes"]
    ]
    deliveries = [
        [
            text_of(one["name"]),
            date_text(one["date"]),
            str(sum(c["examples"] for c in one["classes"])),
            ", ".join(text_of(c["label"]) for c in one["classes"]),
        ]
        for one in about["deliveries"]
    ]
    versions = [_version_row(one, about["version"]) for one in about["versions"]]
    columns = ["version", "date", "change", "classes", "accuracy (%)", "forgot (points)"]
    return [
        Grid(["class", "kept", "held back"], classes),
        Grid(["delivery", "date", "examples", "classes"], deliveries),
        Grid(columns, versions),
    ]


def _info_lines(about: dict[str, Any]) -> list[str]:
    memory, shape = about["memory"], " x ".join(map(str, about["input"]["shape"]))
    lines = [
        f"{about['folder']}: version {about['version']}, {_classes_text(len(about['classes']))}",
        f"method {about['method']}, network {about['network']}, inputs {shape}"
        f" ({about['input']['type']}), heads {about['heads']}",
        f"examples kept: {bytes_text(memory['bytes'])} of {bytes_text(memory['budget'])}",
    ]
    if about["accuracy"] is not None:
        lines += [
            f"held-back examples: accuracy {percent(about['accuracy'])} %, calibration error"
            f" {percent(about['calibration'])} %",
            f"--reject {about['threshold']:.3f} answers unknown for 5 % of them",
        ]
    if about["interrupted"] is not None:
        lines.append(f"delivery {about['interrupted']} was interrupted, or is being learned")
    return lines


def _version_row(one: dict[str, Any], current: int) -> list[str]:
    number = f"{one['version']}{' (current)' if one['version'] == current else ''}"
    if one["damage"] is not None:
        return [number, "", printable(one["damage"]), "", "", ""]
    accuracy = "-" if one["accuracy"] is None else percent(one["accuracy"])
    forgot = "-" if one["forgot"] is None else f"{100 * max(0.0, one['forgot']):.1f}"
    change = printable(one["change"])
    return [number, date_text(one["created"]), change, str(one["classes"]), accuracy, forgot]


def rollback(
    model: ModelFolder,
    to: Annotated[
        int | None,
        typer.Option(min=1, metavar="VERSION", help="Default: what the current one came from."),
    ] = None,
) -> None:
    """Use another version of a model. An earlier or a later one."""
    number = open_model(model).rollback(to)
    print(f"{printable(model)}: version {number} is the current one")


def verify(model: ModelFolder, backbone: Network = None) -> None:
    """Check the files of a model. Every part of every version has a checksum."""
    opened = open_model(model, backbone)
    damage = opened.verify()
    for number in sorted({*opened.versions_.numbers(), *damage}):
        print(f"version {number}: {printable(damage.get(number, 'whole'))}")
    if damage:
        raise typer.Exit(DAMAGED)


def prune(
    model: ModelFolder,
    keep: Annotated[int, typer.Option(min=1, metavar="N", help="Versions to keep, the last N.")],
    yes: Yes = False,
) -> None:
    """Remove old versions of a model. The current one and the last N stay."""
    opened = open_model(model)
    _ = opened.version  # a Mistake if the folder is not a model
    kept = f"the last {keep}" if keep > 1 else "the last one"
    question = f"remove all versions of {printable(model)} but the current one and {kept}"
    if agreed(question, yes):
        gone = ", ".join(map(str, opened.prune(keep))) or "none"
        print(f"removed versions: {gone}")


def _classes_text(number: int) -> str:
    return count("class", number, "classes")
