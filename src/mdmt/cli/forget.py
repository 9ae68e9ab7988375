"""`mdmt forget`: classes, deliveries or examples leave a model, and every version that has them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mdmt.cli.model_folder import (
    SEED,
    ModelFolder,
    Network,
    agreed,
    input_of,
    open_model,
    percent,
    text_of,
    weights_file,
)
from mdmt.cli.options import Quiet, Yes
from mdmt.errors import Mistake
from mdmt.words import count, printable

if TYPE_CHECKING:
    from mdmt.living.forgetting import Removal
    from mdmt.living.model_folder import LivingModel

CHECKSUM = 32  # letters of an example's checksum
RebuildWeights = Annotated[
    str | None, typer.Option("--weights", metavar="FILE", help="First weights for --rebuild.")
]


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
        _start_from(opened, weights_file(weights, backbone), rebuild)
    wanted: dict[str, list[Any]] = {
        "classes": _known_labels(opened, classes or []),
        "deliveries": _known_deliveries(opened, tasks or []),
        "examples": _digests(opened, examples),
    }
    if not any(wanted.values()):
        raise Mistake("say what to forget: --class NAME, --task NAME or --examples FILE")
    question = f"remove {_wanted_text(wanted)} from {printable(model)}, and every version with them"
    if agreed(question, yes):
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
    names = ", ".join(map(text_of, removal.classes)) or "none"
    print(f"removed: {count('example', removal.examples)}; classes: {names}")
    gone = ", ".join(map(str, removal.versions)) or "none"
    print(f"removed versions: {gone}")
    now = f"version {removal.version} is the current one"
    if removal.before is not None and removal.after is not None:
        before, after = percent(removal.before), percent(removal.after)
        now += f"; accuracy on what is held back {before} % before, {after} % now"
    print(now)
    if removal.lost:
        print(f"not learned again, as no example was left: {', '.join(map(text_of, removal.lost))}")
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


def _known_labels(model: LivingModel, names: Sequence[str]) -> list[Hashable]:
    """The classes that names stand for: on the command line a number is text too."""
    known = {text_of(label): label for label in _labels(model)} if names else {}
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
        digests += example_digests(read_files(files, *input_of(model))[1])
    return digests


def _is_checksum(text: str) -> bool:
    return len(text) == CHECKSUM and set(text) <= set("0123456789abcdef")
