"""One run: one benchmark, one method, one seed. An interrupted run can be continued."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

import mdmt.memory as memory
import mdmt.ranks as ranks
from mdmt.errors import EXPECTED, Mistake, Stopped, is_out_of_memory, summarise
from mdmt.experiments.networks import make_network
from mdmt.experiments.resolve import find_method, reduced, stream_for
from mdmt.experiments.tensorboard import write_events
from mdmt.learner import Learner
from mdmt.learning.checkpoints import Checkpoints
from mdmt.methods.base import Method
from mdmt.runs.config import RunConfig, folder_of
from mdmt.runs.folder import CHECKPOINT, MODEL, RECORD, RunFolder
from mdmt.runs.record import RunRecord
from mdmt.runs.snapshots import Snapshots
from mdmt.system.own_code import is_own
from mdmt.system.processes import resuming_command, stop_request
from mdmt.tasks import Stream

LONG = 3600.0  # seconds
# A forecast is made after this many steps of a task, or this many seconds.
FORECAST_STEPS = 20
FORECAST_SECONDS = 5.0
REPEATED = (
    "more ranks do not make this network faster: because of its batch norm or dropout, every rank"
    " computes whole batches"
)


@dataclass(frozen=True)
class _Options:
    """How a run is done, as the caller of `run` asks."""

    fresh: bool = False
    every: int | str | None = None
    events: bool = False
    on_step: Callable[[Learner], None] | None = None
    on_image: Callable[[int, int], None] | None = None
    warn: Callable[[str], None] | None = None

    def tell(self, line: str) -> None:
        if self.warn is not None:
            self.warn(line)


def run(
    config: RunConfig,
    out: str | Path,
    *,
    fresh: bool = False,
    every: int | str | None = None,
    events: bool = False,
    on_step: Callable[[Learner], None] | None = None,
    on_image: Callable[[int, int], None] | None = None,
    on_read: Callable[[RunFolder], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> RunRecord:
    """Do a run and return its record.

    Unless `fresh`, a finished run is read, and then `on_read` is called; an unfinished one goes on
    from its last checkpoint. With `fresh` the run starts over. A finished result stays until the
    new one is complete; if the new run is interrupted, the next call without `fresh` goes on with
    it. `every` is the number of steps or the time between checkpoints. With `events`, files for
    TensorBoard are written too. `warn` is called with a line for the user: a checkpoint or record
    is damaged, or the run will take more than an hour.
    """
    folder = RunFolder(folder_of(config, out))
    record = None if fresh else ranks.first(lambda: finished_record(folder, config))
    if record is None:
        options = _Options(fresh, every, events, on_step, on_image, warn)
        try:
            with _locked(folder):
                record = _learn(config, folder, options)
        except Mistake:
            if ranks.rank() == 0:
                folder.remove_if_not_begun()
            raise
    elif on_read is not None:
        on_read(folder)
    if events and ranks.rank() == 0:
        write_events(folder.path, record.accuracy, folder.steps)
    return record


def finished_record(folder: RunFolder, config: RunConfig) -> RunRecord | None:
    """The record of a finished run that is not being done again.

    If a model is asked for that the run did not keep, it is refused.
    """
    record = folder.finished_record if folder.workplace() is folder else None
    if record is not None:
        folder.check_model(config)
        folder.drop_checkpoint()
    return record


@contextmanager
def _locked(folder: RunFolder) -> Iterator[None]:
    """Lock the folder of a run; of several ranks the first one, which writes, holds the lock."""
    with ExitStack() as stack:
        ranks.first(lambda: stack.enter_context(folder.lock()))
        yield


def _learn(config: RunConfig, folder: RunFolder, options: _Options) -> RunRecord:
    """Do a run that is not finished, from its last checkpoint if it has one."""
    work = ranks.first(lambda: folder.workplace(fresh=options.fresh))
    with stop_request() as stop, _failure_written(work, is_own=is_own(config.method)) as attempt:
        checkpoints = Checkpoints(work.path / CHECKPOINT, options.every)
        record = None if options.fresh else ranks.first(lambda: finished_record(folder, config))
        if options.fresh:
            ranks.first(work.clear)
        elif record is not None:  # another process finished it meanwhile
            return record
        elif work.has(RECORD):
            options.tell(f"{folder.path / RECORD} is damaged: the run is done again")
        torch.set_num_threads(config.threads)
        stream = ranks.together(lambda: _stream(config, options))
        learner = _resume(config, work, options.warn) or _begin(config, work)
        attempt.learner = learner
        forecast = Forecast(_name(config), sum(map(learner.steps_of, stream)), options.warn)

        def after_step(learner: Learner) -> None:
            if ranks.any_of(stop.requested):
                checkpoints.write(learner)
                place = f"task {learner.current + 1}, step {learner.step_in_task}"
                again = resuming_command(options.fresh)
                raise Stopped(f"stopped at {place}; {again} goes on from there ({folder})")
            forecast.after_step(learner)
            _after_step(learner, work, options)

        learned = learner.run(
            stream,
            on_step=after_step,
            checkpoint=checkpoints,
            evaluate_every=config.evaluate_every,
        )
        record = RunRecord.of(learned, reduced(config, stream), ranks.size())
        ranks.first(lambda: _finish(config, folder, learner, record))
        return record


def _name(config: RunConfig) -> str:
    return f"{config.benchmark}, {config.label}, seed {config.seed}"


def _stream(config: RunConfig, options: _Options) -> Stream:
    progress = {"progress": options.on_image} if options.on_image and config.image_size else {}
    stream = stream_for(config, **progress)
    for note in stream.notes:
        options.tell(note)
    return stream


def _after_step(learner: Learner, folder: RunFolder, options: _Options) -> None:
    if learner.record.steps == 1 and learner.model.repeats_batches:
        options.tell(REPEATED)
    # The first step of a task: the task before it is over.
    if options.events and learner.step_in_task == 1 and ranks.rank() == 0:
        write_events(folder.path, learner.record.accuracy, learner.recorder.step_log)
    if options.on_step is not None:
        options.on_step(learner)


def _finish(config: RunConfig, folder: RunFolder, learner: Learner, record: RunRecord) -> None:
    taken = learner.recorder.snapshots
    snapshots = Snapshots({name: tensor.numpy() for name, tensor in taken.items()})
    if config.keep_model:
        learner.save(folder.path / MODEL)
    folder.finish(config, record, learner.recorder.step_log, snapshots)


def _begin(config: RunConfig, folder: RunFolder) -> Learner:
    learner = ranks.together(lambda: learner_for(config))
    ranks.first(lambda: folder.begin(config))
    return learner


def _own_device(config: RunConfig) -> str:
    """The device of this process; each of several ranks has its own GPU."""
    if ranks.size() == 1 or config.device == "cpu":
        return config.device
    if config.device != "cuda":
        raise Mistake(
            f"--device {config.device}: several ranks learn on cpu, or on cuda with a GPU for each"
            " of them"
        )
    return f"cuda:{ranks.local_rank()}"


def learner_for(config: RunConfig, method: Method | None = None) -> Learner:
    """A new learner with the settings of the configuration, or with another method."""
    return Learner(
        make_network(config),
        method or find_method(config.method)(**config.arguments),
        memory=memory.make(config.memory),
        lr=config.lr,
        batch=config.batch,
        epochs=config.epochs,
        optimiser=config.optimiser,
        augment=config.augment,
        seed=config.seed,
        device=_own_device(config),
        precision=config.precision,
    )


def _resume(
    config: RunConfig, folder: RunFolder, warn: Callable[[str], None] | None
) -> Learner | None:
    """The learner from the last good checkpoint of an unfinished run, or None without one."""
    if not ranks.first(lambda: _has_checkpoint(config, folder)):
        return None
    method = find_method(config.method)(**config.arguments)
    network = make_network(config) if is_own(config.backbone["name"]) else None
    try:
        return Learner.load(
            folder.path / CHECKPOINT,
            backbone=network,
            method=method,
            device=_own_device(config),
            warn=warn,
        )
    except ValueError as damage:
        raise Mistake(f"{damage}; no good checkpoint is left: use --fresh to start over") from None


def _has_checkpoint(config: RunConfig, folder: RunFolder) -> bool:
    """Whether the folder has a checkpoint; one of another configuration is refused."""
    if not folder.checkpoint.manifests:
        return False
    try:
        same = (folder.config.hash, folder.config.seed) == (config.hash, config.seed)
    except Mistake:
        same = False
    if not same:
        remedy = "use --fresh to start over, or another --out"
        raise Mistake(f"{folder} holds a run of another configuration: {remedy}")
    return True


class Forecast:
    """Warns once if the rest of a run will take more than an hour: time of a step x steps left.

    Until then it measures every task anew, since rehearsal makes later steps longer. The first step
    of a task is slower than the others and is left out. Evaluation is not counted.
    """

    def __init__(self, name: str, steps: int, warn: Callable[[str], None] | None) -> None:
        self.name = name
        self.steps = steps  # of the whole run
        self.warn = warn
        self.task = -1
        # Steps and seconds of the run at the end of the first step of the task.
        self.first_steps = 0
        self.first_seconds = 0.0
        self.is_due = True

    def after_step(self, learner: Learner) -> None:
        """Make a forecast when enough steps of the task were measured."""
        now = learner.record
        if learner.current != self.task:
            self.task = learner.current
            self.first_steps = now.steps
            self.first_seconds = now.seconds
            self.is_due = True
            return
        steps = now.steps - self.first_steps
        seconds = now.seconds - self.first_seconds
        enough = steps >= FORECAST_STEPS or seconds >= FORECAST_SECONDS
        if self.warn is None or not self.is_due or not enough:
            return
        self.is_due = False
        left = (self.steps - now.steps) * seconds / steps
        if left > LONG:
            self.warn(
                f"{self.name} will take about {duration(left)}; "
                "Ctrl-C leaves a checkpoint, and the same command goes on from there"
            )
            self.warn = None


def duration(seconds: float) -> str:
    """A long duration in words.

    >>> duration(5400), duration(40_000), duration(1e6)
    ('1.5 h', '11 h', '12 days')
    """
    hours = seconds / 3600
    if hours >= 48:
        return f"{hours / 24:.0f} days"
    return f"{hours:.0f} h" if hours >= 10 else f"{hours:.1f} h"


@dataclass
class Attempt:
    """A run in progress; its learner knows how far it came."""

    learner: Learner | None = None


@contextmanager
def _failure_written(folder: RunFolder, *, is_own: bool) -> Iterator[Attempt]:
    """Record the error that ends a run, with its task and step; a stop is no failure.

    For a user's own method the traceback is recorded too: it shows which line of theirs failed.
    """
    ranks.first(folder.forget_failure)
    attempt = Attempt()
    try:
        yield attempt
    except Stopped:
        raise
    except Exception as error:
        if ranks.rank() > 0:  # the first rank writes it
            raise
        learner = attempt.learner
        reason = summarise(error)
        trace = traceback.format_exc() if is_own and not isinstance(error, EXPECTED) else None
        if learner is None:
            folder.fail(reason, None, None, trace)
        else:
            folder.fail(reason, learner.current + 1, learner.step_in_task, trace)
        if isinstance(error, RuntimeError) and is_out_of_memory(error):
            raise Mistake(reason) from None
        raise
