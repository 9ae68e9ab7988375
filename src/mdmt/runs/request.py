"""Methods, variants and settings as people write them: mdmt-r[distance=none], --set lr=0.1, all."""

from __future__ import annotations

import re
from typing import Any, Literal, get_origin, get_type_hints

import mdmt.runs.paper as paper
from mdmt.errors import Mistake
from mdmt.methods import METHODS, Method
from mdmt.system.own_code import canonical, is_own, load

LEARNING = {
    "lr": float,
    "batch": int,
    "epochs": int,
    "memory": int,
    "policy": str,
    "heads": str,
    "optimiser": str,
    "augment": str,
}


def argument_types(kind: type[Method]) -> dict[str, Any]:
    """The arguments of a method, with their types."""
    fields = kind.__dataclass_fields__  # type: ignore[attr-defined]
    hints = get_type_hints(kind, localns={"Learner": Any})
    return {name: hint for name, hint in hints.items() if name in fields}


def find_method(name: str) -> type[Method]:
    """A method by its name, or a person's own by `module:Class` or `file.py:Class`."""
    if name in METHODS:
        return METHODS[name]
    if not is_own(name):
        raise Mistake(
            f"method {name!r} is not one of {', '.join(METHODS)}; your own is given as module:Class"
        )
    kind = load("method", name)
    if not (isinstance(kind, type) and issubclass(kind, Method)):
        raise Mistake(
            f"method {name!r}: {name.rpartition(':')[2]} is not a subclass of mdmt.Method"
        )
    return kind


def parse_variant(text: str) -> tuple[str, dict[str, Any]]:
    """A method with arguments.

    >>> parse_variant("mdmt-r[distance=none,scale=20]")
    ('mdmt-r', {'distance': 'none', 'scale': '20'})
    """
    match = re.fullmatch(r"([^\[\]]+)(?:\[([^\[\]]*)\])?", text)
    if match is None:
        raise Mistake(f"method {text!r}: write it as name or name[key=value,...]")
    return canonical(match[1]), dict(
        parse_setting(item) for item in (match[2] or "").split(",") if item
    )


def parse_setting(text: str) -> tuple[str, str]:
    """A setting given as key=value."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise Mistake(f"setting {text!r}: write it as key=value")
    return key.strip(), value.strip()


def parse_settings(texts: list[str] | None, **options: str | None) -> dict[str, str]:
    """Settings given as key=value, by key, and those that have an option of their own.

    >>> parse_settings(["lr=0.1", "scale=20"], reading="paper", preset=None)
    {'lr': '0.1', 'scale': '20', 'reading': 'paper'}
    """
    given = {key: value for key, value in options.items() if value is not None}
    return dict(map(parse_setting, texts or [])) | given


def convert(key: str, value: Any, hint: Any) -> Any:
    """A setting's text as the type it has; anything but text is left as it is, for the method to
    check.
    """
    if not isinstance(value, str):
        return value
    if get_origin(hint) is Literal or hint is str:
        return value
    if hint is bool:
        if value.lower() not in ("true", "false"):
            raise Mistake(f"{key}={value}: must be true or false")
        return value.lower() == "true"
    try:
        return hint(value)
    except ValueError:
        raise Mistake(f"{key}={value}: must be a {'whole ' if hint is int else ''}number") from None


def split_methods(text: str) -> list[str]:
    """A list of methods, cut at the commas outside of brackets; `all` is those of the package,
    `paper` those of Table 1.

    >>> split_methods("mdmt-r[distance=none,scale=20], er")
    ['mdmt-r[distance=none,scale=20]', 'er']
    """
    items = [""]
    depth = 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            items.append("")
        else:
            items[-1] += letter
    groups = {"all": list(METHODS), "paper": list(paper.METHODS)}
    names: list[str] = []
    for item in items:
        if item.strip():
            names += groups.get(item.strip(), [item.strip()])
    if not names:
        raise Mistake(
            f"--methods {text!r}: write it as all, as paper, or as a list such as"
            " van,er,'mdmt-r[distance=none]'"
        )
    return list(dict.fromkeys(names))


def convert_all(settings: dict[str, Any], kind: type[Method], name: str) -> dict[str, Any]:
    """Settings as the types they have; an unknown one is refused."""
    types = {**LEARNING, **argument_types(kind)}
    for key in settings:
        if key not in types:
            raise Mistake(f"setting {key!r} is unknown; {name} takes {', '.join(sorted(types))}")
    return {key: convert(key, value, types[key]) for key, value in settings.items()}


def label_of(name: str, settings: dict[str, Any]) -> str:
    """A method with the settings that were asked for, in the order of their names."""
    if not settings:
        return name
    return f"{name}[{','.join(f'{key}={settings[key]}' for key in sorted(settings))}]"
