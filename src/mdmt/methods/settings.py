"""The settings of a method: annotated class attributes that become checked keyword arguments."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin, get_type_hints

from mdmt.errors import Mistake


def setting(
    *,
    default: Any,
    least: float | None = None,
    above: float | None = None,
    below: float | None = None,
    later: bool = False,
) -> Any:
    """A hyper-parameter with its default (None: the method chooses) and its range.

    A setting that was added after a release is marked `later`: at its default it is left out of
    `arguments`, so that runs finished before keep their configuration hash.
    """
    metadata = {"least": least, "above": above, "below": below, "later": later}
    return dataclasses.field(default=default, metadata=metadata)


class Configurable:
    """Checks the settings of a dataclass, and lists them by name."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self), localns={"Callable": Callable})
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            _check(type(self).__name__, field, hints[field.name], getattr(self, field.name))

    @property
    def arguments(self) -> dict[str, Any]:
        """The settings by name."""
        values = {f: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        return {
            f.name: value
            for f, value in values.items()
            if not (f.metadata.get("later") and value == f.default)
        }


def class_name(method: Any) -> str:
    """The name of one of our methods; module:Class of any other method, also of a subclass."""
    kind = type(method)
    if kind.__module__.startswith("mdmt.methods."):
        return str(kind.name)
    return f"{kind.__module__}:{kind.__qualname__}"


def _check(method: str, field: dataclasses.Field[Any], hint: Any, value: Any) -> None:
    """Raise a Mistake that names the setting, its value and the allowed values."""
    where = f"{method}: {field.name}={value!r}"
    if value is None and field.default is None:
        return
    if get_origin(hint) is Literal and value not in get_args(hint):
        raise Mistake(f"{where}: must be one of {', '.join(map(repr, get_args(hint)))}")
    if hint is bool and not isinstance(value, bool):
        raise Mistake(f"{where}: must be true or false")
    if hint in (int, float):
        _check_number(where, field, hint, value)


def _check_number(where: str, field: dataclasses.Field[Any], hint: type, value: Any) -> None:
    kinds = (int,) if hint is int else (int, float)
    if not isinstance(value, kinds) or isinstance(value, bool) or not math.isfinite(value):
        raise Mistake(f"{where}: must be a {'whole' if hint is int else 'finite'} number")
    least, above = field.metadata.get("least"), field.metadata.get("above")
    if least is not None and value < least:
        raise Mistake(f"{where}: must be {least} or more")
    if above is not None and value <= above:
        raise Mistake(f"{where}: must be more than {above}")
    below = field.metadata.get("below")
    if below is not None and value >= below:
        raise Mistake(f"{where}: must be less than {below}")
