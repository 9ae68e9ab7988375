"""From what a person asks for to the configs of runs."""

from __future__ import annotations

import hashlib
import importlib
import re
import sys
from typing import Any, Literal, get_origin, get_type_hints

from mdmt import benchmarks, memory
from mdmt.data.fetch import fetch_weights
from mdmt.data.sources import IMAGENET_RESNET18, locate
from mdmt.errors import Mistake
from mdmt.experiments.config import RunConfig
from mdmt.experiments.presets import preset
from mdmt.memory import POLICIES
from mdmt.methods import METHODS, Method
from mdmt.tasks import Stream

LEARNING = {"lr": float, "batch": int, "epochs": int, "memory": int, "policy": str, "heads": str, "optimiser": str}


def resolve(
    benchmark: str,
    method: str = "mdmt-r",
    *,
    seed: int = 1234,
    tasks: int | None = None,
    settings: dict[str, Any] | None = None,
    reading: str | None = None,
    threads: int = 1,
    data: str | None = None,
    image_size: int | None = None,
    subset: int | None = None,
    weights: str | None = None,
    cross_validation: bool = False,
) -> RunConfig:
    """Everything a run needs, from a benchmark, a method or variant, and settings that differ from the preset.

    With `cross_validation` it learns the tasks held out for choosing settings, and none of the others.
    """
    bench = benchmarks.find(benchmark)
    name, asked = parse_variant(method)
    asked |= settings or {}
    if reading is not None:
        asked["reading"] = reading
    made = find_method(name)
    hints = argument_types(made)
    allowed = {**LEARNING, **hints}
    for key in asked:
        if key not in allowed:
            raise Mistake(f"setting {key!r} is unknown; {name} on {benchmark} takes {', '.join(sorted(allowed))}")
    values = preset(benchmark, name) | {key: convert(key, value, allowed[key]) for key, value in asked.items()}
    heads = values.get("heads", bench.heads[0])
    if tasks is None:
        tasks = bench.held_out if cross_validation else bench.tasks
    check_stream(bench, heads, tasks, cross_validation)
    bench.check_options(data=data, image_size=image_size, weights=weights)
    if weights == "imagenet":
        weights = str(fetch_weights(data))
    label = name + (f"[{','.join(f'{k}={v}' for k, v in sorted(asked.items()))}]" if asked else "")
    return RunConfig(
        benchmark=benchmark,
        tasks=tasks,
        heads=heads,
        method=name,
        arguments=made(**{k: v for k, v in values.items() if k in hints}).arguments,
        memory=memory_spec(asked.get("policy") or made.policy or values["policy"], values["memory"], bench, tasks),
        backbone=bench.backbone,
        lr=values["lr"],
        batch=values["batch"],
        epochs=values["epochs"],
        optimiser=values.get("optimiser", "SGD"),
        image_size=image_size or bench.image_size,
        subset=subset,
        weights=None if weights is None else file_sha256(weights),
        weights_file=weights,
        data=data,
        cross_validation=cross_validation,
        validation=bench.validation if cross_validation else None,
        source=None if name in METHODS else source_sha256(made),
        seed=seed,
        threads=threads,
        device="cpu",
        label=label,
    )


def check_stream(bench: benchmarks.Benchmark, heads: str, tasks: int | None, cross_validation: bool) -> None:
    """Refuse heads and numbers of tasks that the benchmark does not have."""
    if heads not in bench.heads:
        raise Mistake(f"heads={heads!r}: {bench.name} takes {' or '.join(bench.heads)}")
    if cross_validation and not bench.held_out:
        others = ", ".join(b.name for b in benchmarks.BENCHMARKS.values() if b.held_out)
        raise Mistake(f"{bench.name} has no held-out tasks to choose settings on; these have: {others}")
    most = bench.held_out if cross_validation else bench.limit
    if tasks is None and bench.tasks is not None:
        raise Mistake(f"tasks={tasks}: {bench.name} takes 1 to {most}")
    if tasks is not None and not 1 <= tasks <= most:
        kind = " held-out ones" if cross_validation else ""
        raise Mistake(f"tasks={tasks}: {bench.name} takes 1 to {most}{kind}")


def check_config(config: RunConfig) -> None:
    """Refuse a config that was read from a file and that this version cannot run."""
    bench = benchmarks.find(config.benchmark)
    check_stream(bench, config.heads, config.tasks, config.cross_validation)
    bench.check_options(data=config.data, image_size=config.image_size, weights=config.weights_file)
    if config.cross_validation and config.validation != bench.validation:
        raise Mistake(f"{bench.name}: held-out tasks were tested on the test images then; tune anew")
    made = find_method(config.method)
    unknown = ", ".join(sorted(set(config.arguments) - set(argument_types(made))))
    if unknown:
        raise Mistake(f"{config.method} has no setting {unknown}")
    made(**config.arguments)
    shapes = [{**spec["arguments"], "width": 0} for spec in (config.backbone, bench.backbone)]
    if config.backbone["name"] != bench.backbone["name"] or shapes[0] != shapes[1]:
        raise Mistake(f"backbone: {bench.name} takes {bench.backbone['name']}, of any width")
    try:
        memory.make(config.memory)
    except (KeyError, TypeError):
        raise Mistake(f"memory is {config.memory}: there is no such policy, or it takes another size") from None


def argument_types(made: type[Method]) -> dict[str, Any]:
    """The arguments of a method, with their types."""
    fields = made.__dataclass_fields__  # type: ignore[attr-defined]
    return {k: hint for k, hint in get_type_hints(made, localns={"Learner": Any}).items() if k in fields}


def check_there(config: RunConfig) -> None:
    """Refuse a run whose data set is not there; a ValueError says how to get it."""
    name = benchmarks.find(config.benchmark).data
    if name and name != "DIR":
        locate(name, config.data)


def stream_for(config: RunConfig, **more: Any) -> Stream:
    """The stream that a config asks for."""
    return benchmarks.find(config.benchmark).stream(
        config.seed,
        tasks=config.tasks,
        heads=config.heads,
        data=config.data,
        subset=config.subset,
        image_size=config.image_size,
        cross_validation=config.cross_validation,
        **more,
    )


def file_sha256(path: str) -> str:
    """A file's content, in short."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def memory_spec(policy: str, per_class: int, bench: benchmarks.Benchmark, tasks: int | None) -> dict[str, Any]:
    """So many examples of each class of each task (of ten tasks, where their number is not known)."""
    if policy not in POLICIES:
        raise Mistake(f"policy={policy}: must be one of {', '.join(POLICIES)}")
    return POLICIES[policy].budget(per_class, bench.classes_per_task * (tasks or 10))


def reduced(config: RunConfig, stream: Stream) -> dict[str, Any] | None:
    """What makes a run less than the benchmark's protocol asks, or None."""
    named = dict(stream.reduced or {})
    bench = benchmarks.find(config.benchmark)
    if bench.tasks is not None and len(stream) != bench.tasks:
        named["tasks"] = len(stream)
    first_weights = _first_weights(bench, config)
    if first_weights is not None:
        named["weights"] = first_weights
    usual = preset(config.benchmark, config.method)
    drawn = config.arguments.get("reference_batch")
    if drawn is not None and drawn != usual["reference_batch"]:
        named["reference_batch"] = drawn
    return named or None


def _first_weights(bench: benchmarks.Benchmark, config: RunConfig) -> str | None:
    """What training starts from, where the published runs started from something else."""
    if config.weights is None:
        return "from scratch, not from ImageNet" if bench.published_weights else None
    file = f"file {config.weights[:12]}"
    if config.weights == IMAGENET_RESNET18.sha256:
        file = "torchvision's"
    protocol = "the published checkpoint" if bench.published_weights else "from scratch"
    return f"{file}, not {protocol}"


def find_method(name: str) -> type[Method]:
    """A method by its name, or a person's own by `module:Class`."""
    if name in METHODS:
        return METHODS[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise Mistake(f"method {name!r} is not one of {', '.join(METHODS)}; your own is given as module:Class")
    if "" not in sys.path:
        sys.path.insert(0, "")  # a module in the current folder
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, SyntaxError) as error:
        raise Mistake(f"method {name!r} cannot be loaded: {error}") from None
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise Mistake(f"method {name!r}: {attribute} is not a subclass of mdmt.Method")
    return found


def source_sha256(made: type[Method]) -> str | None:
    """The module of a person's own method, in short: edited, it is another method. None where there is no file."""
    path = getattr(sys.modules[made.__module__], "__file__", None)
    return None if path is None else file_sha256(path)


def parse_variant(text: str) -> tuple[str, dict[str, Any]]:
    """A method with arguments.

    >>> parse_variant("mdmt-r[distance=none,scale=20]")
    ('mdmt-r', {'distance': 'none', 'scale': '20'})
    """
    match = re.fullmatch(r"([^\[\]]+)(?:\[([^\[\]]*)\])?", text)
    if match is None:
        raise Mistake(f"method {text!r}: write it as name or name[key=value,...]")
    return match[1], dict(parse_setting(item) for item in (match[2] or "").split(",") if item)


def parse_setting(text: str) -> tuple[str, str]:
    """A setting given as key=value."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise Mistake(f"setting {text!r}: write it as key=value")
    return key.strip(), value.strip()


def parse_settings(texts: list[str] | None, reading: str | None) -> dict[str, str]:
    """Settings given as key=value, by key; the reading is one of them.

    >>> parse_settings(["lr=0.1", "scale=20"], "paper")
    {'lr': '0.1', 'scale': '20', 'reading': 'paper'}
    """
    return dict(map(parse_setting, texts or [])) | ({} if reading is None else {"reading": reading})


def convert(key: str, value: Any, hint: Any) -> Any:
    """A setting's text as the type it has; anything but text is left as it is, for the method to check."""
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
    """A list of methods, cut at the commas outside of brackets; `all` is the twelve of Table 1.

    >>> split_methods("mdmt-r[distance=none,scale=20], er")
    ['mdmt-r[distance=none,scale=20]', 'er']
    """
    items, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            items.append("")
        else:
            items[-1] += letter
    named = [item.strip() for item in items if item.strip()]
    if not named:
        raise Mistake(f"--methods {text!r}: write it as all or as a list such as van,er,'mdmt-r[distance=none]'")
    return list(dict.fromkeys(name for item in named for name in (METHODS if item == "all" else [item])))


def configs_for(
    benchmark: str, variants: list[str], seeds: range, settings: dict[str, str], **options: Any
) -> list[list[RunConfig]]:
    """For each variant the config of each seed. A setting goes to the methods that have it; a variant's own stays."""
    asked = [parse_variant(variant) for variant in variants]
    allowed = [{*LEARNING, *argument_types(find_method(name))} for name, _ in asked]
    for key in settings:
        if not any(key in keys for keys in allowed):
            valid = ", ".join(sorted(set().union(*allowed)))
            raise Mistake(f"setting {key!r} is unknown; these methods take {valid}")
        if all(key in own or key not in keys for (_, own), keys in zip(asked, allowed, strict=True)):
            raise Mistake(f"setting {key!r} is what these variants differ in: each has its own")
    return [
        [
            resolve(
                benchmark, variant, seed=seed, **options,
                settings={k: v for k, v in settings.items() if k in keys and k not in own},
            )
            for seed in seeds
        ]
        for variant, (_, own), keys in zip(variants, asked, allowed, strict=True)
    ]  # fmt: skip


def find_row(name: str, variants: list[str], configs: list[list[RunConfig]]) -> str:
    """The label of the row that --against names: as it was asked for, by its label, or by its method when only one row has it."""
    labels: list[str] = [of_seed[0].label for of_seed in configs]
    for names in (variants, labels):
        if name in names:
            return labels[names.index(name)]
    of_method = [of_seed[0].label for of_seed in configs if of_seed[0].method == name]
    if len(of_method) != 1:
        raise Mistake(f"--against {name!r} is not one row of {', '.join(labels)}")
    return str(of_method[0])
