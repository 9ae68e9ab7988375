"""Command lines as a grammar, read from the commands themselves: their options, types and limits.

`commands()` walks the tree of commands. `lines(...)` draws whole command lines: mostly of options
that the command has, with values of their type, of the choices that help shows, of files that are
there, and with hostile ones.
"""

from dataclasses import dataclass
from types import NoneType
from typing import get_args

import typer
from hypothesis import strategies as st

from mdmt.benchmarks import BENCHMARKS
from mdmt.cli.app import app
from mdmt.methods import METHODS

NUMBERS = ["0", "1", "2", "3", "-1", "007", "1_000", "1e3", "0x10", " 5", "٣", "1.5", "+4", ""]
NUMBERS += ["2147483648", "4294967295", "4294967296", str(2**63 - 1), str(10**20), "9" * 5000]
FRACTIONS = ["0", "0.5", "1", "-0.1", "nan", "inf", "-inf", "1e400", "1e-400", "0,5", "½"]
HOSTILE = ["", " ", "-", "--", "..", ".", "*", "~", "a\nb", "a\rb", "\x1b[31m", "\udcff", "🐦"]
HOSTILE += ["a" * 300, "a/" * 3000, "%s", "{}", "'", '"', "[", "]", "[[", "a[b", "a[b=", "=", "a="]
HOSTILE += [
    "null",
    "None",
    "../../etc",
    "file.py:X",
    ":",
    "a:b:c",
    "::",
    "json:dumps",
    "mdmt:Stream",
]
HOSTILE += ["mdmt.methods:Method", "broken:X", "leaves:X", "./broken.py:X", "nosuch:X", "CON", "\t"]
# What lies in the folder in which the lines are tried.
PLACES = [
    "runs",
    "model",
    "data.npz",
    "data.csv",
    "text.txt",
    "photos",
    "empty",
    "missing",
    "new/x",
]
SETTINGS = ["lr", "batch", "epochs", "memory", "policy", "heads", "stream", "optimiser", "augment"]
SETTINGS += ["reference_batch", "scale", "distance", "average", "last_step", "reading", "head"]
SETTINGS += ["answer", "mirror", "review", "smoothing", "statistics", "teacher", "warm_up"]
VALUES = ["SGD", "Adam", "LBFGS", "SparseAdam", "Optimizer", "Muon", "Ring", "Reservoir", "shared"]
VALUES += ["per-task", "own", "published", "true", "none", "l1", "crop-flip", *NUMBERS, *FRACTIONS]
VALUES += ["asymmetric", "average", "memory", "ncm"]
SENSIBLE = {  # values that a name suggests, by the name of the parameter
    "benchmark": [*BENCHMARKS, "split-digits", "permuted-digits", "folder"],
    "method": [*METHODS, "mdmt-r[distance=none]", "er[lr=0.1,batch=5]"],
    "methods": ["all", "paper", "er", "van,er", "er,er", "er,mdmt-r[scale=20]"],
    "against": ["er", "van", "mdmt-r"],
    "grid": ["lr", "lr=0.1,0.3", "heads=shared,per-task", "lr=0.1", "epochs=0", "scale=1,a"],
    "set": [f"{key}={value}" for key in SETTINGS for value in VALUES],
    "backbone": ["mlp", "resnet18", "reduced_resnet18[width=4]", "reduced_resnet18[width=10**9]"],
    "device": ["cpu", "auto", "cuda", "cuda:9", "mps", "meta"],
    "workers": ["auto", "1", "0", "-1", "10000000"],
    "cluster": ["auto", "127.0.0.1:1", "host:99999"],
    "checkpoint_every": ["30s", "5m", "100", "0s", "-1s", "1e3s", "9" * 400 + "h"],
    "memory": ["50MB", "1kB", "0", "-1MB", "1e400GB", "10 MB", "9" * 400 + "MB"],
    "run": ["1234", "runs", "split-digits"],
    "runs": ["runs", "1234"],
    "model": ["model"],
    "data": ["data.npz", "data.csv", "photos", "empty", "text.txt"],
    "inputs": ["data.npz", "data.csv", "photos/a/1.png", "text.txt"],
    "name": ["mnist", "cifar100", "cub", "digits"],
    "format_": ["table", "markdown", "latex", "csv"],
    "since": ["2026-11-16", "2026-11-16T14:00", "2026-13-45", "0001-01-01"],
    "from_": ["https://127.0.0.1:1", "http://127.0.0.1:1", "ftp://x", "file:///etc/passwd", "//"],
    "weights": ["imagenet", "text.txt"],
    "host": ["127.0.0.1", "0.0.0.0", "::1", "256.1.1.1"],
    "classes": ["a", "b"],
    "tasks": ["first", "1", "2", "5", "6"],
    "task": ["first"],
    "examples": ["text.txt", "empty"],
    "label": ["c", "x"],
    "log": ["tensorboard"],
}
UNWRITTEN = [text for text in HOSTILE if "/" not in text and text not in ("..", ".", "~")]
WRITES = ("out", "to", "figures", "onnx")  # options that name what is written: inside the folder


@dataclass(frozen=True)
class Parameter:
    """An option or argument of a command."""

    name: str
    flag: str | None  # None: an argument
    kind: type
    is_required: bool
    sensible: list[str]
    hostile: list[str]


def commands():
    """The parameters of each command, by its words."""
    return dict(_walk(typer.main.get_command(app), ()))


def _walk(command, words):
    if hasattr(command, "commands"):
        for name, below in command.commands.items():
            yield from _walk(below, (*words, name))
    else:
        yield words, [_parameter(one) for one in command.params]


def _parameter(one):
    kind = one.type_descriptor.annotation
    while get_args(kind):  # list[str] | None
        kind = next(part for part in get_args(kind) if part is not NoneType)
    flag = one.opts[0] if one.param_type_name == "option" else None
    limits = [limit for limit in (one.min, one.max) if limit is not None]
    sensible = [str(limit + more) for limit in limits for more in (-1, 0, 1)]
    sensible += (one.metavar or "").lower().split("|") if "|" in (one.metavar or "") else []
    sensible += SENSIBLE.get(one.name, [])
    hostile = {int: NUMBERS, float: FRACTIONS}.get(kind, [*PLACES, *HOSTILE])
    if one.name in WRITES:
        sensible, hostile = [*PLACES, *sensible], [f"new/{text}" for text in UNWRITTEN]
    return Parameter(one.name, flag, kind, one.required, sensible or hostile, hostile)


@st.composite
def lines(draw, table):
    """A command line; most make sense up to one or two words."""
    words = draw(st.sampled_from(sorted(table)))
    parts = []
    for parameter in table[words]:
        often = parameter.is_required or parameter.flag is None
        if not draw(st.integers(0, 9)) < (9 if often else 2):
            continue
        if parameter.kind is bool:
            parts.append([parameter.flag])
            continue
        is_sensible = draw(st.integers(0, 9)) < 8
        value = draw(st.sampled_from(parameter.sensible if is_sensible else parameter.hostile))
        parts.append([value] if parameter.flag is None else [parameter.flag, value])
        if parameter.flag is not None and draw(st.integers(0, 19)) == 0:
            parts.append(draw(st.sampled_from([[parameter.flag], [f"{parameter.flag}={value}"]])))
    if draw(st.integers(0, 19)) == 0:
        parts.append(
            draw(st.sampled_from([["--nosuch"], ["more"], ["--help"], ["--json=1"], ["-x"]]))
        )
    parts = draw(st.permutations(parts)) if draw(st.booleans()) else parts
    return [*words, *(word for part in parts for word in part)]
