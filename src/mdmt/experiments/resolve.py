"""From what a person asks for to the configs of runs."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import mdmt.benchmarks as benchmarks
import mdmt.memory as memory
from mdmt.data.fetch import fetch_weights
from mdmt.data.sources import IMAGENET_RESNET18, locate
from mdmt.errors import Mistake
from mdmt.experiments.networks import backbone_for, image_size_for
from mdmt.experiments.presets import HAS_BEST, USUAL, best, preset
from mdmt.inputs.augment import check as check_augmentation
from mdmt.learning.arguments import device_of, precision_of
from mdmt.memory import POLICIES
from mdmt.methods import METHODS
from mdmt.runs.config import CHECKS, RunConfig
from mdmt.runs.request import (
    LEARNING,
    argument_types,
    convert_all,
    find_method,
    label_of,
    parse_variant,
)
from mdmt.system.own_code import is_own, source_sha256
from mdmt.tasks import Stream


def resolve(
    benchmark: str,
    method: str = "mdmt-r",
    *,
    seed: int = 1234,
    tasks: int | None = None,
    settings: dict[str, Any] | None = None,
    reading: str | None = None,
    threads: int = 1,
    device: str = "cpu",
    precision: str = "fp32",
    data: str | None = None,
    image_size: int | None = None,
    subset: int | None = None,
    weights: str | None = None,
    skip_broken: bool = False,
    backbone: str | None = None,
    keep_model: bool = False,
    cross_validation: bool = False,
    take_fingerprint: bool = True,
) -> RunConfig:
    """Everything a run needs, from a benchmark, a method or variant, and settings that differ from
    the preset.

    With `cross_validation` it learns the tasks held out for choosing settings, and none of the
    others. Who resolves many configs takes the fingerprint of the data once, for all of them.
    """
    bench = benchmarks.find(benchmark)
    benchmark = bench.name
    name, own = parse_variant(method)
    own |= settings or {}
    if reading is not None:
        own["reading"] = reading
    chosen = own.pop("preset", USUAL)
    kind = find_method(name)
    values = preset(benchmark, name, chosen) | convert_all(own, kind, f"{name} on {benchmark}")
    heads = values.get("heads", bench.heads[0])
    policy = own.get("policy") or kind.policy or values["policy"]
    if tasks is None:
        tasks = bench.held_out if cross_validation else bench.tasks
    check_stream(bench, heads, tasks, cross_validation)
    bench.check_options(data=data, image_size=image_size, weights=weights, skip_broken=skip_broken)
    network = backbone_for(bench, parse_variant(backbone) if backbone else None, weights)
    if weights == "imagenet":
        weights = str(fetch_weights(data))
    classes = bench.classes(data, tasks)
    place = device_of(device)
    if bench.is_own and "reference_batch" not in own:
        values["reference_batch"] = reference_batch_for(classes * values["memory"], values["batch"])
    return RunConfig(
        benchmark=benchmark,
        tasks=tasks,
        heads=heads,
        method=name,
        arguments=kind(
            **{key: values[key] for key in argument_types(kind) if key in values}
        ).arguments,
        memory=memory_spec(policy, values["memory"], classes),
        backbone=network,
        lr=values["lr"],
        batch=values["batch"],
        epochs=values["epochs"],
        optimiser=values.get("optimiser", "SGD"),
        augment=_augmentation(values.get("augment", "none"), bench),
        image_size=image_size or image_size_for(bench, network["name"]),
        subset=subset,
        weights=None if weights is None else file_sha256(weights),
        weights_file=weights,
        data=data,
        fingerprint=fingerprint_for(bench, data) if take_fingerprint else None,
        skip_broken=skip_broken,
        cross_validation=cross_validation,
        validation=bench.validation if cross_validation else None,
        source=None if name in METHODS else source_sha256(kind.__module__),
        network_source=_network_source(network["name"]),
        seed=seed,
        threads=threads,
        device=CHECKS["device"]("device", str(place)),
        precision=precision_of(precision, place),
        keep_model=keep_model,
        label=label_of(name, own if chosen == USUAL else {**own, "preset": chosen}),
    )


def reference_batch_for(kept: int, batch: int) -> int:
    """How many of so many kept examples are drawn at a step: a quarter of them, as many as new ones
    at least.

    >>> reference_batch_for(156, 10), reference_batch_for(20, 10), reference_batch_for(100_000, 10)
    (39, 10, 256)
    """
    return max(batch, min(256, kept // 4))


def _network_source(name: str) -> str | None:
    return source_sha256(name.partition(":")[0]) if is_own(name) else None


def _augmentation(name: str, bench: benchmarks.Benchmark) -> str:
    if check_augmentation(name) != "none" and not bench.has_images:
        raise Mistake(f"augment={name}: {bench.name} has no images to shift and mirror")
    return name


def fingerprint_for(bench: benchmarks.Benchmark, data: str | None) -> str | None:
    """What tells the images in a folder from others; None of a published data set, and of one that
    is not there yet.
    """
    if bench.fingerprint is None:
        return None
    try:
        return bench.fingerprint(data)
    except Mistake:
        if data is None:  # `check_there` says how to get it, when a run is to be done
            return None
        raise


def check_stream(
    bench: benchmarks.Benchmark, heads: str, tasks: int | None, cross_validation: bool
) -> None:
    """Refuse heads and numbers of tasks that the benchmark does not have."""
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
    """Refuse a config that was read from a file and that this version cannot run."""
    bench = benchmarks.find(config.benchmark)
    check_stream(bench, config.heads, config.tasks, config.cross_validation)
    bench.check_options(data=config.data, image_size=config.image_size, weights=config.weights_file)
    if config.cross_validation and config.validation != bench.validation:
        raise Mistake(
            f"{bench.name}: held-out tasks were tested on the test images then; tune anew"
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
            f"memory is {config.memory}: there is no such policy, or it takes another size"
        ) from None


def _inputs(backbone: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A network without what may differ between runs of one benchmark: all networks of images are
    alike.
    """
    arguments = {
        key: value
        for key, value in backbone["arguments"].items()
        if key not in ("width", "norm_start")
    }
    return "images" if "channels" in arguments else backbone["name"], arguments


def check_there(config: RunConfig) -> None:
    """Refuse a run whose data set is not there, saying how to get it."""
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
        skip_broken=config.skip_broken,
        **more,
    )


def file_sha256(path: str) -> str:
    """The hash of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def memory_spec(policy: str, per_class: int, classes: int) -> dict[str, Any]:
    """So many examples of each class of each task."""
    if policy not in POLICIES:
        raise Mistake(f"policy={policy}: must be one of {', '.join(POLICIES)}")
    return POLICIES[policy].budget(per_class, classes)


def reduced(config: RunConfig, stream: Stream) -> dict[str, Any] | None:
    """What makes a run less than the benchmark's protocol asks, or None."""
    reasons = dict(stream.reduced or {})
    bench = benchmarks.find(config.benchmark)
    if bench.is_own:  # has no protocol
        return reasons or None
    if config.backbone["name"] != bench.backbone["name"]:
        reasons["backbone"] = config.backbone["name"]
    if bench.tasks is not None and len(stream) != bench.tasks:
        reasons["tasks"] = len(stream)
    first_weights = _first_weights(bench, config)
    if first_weights is not None:
        reasons["weights"] = first_weights
    usual = preset(config.benchmark, config.method)["reference_batch"]
    size = config.arguments.get("reference_batch", usual)
    if size is not None and size != usual:
        reasons["reference_batch"] = size
    return reasons or None


def _first_weights(bench: benchmarks.Benchmark, config: RunConfig) -> str | None:
    """What training starts from, where the published runs started from something else."""
    if config.weights is None:
        return "from scratch, not from ImageNet" if bench.published_weights else None
    file = f"file {config.weights[:12]}"
    if config.weights == IMAGENET_RESNET18.sha256:
        file = "torchvision's"
    protocol = "the published checkpoint" if bench.published_weights else "from scratch"
    return f"{file}, not {protocol}"


def configs_for(
    benchmark: str, variants: list[str], seeds: range, settings: dict[str, str], **options: Any
) -> list[list[RunConfig]]:
    """For each variant the config of each seed. A setting goes to the methods that have it; a
    variant's own stays.
    """
    known: set[str] = set()  # the settings of all methods
    free: dict[str, set[str]] = {}  # of each variant, those that it does not set itself
    for variant in variants:
        name, own = parse_variant(variant)
        keys = {*LEARNING, *argument_types(find_method(name))}
        if name == HAS_BEST:
            keys.add("preset")
        known |= keys
        free[variant] = keys - set(own)
    for key in settings:
        if key == "preset" and key not in known:
            best(benchmark, parse_variant(variants[0])[0])
        if key not in known:
            raise Mistake(
                f"setting {key!r} is unknown; these methods take {', '.join(sorted(known))}"
            )
        if not any(key in keys for keys in free.values()):
            raise Mistake(f"setting {key!r} is what these variants differ in: each has its own")
    bench = benchmarks.find(benchmark)
    bench.check_options(data=options.get("data"))
    fingerprint = fingerprint_for(bench, options.get("data"))
    configs = []
    for variant in variants:
        fitting = {key: value for key, value in settings.items() if key in free[variant]}
        first = resolve(benchmark, variant, settings=fitting, take_fingerprint=False, **options)
        configs.append([replace(first, seed=seed, fingerprint=fingerprint) for seed in seeds])
    return configs


def find_row(name: str, variants: list[str], configs: list[list[RunConfig]]) -> str:
    """The label of the row that --against names: as it was asked for, by its label, or by its
    method when only one row has it.
    """
    labels = [seeds[0].label for seeds in configs]
    for names in (variants, labels):
        if name in names:
            return labels[names.index(name)]
    of_method = [seeds[0].label for seeds in configs if seeds[0].method == name]
    if len(of_method) != 1:
        raise Mistake(f"--against {name!r} is not one row of {', '.join(labels)}")
    return of_method[0]
