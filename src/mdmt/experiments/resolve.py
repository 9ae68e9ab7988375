"""From a request to the configurations of its runs, and checks of configurations."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Literal, get_origin, get_type_hints

import mdmt.benchmarks as benchmarks
import mdmt.memory as memory
from mdmt.benchmarks.permuted_mnist import published_order
from mdmt.data.fetch import fetch_weights
from mdmt.data.sources import IMAGENET_RESNET18, locate
from mdmt.errors import Mistake
from mdmt.experiments.networks import backbone_for, image_size_for
from mdmt.experiments.presets import HAS_BEST, USUAL, best_settings, preset
from mdmt.inputs.augment import check_augmentation
from mdmt.learning.arguments import device_of, precision_of
from mdmt.memory import POLICIES, share_to_draw
from mdmt.methods import METHODS
from mdmt.methods.base import Method
from mdmt.network.optimiser import Optimiser
from mdmt.published import own_paper
from mdmt.published.settings import ONE_STREAM
from mdmt.runs.config import FIELD_CHECKS, RunConfig
from mdmt.runs.request import RunRequest, label_of, parse_variant
from mdmt.system.own_code import is_own, load, source_sha256
from mdmt.tasks import Stream

COMMON_TYPES = {  # settings that every method has, with their types
    "lr": float,
    "batch": int,
    "epochs": int,
    "memory": int,
    "policy": str,
    "heads": str,
    "stream": str,
    "optimiser": str,
    "augment": str,
}


def resolve(
    request: RunRequest, *, cross_validation: bool = False, like: RunConfig | None = None
) -> RunConfig:
    """The configuration of a request's first run.

    With `cross_validation` the run learns the tasks that are held out for choosing settings. `like`
    is a configuration on the same data: its fingerprint is copied, since taking it reads every
    image.
    """
    bench = benchmarks.find(request.benchmark)
    name, own = parse_variant(request.method)
    own |= request.settings
    chosen = own.pop("preset", USUAL)
    kind = find_method(name)
    values = preset(bench.name, name, chosen)
    values |= convert_all(own, kind, f"{name} on {bench.name}")
    heads = values.get("heads", bench.heads[0])
    policy = own.get("policy") or kind.policy or values["policy"]
    tasks = request.tasks
    if tasks is None:
        tasks = bench.held_out if cross_validation else bench.tasks
    check_stream(bench, heads, tasks, cross_validation)
    bench.check_options(
        data=request.data,
        image_size=request.image_size,
        weights=request.weights,
        skip_broken=request.skip_broken,
    )
    asked = parse_variant(request.backbone) if request.backbone else None
    network = backbone_for(bench, asked, request.weights)
    weights = str(fetch_weights(request.data)) if request.weights == "imagenet" else request.weights
    classes = bench.classes(request.data, tasks)
    device = device_of(request.device)
    if bench.is_own and "reference_batch" not in own:
        values["reference_batch"] = share_to_draw(classes * values["memory"], values["batch"])
    arguments = {key: values[key] for key in argument_types(kind) if key in values}
    optimiser = Optimiser(values.get("optimiser", "SGD"), values["lr"])
    return RunConfig(
        benchmark=bench.name,
        tasks=tasks,
        heads=heads,
        stream=_stream_choice(values.get("stream", "own"), bench),
        method=name,
        arguments=kind(**arguments).arguments,
        memory=memory_spec(policy, values["memory"], classes),
        backbone=network,
        lr=optimiser.lr,
        batch=values["batch"],
        epochs=values["epochs"],
        optimiser=optimiser.name,
        augment=_augmentation(values, bench),
        image_size=request.image_size or image_size_for(bench, network["name"]),
        subset=request.subset,
        weights=None if weights is None else file_sha256(weights),
        weights_file=weights,
        data=request.data,
        fingerprint=like.fingerprint if like else fingerprint_for(bench, request.data),
        skip_broken=request.skip_broken,
        cross_validation=cross_validation,
        validation=bench.validation if cross_validation else None,
        source=None if name in METHODS else source_sha256(kind.__module__),
        network_source=_network_source(network["name"]),
        seed=request.seed,
        threads=request.threads,
        device=FIELD_CHECKS["device"]("device", str(device)),
        precision=precision_of(request.precision, device),
        keep_model=request.keep_model,
        evaluate_every=request.evaluate_every,
        label=label_of(name, own if chosen == USUAL else {**own, "preset": chosen}),
    ).checked()


def configs_for(request: RunRequest, variants: list[str]) -> list[list[RunConfig]]:
    """The configurations of each variant, one per seed of the request.

    A setting of the request goes to the methods that have it; a variant's own settings win.
    """
    free = _free_settings(request, variants)
    configs: list[list[RunConfig]] = []
    for variant in variants:
        settings = {key: value for key, value in request.settings.items() if key in free[variant]}
        plain = replace(request, method=variant, set=None, reading=None, preset=None)
        like = configs[0][0] if configs else None
        first = resolve(plain.with_settings(settings), like=like)
        configs.append(with_seeds(first, request.all_seeds))
    return configs


def with_seeds(config: RunConfig, seeds: Iterable[int]) -> list[RunConfig]:
    return [replace(config, seed=seed) for seed in seeds]


def _free_settings(request: RunRequest, variants: list[str]) -> dict[str, set[str]]:
    """The settings that each variant has and does not set itself.

    Refuses settings of the request that no variant has, or that all variants set themselves.
    """
    available: set[str] = set()
    free: dict[str, set[str]] = {}
    for variant in variants:
        name, own = parse_variant(variant)
        keys = {*COMMON_TYPES, *argument_types(find_method(name))}
        if name == HAS_BEST:
            keys.add("preset")
        available |= keys
        free[variant] = keys - set(own)
    for key in request.settings:
        if key == "preset" and key not in available:
            best_settings(request.benchmark, parse_variant(variants[0])[0])
        if key not in available:
            raise Mistake(
                f"setting {key!r} is unknown; these methods take {', '.join(sorted(available))}"
            )
        if not any(key in keys for keys in free.values()):
            raise Mistake(f"setting {key!r} is what these variants differ in: each has its own")
    return free


def find_method(name: str) -> type[Method]:
    """A method by name, or the user's own by `module:Class` or `file.py:Class`."""
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
    if kind is Method:
        raise Mistake(f"method {name!r}: Method is the base class: name a subclass of it")
    return kind


def argument_types(kind: type[Method]) -> dict[str, Any]:
    """The types of a method's arguments, by name."""
    names = kind.__dataclass_fields__
    hints = get_type_hints(kind, localns={"Learner": Any})
    return {name: hint for name, hint in hints.items() if name in names}


def convert_all(settings: dict[str, str], kind: type[Method], name: str) -> dict[str, Any]:
    """Convert the texts of settings to their types; an unknown setting is refused."""
    types = {**COMMON_TYPES, **argument_types(kind)}
    for key in settings:
        if key not in types:
            raise Mistake(f"setting {key!r} is unknown; {name} takes {', '.join(sorted(types))}")
    return {key: convert(key, value, types[key]) for key, value in settings.items()}


def convert(key: str, value: str, hint: Any) -> Any:
    """Convert the text of a setting to its type."""
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


def _network_source(name: str) -> str | None:
    return source_sha256(name.partition(":")[0]) if is_own(name) else None


def _stream_choice(name: str, bench: benchmarks.Benchmark) -> str:
    if name not in ("own", "published"):
        raise Mistake(f"stream={name}: must be own or published")
    if name == "published" and bench.name not in ONE_STREAM:
        raise Mistake(
            f"stream=published is for {', '.join(ONE_STREAM)}, whose published runs all had one"
            f" stream; {bench.name} has a stream for each seed"
        )
    return name


def _augmentation(values: dict[str, Any], bench: benchmarks.Benchmark) -> str:
    """How images are augmented; without images, it and `mirror` are refused before the run."""
    name = check_augmentation(values.get("augment", "none"))
    if name != "none" and not bench.has_images:
        raise Mistake(f"augment={name}: {bench.name} has no images to shift and mirror")
    if values.get("mirror") and not bench.has_images:
        raise Mistake(f"mirror=true: {bench.name} has no images to mirror")
    return name


def fingerprint_for(bench: benchmarks.Benchmark, data: str | None) -> str | None:
    """A hash of the images in a folder; None for published data sets and missing ones."""
    if bench.fingerprint is None:
        return None
    try:
        return bench.fingerprint(data)
    except Mistake:
        if data is None:  # before a run, check_data_present says how to get the data
            return None
        raise


def check_stream(
    bench: benchmarks.Benchmark, heads: str, tasks: int | None, cross_validation: bool
) -> None:
    """Refuse a kind of heads or a number of tasks that the benchmark does not have."""
    if heads not in bench.heads:
        raise Mistake(f"heads={heads!r}: {bench.name} takes {' or '.join(bench.heads)}")
    if cross_validation and not bench.held_out:
        others = ", ".join(b.name for b in benchmarks.BENCHMARKS.values() if b.held_out)
        raise Mistake(
            f"{bench.name} has no held-out tasks to choose settings on; these have: {others}"
        )
    most = (bench.most_held_out or bench.held_out) if cross_validation else bench.limit
    if tasks is None and bench.tasks is not None:
        raise Mistake(f"tasks={tasks}: {bench.name} takes 1 to {most}")
    if tasks is not None and not 1 <= tasks <= most:
        kind = " held-out ones" if cross_validation else ""
        raise Mistake(f"tasks={tasks}: {bench.name} takes 1 to {most}{kind}")


def check_config(config: RunConfig) -> None:
    """Refuse a configuration from a file that this version cannot run."""
    bench = benchmarks.find(config.benchmark)
    check_stream(bench, config.heads, config.tasks, config.cross_validation)
    _stream_choice(config.stream, bench)
    bench.check_options(data=config.data, image_size=config.image_size, weights=config.weights_file)
    if config.cross_validation and config.validation != bench.validation:
        raise Mistake(
            f"{bench.name}: this run tested held-out tasks on the test images; tune again"
        )
    kind = find_method(config.method)
    unknown = set(config.arguments) - set(argument_types(kind))
    if unknown:
        raise Mistake(f"{config.method} has no setting {', '.join(sorted(unknown))}")
    kind(**config.arguments)
    if not is_own(config.backbone["name"]) and _inputs(config.backbone) != _inputs(bench.backbone):
        kind_of_network = "networks of images" if bench.has_images else bench.backbone["name"]
        raise Mistake(f"backbone: {bench.name} takes {kind_of_network}, of any width")
    try:
        memory.make(config.memory)
    except (KeyError, TypeError):
        raise Mistake(
            f"memory is {config.memory}: unknown policy, or a size that it does not take"
        ) from None


def _inputs(backbone: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The kind of inputs that a network takes; all networks of images take the same."""
    arguments = {
        key: value
        for key, value in backbone["arguments"].items()
        if key not in ("width", "norm_start")
    }
    return "images" if "channels" in arguments else backbone["name"], arguments


def check_data_present(config: RunConfig) -> None:
    """Refuse a run whose data set is missing; the message says how to get it."""
    name = benchmarks.find(config.benchmark).data
    if name and name != "DIR":
        locate(name, config.data)


def stream_for(config: RunConfig, **more: Any) -> Stream:
    """The stream of a configuration."""
    published = ONE_STREAM[config.benchmark] if config.stream == "published" else None
    stream = benchmarks.find(config.benchmark).stream(
        config.seed if published is None else published,
        tasks=config.tasks,
        heads=config.heads,
        data=config.data,
        subset=config.subset,
        image_size=config.image_size,
        cross_validation=config.cross_validation,
        skip_broken=config.skip_broken,
        **more,
    )
    if published is None:
        return stream
    return replace(stream, order=partial(published_order, published))


def file_sha256(path: str) -> str:
    """The hash of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def memory_spec(policy: str, per_class: int, classes: int) -> dict[str, Any]:
    """The size of a memory for `per_class` examples of each class of each task."""
    if policy not in POLICIES:
        raise Mistake(f"policy={policy}: must be one of {', '.join(POLICIES)}")
    return POLICIES[policy].budget(per_class, classes)


def reduced(config: RunConfig, stream: Stream) -> dict[str, Any] | None:
    """The ways in which a run falls short of the benchmark's protocol, or None."""
    reasons = dict(stream.reduced or {})
    bench = benchmarks.find(config.benchmark)
    if bench.is_own:  # there is no protocol
        return reasons or None
    if config.backbone["name"] != bench.backbone["name"]:
        reasons["backbone"] = config.backbone["name"]
    if bench.tasks is not None and len(stream) != bench.tasks:
        reasons["tasks"] = len(stream)
    first_weights = _first_weights(bench, config)
    if first_weights is not None:
        reasons["weights"] = first_weights
    usual = preset(config.benchmark, config.method)["reference_batch"]
    own = (own_paper(config.benchmark, config.method) or {}).get("settings", {})
    size = config.arguments.get("reference_batch", usual)
    if size not in (None, usual, own.get("reference_batch")):
        reasons["reference_batch"] = size
    return reasons or None


def _first_weights(bench: benchmarks.Benchmark, config: RunConfig) -> str | None:
    """The first weights in words, or None if they are those of the published runs."""
    if config.weights is None and is_own(config.backbone["name"]):
        return "those that your network brings"
    if config.weights is None:
        return "from scratch, not from ImageNet" if bench.published_weights else None
    file = f"file {config.weights[:12]}"
    if config.weights == IMAGENET_RESNET18.sha256:
        file = "torchvision's"
    protocol = "the published checkpoint" if bench.published_weights else "from scratch"
    return f"{file}, not {protocol}"
