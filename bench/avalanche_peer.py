"""Steps of Avalanche in its own environment (`make bench-peers`): one request per line of stdin.

The network, batch size, memory and data are ours. With `pixels`, a transform turns uint8 inputs
into floats sample by sample, as Avalanche's own benchmarks do. With `floats`, the inputs already
are floats: Avalanche then skips the conversion that we do, at four times the memory. The clock
covers the time between the ends of two iterations of a running `train`, without its start, end and
evaluation.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

BEGIN = time.perf_counter()
import torch  # noqa: E402

TORCH = time.perf_counter() - BEGIN
# A torchvision built for CUDA cannot define its operators with this torch.
SCHEMAS = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    SCHEMAS.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from avalanche.benchmarks import benchmark_from_datasets  # noqa: E402
from avalanche.benchmarks.utils import _make_taskaware_tensor_classification_dataset  # noqa: E402
from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin, SupervisedPlugin  # noqa: E402
from avalanche.training.supervised import AGEM, EWC, GEM, Naive  # noqa: E402
from torch import nn  # noqa: E402

IMPORT = time.perf_counter() - BEGIN
BATCH, STEPS, STORED = 10, 30, 500


class Stopwatch(SupervisedPlugin):
    """Records the time at the end of each iteration."""

    def __init__(self) -> None:
        super().__init__()
        self.moments: list[float] = []

    def after_training_iteration(self, strategy, **more) -> None:
        self.moments.append(time.process_time())


def as_floats(x: torch.Tensor) -> torch.Tensor:
    return x.float() / 255


class Running:
    """A strategy that has learned two experiences and continues with more."""

    def __init__(self, method: str, drawn: int, data: str) -> None:
        torch.manual_seed(0)
        self.data = data
        net = nn.Sequential(
            nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
        )
        self.watch = Stopwatch()
        plugins = [self.watch]
        kind, more = {
            "van": (Naive, {}),
            "er": (Naive, {}),
            "ewc": (EWC, {"ewc_lambda": 1.0, "mode": "online", "decay_factor": 0.9}),
            "a-gem": (AGEM, {"patterns_per_exp": STORED // 2, "sample_size": drawn}),
            "gem": (GEM, {"patterns_per_exp": drawn}),
        }[method]
        if method == "er":
            plugins.append(ReplayPlugin(mem_size=STORED, batch_size=BATCH, batch_size_mem=drawn))
        self.strategy = kind(
            model=net,
            optimizer=torch.optim.SGD(net.parameters(), lr=1e-3),
            criterion=nn.CrossEntropyLoss(),
            train_mb_size=BATCH,
            train_epochs=1,
            eval_every=-1,
            plugins=plugins,
            evaluator=EvaluationPlugin(),
            **more,
        )
        for _ in range(2):
            self.block(40)

    def block(self, steps: int = STEPS) -> float:
        labels = torch.arange(steps * BATCH) % 10
        if self.data == "floats":
            inputs, transform = torch.rand(steps * BATCH, 784), None
        else:
            inputs, transform = (
                torch.randint(0, 256, (steps * BATCH, 784), dtype=torch.uint8),
                as_floats,
            )
        data = _make_taskaware_tensor_classification_dataset(
            inputs, labels, task_labels=0, transform=transform
        )
        stream = benchmark_from_datasets(train=[data], test=[data]).train_stream
        self.watch.moments.clear()
        self.strategy.train(stream[0], num_workers=0)
        for plugin in self.strategy.plugins:
            if hasattr(plugin, "buffers"):  # A-GEM: the memory stays that of two experiences
                del plugin.buffers[2:]
        gaps = [b - a for a, b in zip(self.watch.moments, self.watch.moments[1:], strict=False)]
        return statistics.median(gaps)


def main() -> None:
    torch.set_num_threads(1)
    answers = sys.stdout
    sys.stdout = sys.stderr
    running: dict[tuple[str, int, str], Running] = {}
    for line in sys.stdin:
        question = json.loads(line)
        if question["what"] == "import":
            answer = {"torch": TORCH, "all": IMPORT}
        else:
            key = (question["method"], question["drawn"], question["data"])
            if key not in running:
                running[key] = Running(*key)
            answer = running[key].block()
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
