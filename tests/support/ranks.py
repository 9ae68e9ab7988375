"""Real ranks: processes that torch.distributed joins, forked from this one, which has imported
torch.
"""

import os
import socket
import traceback
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import torch

from mdmt import ranks


def free_port():
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return chosen.getsockname()[1]


def fork_ranks(size, work):
    """Do some work in processes that find what torchrun would tell them; their exit codes."""
    port = str(free_port())
    children = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            told = {
                "RANK": rank,
                "LOCAL_RANK": rank,
                "WORLD_SIZE": size,
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
            }
            os.environ.update({name: str(value) for name, value in told.items()})
            try:
                os._exit(work() or 0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def on_ranks(size, work, folder):
    """What some work gives on each of so many ranks."""

    def answer():
        with ranks.group():
            torch.save(work(), Path(folder) / f"{ranks.rank()}.pt")

    assert fork_ranks(size, answer) == [0] * size
    return [torch.load(Path(folder) / f"{rank}.pt", weights_only=False) for rank in range(size)]


@contextmanager
def words_into(folder):
    """What this process says goes to a file for stdout and one for stderr, named by its rank."""
    with ExitStack() as stack:
        for name, redirect in (("out", redirect_stdout), ("err", redirect_stderr)):
            file = stack.enter_context(
                open(Path(folder) / f"{os.environ['RANK']}.{name}", "w", buffering=1)
            )
            stack.enter_context(redirect(file))
        yield
