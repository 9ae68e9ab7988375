"""One run: one benchmark, one method, one seed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from mdmt import backbones, memory
from mdmt.experiments.config import Config, config_hash, find_method, reduced, stream_for
from mdmt.learner import Learner
from mdmt.state import write_json


def folder_of(config: Config, out: str | Path) -> Path:
    """The run's folder: OUT/benchmark/method/<hash of the config>/<seed>."""
    method = config["method"].replace(":", ".")
    return Path(out, config["benchmark"], method, config_hash(config), str(config["seed"]))


def run(
    config: Config,
    out: str | Path,
    *,
    fresh: bool = False,
    on_step: Callable[[Learner], None] | None = None,
    on_image: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Do a run and give its record; a run that was finished before is read, unless `fresh`."""
    folder = folder_of(config, out)
    if not fresh and (done := read_record(folder)) is not None:
        return done
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config)
    torch.set_num_threads(config["threads"])
    stream = stream_for(config, **({"progress": on_image} if on_image and config["image_size"] else {}))
    learned = learner_for(config).run(stream, on_step=on_step)
    record = {**learned.to_json(), "reduced": reduced(config, stream), "finished": True}
    write_json(folder / "record.json", record)
    return record


def learner_for(config: Config) -> Learner:
    """A fresh learner as the config asks."""
    backbone = backbones.make(config["backbone"])
    if config["weights_file"] is not None:
        backbones.load_imagenet(backbone, config["weights_file"], config["seed"])
    return Learner(
        backbone,
        find_method(config["method"])(**config["arguments"]),
        memory=memory.make(config["memory"]),
        **{key: config[key] for key in ("lr", "batch", "epochs", "optimiser", "seed", "device")},
    )


def read_record(folder: Path) -> dict[str, Any] | None:
    """The record of a finished run, or None."""
    try:
        record: dict[str, Any] = json.loads((folder / "record.json").read_text())
    except (FileNotFoundError, ValueError):
        return None
    return record if record.get("finished") else None
