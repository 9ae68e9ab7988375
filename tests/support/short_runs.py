"""Runs of two short tasks, done in a fraction of a second."""

from dataclasses import replace

from mdmt.experiments.run import run
from mdmt.runs.config import folder_of
from mdmt.runs.folder import RunFolder
from support.configs import config_for
from support.helpers import small_stream

SETTINGS = {
    "ewc": {"window": 2},
    "rwalk": {"window": 2},
    "pi": {"strength": 0.1},
    "mas": {"strength": 1e-12},
    "mer": {"replay": 1, "batch": 10},
}


def config_of(name, kind):
    """A run of two short tasks on a narrow network."""
    benchmark = "split-digits" if kind == "resnet" else "permuted-digits"
    config = config_for(
        benchmark, name, tasks=2, settings={"lr": 0.02, "memory": 2, **SETTINGS.get(name, {})}
    )
    width = {"channels": 1, "width": 2} if kind == "resnet" else {"inputs": 784, "width": 12}
    return replace(config, backbone={**config.backbone, "arguments": width})


def small(config, **_):
    return small_stream(config.benchmark, tasks=config.tasks, train=30, test=10)


def done(config, out, **more):
    """The record of a run and its step log without times."""
    record = run(config, out, **more).to_json()
    return {**record, "kept": [row[:4] for row in RunFolder(folder_of(config, out)).steps]}


def essence(record):
    kept = (
        "accuracy",
        "accuracy_task_free",
        "curve",
        "drift",
        "dead_features",
        "feature_rank",
        "steps",
        "weights_sha256",
        "memory_bytes",
        "buffer_bytes",
        "metrics",
        "tasks",
        "kept",
    )
    return {key: record[key] for key in kept}
