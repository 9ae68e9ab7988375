"""What the figures need is recorded while a stream is run."""

import numpy as np
import pytest
import torch
from safetensors.numpy import save
from safetensors.torch import load_file, save_file

import mdmt
import mdmt.experiments.run
from mdmt.experiments.run import run
from mdmt.runs.config import folder_of
from mdmt.runs.snapshots import Snapshots
from support.configs import config_for
from support.helpers import mistake, small_stream


def learned(tasks):
    learner = mdmt.Learner(mdmt.backbones.mlp(784, 12), mdmt.VAN(), seed=3)
    stream = small_stream("permuted-digits", tasks=tasks, heads="per-task")
    learner.run(stream)
    return learner, stream


def test_first_middle_and_last_task():
    learner, stream = learned(5)
    names = set(learner.recorder.snapshots)
    assert {n for n in names if n.startswith("features")} == {
        *(f"features.0.{i}" for i in range(5)), "features.2.2", "features.2.4", "features.4.4",
    }  # fmt: skip
    assert {n for n in names if n.startswith("head.0")} == {f"head.0.{i}" for i in range(5)}
    assert {"head", "head_of_class", "labels.0", "labels.2", "labels.4"} < names
    last = learner.features(stream[4].view(stream[4].test.inputs))
    shown = (
        learner.recorder.snapshots["features.4.4"].float()
        * learner.recorder.snapshots["lengths.4.4"][:, None]
    )
    assert torch.allclose(shown, last, rtol=2e-3, atol=2e-3 * float(last.max()))
    assert torch.equal(learner.recorder.snapshots["head"], learner.model.head.detach())
    rows = learner.tasks[0].rows
    assert torch.equal(learner.recorder.snapshots["head.0.4"], learner.model.head.detach()[rows])
    # Nothing rehearses it.
    assert torch.equal(
        learner.recorder.snapshots["head.0.0"], learner.recorder.snapshots["head.0.4"]
    )


def test_a_learner_without_a_stream_keeps_none():
    learner = mdmt.Learner(mdmt.backbones.mlp(784, 12), mdmt.VAN(), seed=3)
    learner.learn(small_stream("permuted-digits", tasks=1)[0])
    assert learner.recorder.snapshots == {}


def test_they_lie_in_the_run_folder_and_are_small(tmp_path):
    config = config_for("permuted-digits", "van", tasks=2)
    run(config, tmp_path)
    path = folder_of(config, tmp_path) / "snapshots.safetensors"
    assert path.stat().st_size < 5_000_000
    assert {"features.0.0", "features.0.1", "features.1.1", "head"} < set(load_file(path))


def test_the_largest_published_stream_stays_under_five_megabytes(tmp_path):
    """As many tasks, features and outputs as Split AWA has, and more test examples than are
    followed.
    """
    generator = torch.Generator().manual_seed(1)
    tasks = []
    for k in range(17):
        x, y = torch.rand(130, 6, generator=generator), torch.arange(130) % 5
        tasks.append(mdmt.Task(f"t{k}", x[:10], y[:10], test=(x, y), classes=list(range(5))))
    learner = mdmt.Learner(torch.nn.Linear(6, 512), mdmt.VAN(), lr=0.01)
    learner.run(mdmt.Stream("as large as AWA", tasks, outputs=850))
    snapshots = learner.recorder.snapshots
    assert snapshots["head"].shape == (850, 513)
    assert sum(name.startswith("features.") for name in snapshots) == 17 + 2 + 1
    assert {len(value) for name, value in snapshots.items() if name.startswith("features.")} == {
        100
    }
    save_file(snapshots, tmp_path / "snapshots")
    assert 3_000_000 < (tmp_path / "snapshots").stat().st_size < 5_000_000


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("head.0.1", (2, 13, 1)),
        ("head.0.1", (2, 13, 0)),
        ("head.0.x", (2, 13)),
        ("labels.0", (4, 1)),
        ("lengths.0.0", (4, 1)),
        ("features.0.1.2", (4, 12)),
        ("x", (1,)),
        ("head", (4,)),
    ],
)
def test_arrays_that_are_no_snapshots_are_refused(name, shape):
    whole = {
        "head": np.ones((4, 13), np.float32),
        "head_of_class": np.zeros(4, np.int64),
        "head.0.0": np.ones((2, 13), np.float32),
        "labels.0": np.zeros(4, np.int64),
        "features.0.0": np.ones((4, 12), np.float16),
        "lengths.0.0": np.ones(4, np.float32),
    }
    assert set(Snapshots.from_bytes(save(whole))) == set(whole)
    changed = whole | {name: np.ones(shape, np.float32)}
    assert name in mistake(Snapshots.from_bytes, save(changed))
