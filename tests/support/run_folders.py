"""Run folders written by hand, with numbers that follow from the seed: reports need no learning."""

import json
from dataclasses import replace

import numpy as np
from safetensors.numpy import save_file

from mdmt.metrics import metrics_of
from mdmt.runs.config import folder_of
from mdmt.runs.record import Record
from mdmt.system.state import StateFolder
from support.configs import config_for


def leave(
    out,
    variant="van",
    seed=1234,
    *,
    benchmark="permuted-digits",
    tasks=3,
    features=8,
    sample=20,
    **more,
):
    """A finished run; `more` goes into its config. The folder is given back."""
    config = replace(config_for(benchmark, variant, seed=seed, tasks=tasks), **more)
    folder = folder_of(config, out)
    folder.mkdir(parents=True)
    draw = np.random.default_rng([seed, *variant.encode()])
    joint = config.method == "joint"
    (folder / "config.json").write_text(json.dumps(config.to_json()))
    (folder / "record.json").write_text(json.dumps(record(draw, tasks, joint)))
    if not joint:
        shared = config.heads == "shared"
        save_file(
            snapshots(draw, tasks, features, sample, shared), folder / "snapshots.safetensors"
        )
    return folder


def interrupt(folder, learned, step=5):
    """Make a finished run one that has learned so many tasks and was stopped in the next, with a
    checkpoint.
    """
    whole = json.loads((folder / "record.json").read_text())
    tasks = whole["tasks"][: learned + 1]
    # Measured on tasks to come too.
    shared = json.loads((folder / "config.json").read_text())["heads"] == "shared"
    record = {name: whole[name][:learned] for name in ("accuracy", "accuracy_task_free", "drift")}
    for name in ("drift",) if shared else tuple(record):
        record[name] = [row[: i + 1] for i, row in enumerate(record[name])]
    record |= {name: whole[name] for name in ("seconds", "steps", "memory_bytes")}
    record |= {"curve": whole["curve"][:learned], "tasks": tasks, "weights_sha256": "0" * 64}
    state = {"tasks": tasks, "open": tasks[-1]["name"], "done": step, "record": record}
    StateFolder(folder / "checkpoint").write([], state)
    (folder / "record.json").unlink()


def record(draw, tasks, joint=False):
    accuracy = draw.uniform(0.5, 0.95, (tasks, tasks))
    drift = np.tril(draw.uniform(0, 0.3, (tasks, tasks)), -1) + np.triu(
        np.full((tasks, tasks), np.nan), 1
    )
    curve = np.sort(draw.uniform(0.1, 0.8, (tasks, 11)))
    if joint:
        accuracy[:-1] = np.nan
        drift[:-1], curve = np.nan, curve[:0]
    rows = [
        [[None if np.isnan(v) else float(v) for v in row] for row in m]
        for m in (accuracy, drift, curve)
    ]
    metrics = metrics_of(Record(rows[0], rows[0], rows[2] or [[None] * 11]))
    metrics |= {"F_T": None, "LTR": None} if joint else {}
    names = [
        {"name": f"permutation {i + 1}", "classes": [0, 1], "train": 400, "test": 100}
        for i in range(tasks)
    ]
    return {
        "accuracy": rows[0],
        "accuracy_task_free": rows[0],
        "drift": rows[1],
        "curve": rows[2],
        "tasks": names,
        "metrics": metrics,
        "seconds": float(draw.uniform(2, 90)),
        "steps": 40,
        "memory_bytes": int(draw.integers(0, 10**6)),
        "versions": {"mdmt": "0.1.0", "torch": "2.13.0"},
        "reduced": {"tasks": tasks},
        "finished": True,
    }


def snapshots(draw, tasks, features, sample, shared, classes=2):
    """As a run keeps them: three tasks followed, the first after every task."""
    made = {}
    followed = sorted({0, tasks // 2, tasks - 1})
    rows = classes if shared else classes * tasks
    head = draw.normal(size=(rows, features + 1)).astype(np.float32)
    for task in followed:
        own = np.arange(classes) + (0 if shared else classes * task)
        labels = np.resize(own, sample)
        made[f"labels.{task}"] = labels
        for after in range(tasks):
            if after >= task and (task == 0 or after in followed):
                vectors = 2 * head[labels, :-1] + task + draw.normal(size=(sample, features))
                lengths = np.linalg.norm(vectors, axis=1)
                made[f"features.{task}.{after}"] = (vectors / lengths[:, None]).astype(np.float16)
                made[f"lengths.{task}.{after}"] = lengths.astype(np.float32)
    made |= {f"head.0.{after}": head[:classes].copy() for after in range(tasks)}
    of_class = np.zeros(rows, int) if shared else np.repeat(np.arange(tasks), classes)
    return made | {"head": head, "head_of_class": of_class}
