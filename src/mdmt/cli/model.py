"""A model that goes on learning: `mdmt learn`, `predict`, `evaluate`, `info` and the others.

`living/model_folder.py` does the work; here it becomes text.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mdmt.cli.options import Json, Quiet, Yes
from mdmt.errors import Mistake, Stopped
from mdmt.system.own_code import is_own
from mdmt.words import bytes_text, count, printable

if TYPE_CHECKING:
    from mdmt.living.answers import Answer, ClassAccuracy
    from mdmt.living.forgetting import Evaluation, Removal
    from mdmt.living.lessons import Lesson
    from mdmt.living.model_folder import LivingModel
    from mdmt.report.text import Grid

NOT_PROMOTED = 3  # the exit code if the new version forgot too much to be used
DAMAGED = 1
CHECKSUM = 32  # letters of an example's checksum
SEED = 1234

ModelFolder = Annotated[str, typer.Argument(metavar="MODEL", help="Folder of the model.")]
Label = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column of a .csv file that holds the class.")
]
Network = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Your own network, if the model has one: module:name."),
]
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
RebuildWeights = Annotated[
    str | None, typer.Option("--weights", metavar="FILE", help="First weights for --rebuild.")
]
Discard = Annotated[
    bool, typer.Option("--discard", help="Give up a delivery that was interrupted.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for function in (learn, predict, evaluate, info, rollback, forget, verify, prune):
        app.command()(function)


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
    settings |= {"image_size": image_size, "seed": seed, "weights": _weights(weights, own)}
    settings["backbone"] = backbone if own is None else None
    settings |= {"memory": memory, "holdout": holdout, "max_forgetting": max_forgetting}
    settings |= {"label": label, "discard": discard, "progress": not (quiet or json)}
    lesson = _learn(open_model(model, own, seed), data, name, json, settings)
    if json:
        _print_json(asdict(lesson))
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


def _weights(weights: str | None, own: str | None) -> str | None:
    """The file of first weights; `imagenet` is downloaded."""
    if weights is None:
        return None
    if own is not None:
        raise Mistake(f"--weights is for our networks: load them in {own}")
    if weights != "imagenet":
        return weights
    from mdmt.data.fetch import fetch_weights

    return str(fetch_weights(None))


def _print_lesson(lesson: Lesson, folder: str) -> None:
    """Each class before and after, and whether the new version is used."""
    from mdmt.report.text import Grid

    with_task = any(change.task is not None for change in lesson.changes)
    rows = [
        [
            _place(change.task, change.label),
            "new" if change.before is None else _percent(change.before),
            _percent(change.after),
            "" if change.before is None else f"{100 * (change.after - change.before):+.1f}",
            str(change.examples),
        ]
        for change in lesson.changes
    ]
    first = "task / class" if with_task else "class"
    _print_grid(Grid([first, "before (%)", "after (%)", "change", "held back"], rows))
    words = [f"version {lesson.version}"]
    if lesson.accuracy is not None:
        words.append(f"accuracy {_percent(lesson.accuracy)} % on held-back examples")
    if lesson.forgot is not None:
        words.append(f"largest loss of a class {100 * max(0.0, lesson.forgot):.1f} points")
    words += [f"{bytes_text(lesson.stored_bytes)} kept", f"{lesson.seconds:.1f} s"]
    print(", ".join(words))
    if not lesson.promoted:
        print(
            f"version {lesson.version} is not used: a class lost more than --max-forgetting allows;"
            f" to use it: mdmt rollback {printable(folder)} --to {lesson.version}"
        )


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
    names, x = read_files(inputs, *_input(opened))
    answers = answering.answers(x, task, top=top, reject=reject)
    if not json:
        for name, answer in zip(names, answers, strict=True):
            print(f"{name}: {_answer_text(answer)}")
        return
    rows = [
        {"input": name, **asdict(answer), "checksum": digest}
        for name, answer, digest in zip(names, answers, example_digests(x), strict=True)
    ]
    _print_json({"version": answering.version, "answers": rows})


def _answer_text(answer: Answer) -> str:
    best = ", ".join(f"{_text(label)} {_percent(share)} %" for label, share in answer.top)
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
        _print_json({"version": opened.version, **asdict(measured)})
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
    _print_grid(Grid(["class", "accuracy (%)", "examples"], rows))
    print(f"{version} on {printable(data)}: accuracy {_percent(measured.accuracy)} %")
    print(
        f"calibration error {_percent(measured.calibration)} %, without the temperature"
        f" {_percent(measured.uncalibrated)} %"
    )


def _class_row(one: ClassAccuracy) -> list[str]:
    return [_place(one.task, one.label), _percent(one.accuracy), str(one.examples)]


def info(model: ModelFolder, json: Json = False) -> None:
    """Show a model. Classes, what is kept of each, deliveries and versions."""
    about = open_model(model).info()
    if json:
        _print_json(about)
        return
    for line in _info_lines(about):
        print(line)
    for grid in _info_grids(about):
        print()
        _print_grid(grid)


def _info_grids(about: dict[str, Any]) -> list[Grid]:
    """The classes, the deliveries and the versions."""
    from mdmt.report.text import Grid

    classes = [
        [_place(one.get("task"), one["label"]), str(one["kept"]), str(one["held_back"])]
        for one in about["classes"]
    ]
    deliveries = [
        [
            _text(one["name"]),
            _date(one["date"]),
            str(sum(c["examples"] for c in one["classes"])),
            ", ".join(_text(c["label"]) for c in one["classes"]),
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
            f"held-back examples: accuracy {_percent(about['accuracy'])} %, calibration error"
            f" {_percent(about['calibration'])} %",
            f"--reject {about['threshold']:.3f} answers unknown for 5 % of them",
        ]
    if about["interrupted"] is not None:
        lines.append(f"delivery {about['interrupted']} was interrupted, or is being learned")
    return lines


def _version_row(one: dict[str, Any], current: int) -> list[str]:
    number = f"{one['version']}{' (current)' if one['version'] == current else ''}"
    if one["damage"] is not None:
        return [number, "", printable(one["damage"]), "", "", ""]
    accuracy = "-" if one["accuracy"] is None else _percent(one["accuracy"])
    forgot = "-" if one["forgot"] is None else f"{100 * max(0.0, one['forgot']):.1f}"
    change = printable(one["change"])
    return [number, _date(one["created"]), change, str(one["classes"]), accuracy, forgot]


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


def forget(
    model: ModelFolder,
    classes: Annotated[
        list[str] | None, typer.Option("--class", metavar="NAME", help="A class; may be repeated.")
    ] = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option("--task", metavar="NAME", help="A delivery; may be repeated."),
    ] = None,
    examples: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A list of checksums or files, one on each line."),
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Learn what is left with a network of first weights.")
    ] = False,
    weights: RebuildWeights = None,
    backbone: Network = None,
    yes: Yes = False,
    quiet: Quiet = False,
) -> None:
    """Remove classes or examples from a model. And every version that holds them."""
    opened = open_model(model, backbone)
    if weights is not None:
        _start_from(opened, _weights(weights, backbone), rebuild)
    wanted: dict[str, list[Any]] = {
        "classes": _known_labels(opened, classes or []),
        "deliveries": _known_deliveries(opened, tasks or []),
        "examples": _digests(opened, examples),
    }
    if not any(wanted.values()):
        raise Mistake("say what to forget: --class NAME, --task NAME or --examples FILE")
    question = f"remove {_wanted_text(wanted)} from {printable(model)}, and every version with them"
    if _agreed(question, yes):
        removal = opened.forget(**wanted, rebuild=rebuild, progress=rebuild and not quiet)
        _print_removal(removal)


def _start_from(model: LivingModel, weights: str | None, rebuild: bool) -> None:
    """Give the model a network with first weights from a file, to rebuild it from."""
    import mdmt.backbones as backbones
    from mdmt.network.first_weights import load_first_weights

    if not rebuild:
        raise Mistake("--weights is for the network that --rebuild makes")
    spec = model.versions_.read(lambda saved: saved.rest["backbone"])

    def network() -> backbones.Backbone:
        made = backbones.make(spec)
        load_first_weights(made, str(weights), SEED)
        return made

    network()  # a mistake in the file should come before the question
    model.backbone = network


def _wanted_text(wanted: dict[str, list[Any]]) -> str:
    nouns = {"classes": ("class", "classes"), "deliveries": ("delivery", "deliveries")}
    nouns["examples"] = ("example", "examples")
    parts = [count(nouns[key][0], len(v), nouns[key][1]) for key, v in wanted.items() if v]
    return " and ".join(parts)


def _print_removal(removal: Removal) -> None:
    """What was removed, and what may be left."""
    names = ", ".join(map(_text, removal.classes)) or "none"
    print(f"removed: {count('example', removal.examples)}; classes: {names}")
    gone = ", ".join(map(str, removal.versions)) or "none"
    print(f"removed versions: {gone}")
    now = f"version {removal.version} is the current one"
    if removal.before is not None and removal.after is not None:
        before, after = _percent(removal.before), _percent(removal.after)
        now += f"; accuracy on what is held back {before} % before, {after} % now"
    print(now)
    if removal.lost:
        print(f"not learned again, as no example was left: {', '.join(map(_text, removal.lost))}")
    if removal.rebuilt:
        print("the network is new: it has learned only what is left in the memory")
    else:
        print(
            "the network was trained on what was removed and may still hold traces of it; --rebuild"
            " trains a new one on what is left"
        )
    print(
        "copies elsewhere stay: your own files, and the cache of decoded images (mdmt data cache"
        " --clear)"
    )


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
    if _agreed(question, yes):
        gone = ", ".join(map(str, opened.prune(keep))) or "none"
        print(f"removed versions: {gone}")


# What several commands need.


def open_model(folder: str, backbone: str | None = None, seed: int | None = None) -> LivingModel:
    """The model in a folder; `backbone` is the user's own network."""
    from mdmt.living.model_folder import LivingModel

    if backbone is None:
        return LivingModel(folder)
    if not is_own(backbone):
        raise Mistake(f"--backbone {backbone}: the model knows its network; give only one of yours")
    from mdmt.experiments.networks import own_network, own_spec
    from mdmt.runs.request import parse_variant

    spec = own_spec(*parse_variant(backbone), weights=None)
    number = SEED if seed is None else seed
    return LivingModel(
        folder, backbone=lambda: own_network(spec["name"], spec["arguments"], number)
    )


def _input(model: LivingModel) -> tuple[tuple[int, ...], str, list[str] | None]:
    """The shape and the type of one input, and the names of a table's columns."""
    shape, kind = model.versions_.read(lambda saved: saved.rest["input"])
    return tuple(shape), kind, model.columns


def _known_labels(model: LivingModel, names: Sequence[str]) -> list[Hashable]:
    """The classes that names stand for: on the command line a number is text too."""
    known = {_text(label): label for label in _labels(model)} if names else {}
    for name in names:
        if name not in known:
            raise Mistake(f"class {name!r} was not learned; classes: {', '.join(known)}")
    return [known[name] for name in names]


def _labels(model: LivingModel) -> list[Hashable]:
    from mdmt.inputs.saved import as_label

    tasks = model.versions_.read(lambda saved: saved.rest["tasks"])
    return list(dict.fromkeys(as_label(c) for task in tasks for c in task["classes"]))


def _known_deliveries(model: LivingModel, names: Sequence[str]) -> list[str]:
    tasks = model.versions_.read(lambda saved: saved.rest["tasks"])
    known = [str(task["name"]) for task in tasks]
    for name in names:
        if name not in known:
            raise Mistake(f"delivery {name!r} was not learned; deliveries: {', '.join(known)}")
    return list(names)


def _digests(model: LivingModel, listed: str | None) -> list[str]:
    """The checksums that a list names, itself or by the files of the examples."""
    if listed is None:
        return []
    from mdmt.living.deliveries import example_digests
    from mdmt.living.questions import read_files

    try:
        text = Path(listed).read_text("utf-8")
    except UnicodeDecodeError:
        raise Mistake(f"{printable(listed)} is not a list of files: it is not UTF-8") from None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    digests = [line for line in lines if _is_checksum(line)]
    files = [line for line in lines if not _is_checksum(line)]
    if files:
        digests += example_digests(read_files(files, *_input(model))[1])
    return digests


def _is_checksum(text: str) -> bool:
    return len(text) == CHECKSUM and set(text) <= set("0123456789abcdef")


def _agreed(question: str, yes: bool) -> bool:
    """Ask on a terminal, unless --yes was given."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise Mistake("nothing was removed: there is no terminal to ask on; --yes removes")
    if typer.confirm(f"{question}?", err=True):
        return True
    print("nothing was removed")
    return False


def _print_grid(grid: Grid) -> None:
    from mdmt.report.text import rich_table, screen

    console = screen()
    console.print(rich_table(grid, console.width))


def _place(task: str | None, label: Hashable) -> str:
    return _text(label) if task is None else f"{_text(task)} / {_text(label)}"


def _text(label: Hashable) -> str:
    return printable(str(label))


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _date(text: str) -> str:
    return text[:16].replace("T", " ")


def _classes_text(number: int) -> str:
    return count("class", number, "classes")


def _print_json(content: Any) -> None:
    print(dumps(content))
