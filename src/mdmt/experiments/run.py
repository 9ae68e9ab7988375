"""One run: one benchmark, one method, one seed; interrupted anywhere, it goes on where it was."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from mdmt import backbones, memory
from mdmt.checkpoints import Checkpoints
from mdmt.errors import Mistake, Stopped, go_on, summarise
from mdmt.experiments.config import RunConfig, folder_of
from mdmt.experiments.forecast import Forecast
from mdmt.experiments.resolve import find_method, reduced, stream_for
from mdmt.experiments.store import CHECKPOINT, MANIFESTS, RECORD, RunFolder
from mdmt.learner import Learner
from mdmt.methods.base import Method


def run(
    config: RunConfig,
    out: str | Path,
    *,
    fresh: bool = False,
    every: int | str | None = None,
    on_step: Callable[[Learner], None] | None = None,
    on_image: Callable[[int, int], None] | None = None,
    tell: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Do a run and give its record.

    A finished run is read, an unfinished one goes on from its last checkpoint, unless `fresh`. `every` is the number of steps
    or the time between checkpoints. `tell` is told what a person should know: a damaged checkpoint or record, or that it
    will take more than an hour.
    """
    path = folder_of(config, out)
    if not fresh and (record := RunFolder(path).finished_record) is not None:
        return record
    folder = RunFolder(path)
    with folder.lock(), asked_to_stop() as stop, failure_kept(folder) as attempt:
        checkpoints = Checkpoints(path / CHECKPOINT, every)
        if fresh:
            folder.clear()
        elif (record := folder.finished_record) is not None:  # another process finished it meanwhile
            return record
        elif folder.has(RECORD) and tell is not None:
            tell(f"{path / RECORD} is damaged: the run is done again")
        torch.set_num_threads(config.threads)
        stream = stream_for(config, **({"progress": on_image} if on_image and config.image_size else {}))
        learner = resumed(config, folder, tell)
        if learner is None:
            folder.begin(config)
            learner = learner_for(config)
        attempt.learner = learner
        what = f"{config.benchmark}, {config.label}, seed {config.seed}"
        forecast = Forecast(what, sum(map(learner.steps_of, stream)), tell or (lambda line: None))

        def after_step(learner: Learner) -> None:
            if stop.requested:
                checkpoints.write(learner)
                place = f"task {learner.current + 1}, step {learner.step_in_task}"
                raise Stopped(f"stopped at {place}; {go_on(fresh)} goes on from there ({path})")
            forecast.after_step(learner)
            if on_step is not None:
                on_step(learner)

        learned = learner.run(stream, on_step=after_step, checkpoint=checkpoints)
        record = {**learned.to_json(), "reduced": reduced(config, stream), "finished": True}
        snapshots = {name: tensor.numpy() for name, tensor in learner.recorder.snapshots.items()}
        folder.finish(record, learner.recorder.step_log, snapshots)
        return record


@dataclass
class Attempt:
    """A run that is going on; its learner says how far it came."""

    learner: Learner | None = None


@contextmanager
def failure_kept(folder: RunFolder) -> Iterator[Attempt]:
    """Write down what ends a run, with the task and the steps of it that were over; a stop is no failure."""
    folder.forget_failure()
    attempt = Attempt()
    try:
        yield attempt
    except Stopped:
        raise
    except Exception as error:
        learner = attempt.learner
        if learner is None:
            folder.fail(summarise(error), None, None)
        else:
            folder.fail(summarise(error), learner.current + 1, learner.step_in_task)
        raise


def learner_for(config: RunConfig, method: Method | None = None) -> Learner:
    """A fresh learner as the config asks, or with another method."""
    backbone = backbones.make(config.backbone)
    if config.weights_file is not None:
        backbones.load_imagenet(backbone, config.weights_file, config.seed)
    return Learner(
        backbone,
        method or find_method(config.method)(**config.arguments),
        memory=memory.make(config.memory),
        lr=config.lr,
        batch=config.batch,
        epochs=config.epochs,
        optimiser=config.optimiser,
        seed=config.seed,
        device=config.device,
    )


def resumed(config: RunConfig, folder: RunFolder, tell: Callable[[str], None] | None) -> Learner | None:
    """The learner of an unfinished run as its last good checkpoint has it; None where there is none."""
    checkpoint = folder.path / CHECKPOINT
    if not any((checkpoint / name).exists() for name in MANIFESTS):
        return None
    try:
        same = (folder.config.hash, folder.config.seed) == (config.hash, config.seed)
    except Mistake:
        same = False
    if not same:
        raise Mistake(f"{folder} holds a run of another configuration: use --fresh to start over, or another --out")
    method = find_method(config.method)(**config.arguments)
    try:
        return Learner.load(checkpoint, method=method, device=config.device, warn=tell)
    except ValueError as damage:
        raise Mistake(f"{damage}; no good checkpoint is left: use --fresh to start over") from None


@dataclass
class StopRequest:
    """Whether a run was asked to stop. No threading.Event: its lock would block a handler that interrupts another."""

    requested: bool = False


@contextmanager
def asked_to_stop() -> Iterator[StopRequest]:
    """A request that Ctrl-C or SIGTERM makes; a second Ctrl-C stops at once. Elsewhere than in the main thread: never."""
    stop = StopRequest()

    def handle(number: int, _: FrameType | None) -> None:
        if stop.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.requested = True

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
