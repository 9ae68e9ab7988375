"""The tests of `mdmt doctor`, each in a process: `python -m mdmt.cli.selftest torch|NETWORK`."""

from __future__ import annotations

import json
import sys
import tempfile

INPUT_SHAPES = {"mlp": (1, 28, 28), "reduced_resnet18": (3, 32, 32), "resnet18": (3, 32, 32)}
BATCH = 5
STEPS_PER_TASK = 2


def describe_torch() -> None:
    """Print the features of this machine that torch uses as JSON, then oneDNN's own log."""
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    print(json.dumps({"capability": capability, "threads": torch.get_num_threads()}), flush=True)
    if torch.backends.mkldnn.is_available():
        with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
            torch.nn.functional.conv2d(torch.ones(2, 8, 8, 8), torch.ones(8, 8, 3, 3))


def self_test(network: str) -> None:
    """Learn two small tasks of noise, save and load; raises RuntimeError if they differ."""
    import torch

    import mdmt.backbones as backbones
    from mdmt.learner import Learner
    from mdmt.memory import Ring
    from mdmt.methods.mdmt_r import MDMTR
    from mdmt.tasks import Task

    learner = Learner(
        backbones.MAKERS[network](), MDMTR(), memory=Ring(per_class=2), batch=BATCH, seed=1
    )
    noise = torch.Generator().manual_seed(1)
    labels = torch.arange(STEPS_PER_TASK * BATCH) % 2
    for name in ("first", "second"):
        inputs = torch.randint(
            256, (len(labels), *INPUT_SHAPES[network]), generator=noise, dtype=torch.uint8
        )
        learner.learn(Task(name, inputs, labels))
    with tempfile.TemporaryDirectory(prefix="mdmt-doctor-") as folder:
        learner.save(folder)
        loaded = Learner.load(folder)
    if loaded.model.sha256() != learner.model.sha256():
        raise RuntimeError("the loaded weights differ from the saved ones")
    if loaded.predict(inputs, task="second") != learner.predict(inputs, task="second"):
        raise RuntimeError("the loaded network predicts other labels")


if __name__ == "__main__":
    if sys.argv[1] == "torch":
        describe_torch()
    else:
        self_test(sys.argv[1])
