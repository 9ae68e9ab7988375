"""Workers on a Ray cluster: one Ray task per run.

A run whose process or machine dies is started again and goes on from its checkpoint.

The folder of the runs must be on storage that all machines see under the same path; so must the
data.
"""

from __future__ import annotations

import logging
import secrets
import socket
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mdmt.errors import Mistake, summarise
from mdmt.experiments.workers import INTERVAL, PATIENCE, Event, Outcome, do_run
from mdmt.runs.config import RunConfig, folder_of
from mdmt.runs.folder import RunFolder
from mdmt.system.packages import missing

if TYPE_CHECKING:
    from ray import ObjectRef

RETRIES = 3  # how often a run whose process or machine died is started again
ANSWER = 5.0  # seconds that a cluster has to answer
# The beginning of an HTTP/2 connection, with empty settings. Ray, which uses HTTP/2, answers with
# settings too.
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
SETTINGS = 4  # the type of that answer, in its fourth byte


class Mailbox:
    """An actor in the cluster: runs put their messages in, and this process takes them out."""

    def __init__(self) -> None:
        self.messages: list[Event] = []

    def put(self, message: Event) -> None:
        self.messages.append(message)

    def take(self) -> list[Event]:
        """Remove and return all messages."""
        messages = self.messages
        self.messages = []
        return messages


class Cluster:
    """Workers of a Ray cluster; the number of its cores limits the number of runs at a time."""

    def __init__(
        self,
        address: str,
        out: str | Path,
        *,
        threads: int = 1,
        fresh: bool = False,
        every: int | str | None = None,
    ) -> None:
        self.out = Path(out).resolve()
        self.fresh = fresh
        self.every = every
        self.ray = _connect(address)
        try:
            self._check_storage()
            self.slots = max(1, int(self.ray.cluster_resources().get("CPU", 0)) // threads)
            self.mailbox = self.ray.remote(num_cpus=0)(Mailbox).remote()
        except BaseException:
            self.ray.shutdown()
            raise
        self.needs: dict[str, int] = {}  # bytes, by label
        self.running: dict[ObjectRef[Outcome], RunConfig] = {}
        self.events: deque[Event] = deque()

    def start(self, config: RunConfig) -> None:
        """Hand a run to the cluster."""
        if self.fresh:  # here, since a run that Ray starts again must go on
            folder = RunFolder(folder_of(config, self.out))
            with folder.lock():
                folder.start_over(config)
        task = self.ray.remote(_work).options(
            name=f"{config.benchmark}, {config.label}, seed {config.seed}",
            num_cpus=config.threads,
            num_gpus=1 if config.device.startswith("cuda") else 0,
            memory=self._bytes(config),
            max_retries=RETRIES,
        )
        self.running[task.remote(config, str(self.out), self.every, self.mailbox)] = config

    def _bytes(self, config: RunConfig) -> int:
        """The memory that a run needs: that of `mdmt cost`, and that of torch and the data.

        The latter is taken to be the size of this process.
        """
        if config.label not in self.needs:
            import resource

            from mdmt.experiments.cost import measure
            from mdmt.experiments.resolve import stream_for

            counted = measure(config, stream_for(config), steps=1)["training"]["total"]
            unit = 1 if sys.platform == "darwin" else 1024
            self.needs[config.label] = (
                counted + unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            )
        return self.needs[config.label]

    def next(self) -> Event | Outcome:
        """Wait for a message of any run; its outcome is the last."""
        while True:
            if self.events:
                return self.events.popleft()
            finished, _ = self.ray.wait(list(self.running), timeout=INTERVAL)
            self.events.extend(self.ray.get(self.mailbox.take.remote()))
            for task in finished:
                return self._outcome(task)

    def _outcome(self, task: ObjectRef[Outcome]) -> Outcome:
        config = self.running.pop(task)
        try:
            return self.ray.get(task)  # type: ignore[no-any-return]
        except self.ray.exceptions.RayError as error:
            return Outcome(config, None, f"the cluster gave it up: {summarise(error)}")

    def stop(self) -> None:
        """Stop the runs; those that do not write a checkpoint in time are killed."""
        if self.ray.is_initialized():
            for force, patience in ((False, PATIENCE), (True, 0.0)):
                for task in self.running:
                    self.ray.cancel(task, force=force)
                until = time.monotonic() + patience
                while self.running and time.monotonic() < until:
                    _, rest = self.ray.wait(list(self.running), timeout=until - time.monotonic())
                    self.running = {task: self.running[task] for task in rest}
            self.ray.shutdown()
        self.running.clear()

    def _check_storage(self) -> None:
        """Refuse a cluster in which some machine cannot see the folder of the runs."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self.out.mkdir(parents=True, exist_ok=True)
        probe = self.out / f".probe-{secrets.token_hex(8)}"
        probe.touch()
        try:
            for node in self.ray.nodes():
                if node["Alive"]:
                    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                    look = self.ray.remote(_sees).options(num_cpus=0, scheduling_strategy=there)
                    if not self.ray.get(look.remote(str(probe))):
                        where = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
                        raise Mistake(
                            f"the machine {where} of the cluster does not see {self.out}: "
                            "choose a folder with --out that all machines share"
                        )
        finally:
            probe.unlink(missing_ok=True)


def _sees(path: str) -> bool:
    return Path(path).exists()


def _work(config: RunConfig, out: str, every: int | str | None, mailbox: Any) -> Outcome:
    """Do a run in a process of the cluster; cancelling it asks it to stop, like Ctrl-C."""
    return do_run(config, out, mailbox.put.remote, every=every)


def _connect(address: str) -> Any:
    """Connect to a cluster and return Ray; raises Mistake if no cluster answers."""
    try:
        import ray
    except ImportError:
        raise missing("--cluster", "ray", "ray") from None
    if address != "auto":
        _check_answer(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        start = "`ray start --head` starts one on this machine"
        raise Mistake(
            f"--cluster {address}: no cluster answers ({summarise(error)}); {start}"
        ) from None
    return ray


def _check_answer(address: str) -> None:
    """Refuse an address at which Ray does not answer; Ray itself would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise Mistake(f"--cluster {address}: must be auto or HOST:PORT")
    try:
        with socket.create_connection((host, int(port)), timeout=ANSWER) as line:
            line.sendall(GREETING)
            answer = line.recv(9)
    except OSError as error:
        raise Mistake(f"--cluster {address}: nobody answers there ({error})") from None
    if len(answer) < 4 or answer[3] != SETTINGS:
        raise Mistake(
            f"--cluster {address}: the server there is not Ray, whose port is 6379 by default"
        )
