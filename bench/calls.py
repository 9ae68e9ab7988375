"""Count what a reader follows in one step of MDMT-R on the MLP: calls, crossings, files.

    python bench/calls.py

A call is that of a Python function of the package, a crossing is a call into another file than the
caller's. The step is one of the second task that the memory stores, with a shared head: the reading
of its mini-batch, what is measured around it, and `Learner.step` itself.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import numpy as np

import mdmt

PACKAGE = str(Path(mdmt.__file__).parent)
STEP = 29  # of the second task, which is counted


def tasks() -> list[mdmt.Task]:
    random = np.random.default_rng(0)
    inputs = random.integers(0, 256, (300, 784), dtype=np.uint8)
    return [mdmt.Task(f"task {number}", inputs, np.arange(300) % 10) for number in range(2)]


class Calls:
    """Counts the calls between the end of one step and the end of the next."""

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.calls = 0
        self.crossings = 0

    def after_step(self, learner: mdmt.Learner) -> None:
        if learner.current == 1 and learner.step_in_task == STEP - 1:
            sys.setprofile(self.profile)
        elif learner.current == 1 and learner.step_in_task == STEP:
            sys.setprofile(None)

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(PACKAGE):
            return
        self.calls += 1
        self.files[file.removeprefix(PACKAGE + "/")] += 1
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(PACKAGE):
            caller = caller.f_back
        self.crossings += caller is not None and caller.f_code.co_filename != file


def main() -> None:
    calls = Calls()
    memory = mdmt.memory.Ring(per_class=5)
    method = mdmt.MDMTR(reference_batch=20)
    learner = mdmt.Learner(mdmt.backbones.mlp(784), method, memory=memory, heads="shared")
    learner.run(mdmt.Stream("two", tasks(), heads="shared"), on_step=calls.after_step)
    files = len(calls.files)
    print(f"{calls.calls} calls, {calls.crossings} crossings of a file boundary, {files} files")
    for file, count in calls.files.most_common():
        print(f"{count:5}  {file}")


if __name__ == "__main__":
    main()
