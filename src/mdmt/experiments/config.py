"""From what a person asks to all that determines a result."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import sys
from typing import Any, Literal, get_origin, get_type_hints

from mdmt import benchmarks
from mdmt.experiments.presets import preset
from mdmt.methods import METHODS, Method

Config = dict[str, Any]

LEARNING = {"lr": float, "batch": int, "epochs": int, "memory": int, "heads": str, "optimiser": str}
NEUTRAL: Config = {"threads": 1, "device": "cpu"}  # values at which a key does not count in the hash
NOT_HASHED = ("seed", "label")  # the seed is a folder of its own


def resolve(
    benchmark: str,
    method: str = "mdmt-r",
    *,
    seed: int = 1234,
    tasks: int | None = None,
    settings: dict[str, Any] | None = None,
    reading: str | None = None,
    threads: int = 1,
) -> Config:
    """Everything a run needs, from a benchmark, a method or variant, and settings that differ from the preset."""
    bench = benchmarks.find(benchmark)
    name, asked = parse_variant(method)
    asked |= settings or {}
    if reading is not None:
        asked["reading"] = reading
    made = find_method(name)
    hints = {k: h for k, h in get_type_hints(made, localns={"Learner": Any}).items() if k in made.__dataclass_fields__}  # type: ignore[attr-defined]
    allowed = {**LEARNING, **hints}
    for key in asked:
        if key not in allowed:
            raise ValueError(f"setting {key!r} is unknown; {name} on {benchmark} takes {', '.join(sorted(allowed))}")
    values = preset(benchmark, name) | {key: convert(key, value, allowed[key]) for key, value in asked.items()}
    heads = values.get("heads", bench.heads[0])
    if heads not in bench.heads:
        raise ValueError(f"heads={heads!r}: {benchmark} takes {' or '.join(bench.heads)}")
    count = bench.tasks if tasks is None else tasks
    if not 1 <= count <= bench.limit:
        raise ValueError(f"tasks={count}: {benchmark} takes 1 to {bench.limit}")
    label = name + (f"[{','.join(f'{k}={v}' for k, v in sorted(asked.items()))}]" if asked else "")
    return {
        "benchmark": benchmark,
        "tasks": count,
        "heads": heads,
        "method": name,
        "arguments": made(**{k: v for k, v in values.items() if k in hints}).arguments,
        "memory": memory_spec(made.policy or values["policy"], values["memory"], bench, count),
        "backbone": bench.backbone,
        **{key: values[key] for key in ("lr", "batch", "epochs")},
        "optimiser": values.get("optimiser", "SGD"),
        "seed": seed,
        "threads": threads,
        "device": "cpu",
        "label": label,
    }


def memory_spec(policy: str, per_class: int, bench: benchmarks.Benchmark, tasks: int) -> dict[str, Any]:
    """So many examples of each class of each task; a reservoir holds as many in all."""
    if policy == "Reservoir":
        return {"policy": policy, "size": per_class * bench.classes_per_task * tasks}
    return {"policy": policy, "per_class": per_class}


def config_hash(config: Config) -> str:
    """What names the run's folder: a hash of all that determines the result, but for the seed."""
    kept = {k: v for k, v in config.items() if k not in NOT_HASHED and v != NEUTRAL.get(k, object())}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:12]


def reduced(config: Config) -> dict[str, Any] | None:
    """What makes a run less than the benchmark's protocol asks, or None."""
    whole = benchmarks.find(config["benchmark"]).tasks
    return None if config["tasks"] == whole else {"tasks": config["tasks"]}


def find_method(name: str) -> type[Method]:
    """A method by its name, or a person's own by `module:Class`."""
    if name in METHODS:
        return METHODS[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ValueError(f"method {name!r} is not one of {', '.join(METHODS)}; your own is given as module:Class")
    if "" not in sys.path:
        sys.path.insert(0, "")  # a module in the current folder
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"method {name!r} cannot be loaded: {error}") from None
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise ValueError(f"method {name!r}: {attribute} is not a subclass of mdmt.Method")
    return found


def parse_variant(text: str) -> tuple[str, dict[str, Any]]:
    """A method with arguments.

    >>> parse_variant("mdmt-r[distance=none,scale=20]")
    ('mdmt-r', {'distance': 'none', 'scale': '20'})
    """
    match = re.fullmatch(r"([^\[\]]+)(?:\[([^\[\]]*)\])?", text)
    if match is None:
        raise ValueError(f"method {text!r}: write it as name or name[key=value,...]")
    return match[1], dict(parse_setting(item) for item in (match[2] or "").split(",") if item)


def parse_setting(text: str) -> tuple[str, str]:
    """A setting given as key=value."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"setting {text!r}: write it as key=value")
    return key.strip(), value.strip()


def convert(key: str, value: Any, hint: Any) -> Any:
    """A setting's text as the type it has; anything but text is left as it is, for the method to check."""
    if not isinstance(value, str):
        return value
    if get_origin(hint) is Literal or hint is str:
        return value
    if hint is bool:
        if value.lower() not in ("true", "false"):
            raise ValueError(f"{key}={value}: must be true or false")
        return value.lower() == "true"
    try:
        return hint(value)
    except ValueError:
        raise ValueError(f"{key}={value}: must be a {'whole ' if hint is int else ''}number") from None
