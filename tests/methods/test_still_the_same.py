"""Each method learns the same as before its steps were made faster, in double precision.

tests/fixtures/learned.json was written by the program of commit 6cc5f63, where every batch passed
through the network by itself and autograd went back: `learned` of every case. The cases of DER++
and ER-ACE, and those with augmentation, were added later, computed in the same way: with
`Gradients` in place of `gradients_for`.
"""

import json
from pathlib import Path

import pytest

import mdmt
from mdmt.methods import METHODS
from support.helpers import small_stream

FIXTURE = Path(__file__).parents[1] / "fixtures" / "learned.json"
SETTINGS = {
    "ewc": {"window": 3, "strength": 5.0},
    "mas": {"strength": 0.1},
    "rwalk": {"window": 3},
    "pi": {"strength": 0.01},
    "mer": {"replay": 1, "beta": 0.5, "gamma": 0.5},
}
STREAMS = [
    ("permuted-digits", "shared"),
    ("permuted-digits", "per-task"),
    ("split-digits", "per-task"),
]
AUGMENTED = ("der++", "er-ace", "mdmt-r")


def cases():
    for stream in STREAMS:
        for name in METHODS:
            arguments = METHODS[name]().arguments
            settings = SETTINGS.get(name, {}) | (
                {"reference_batch": 12} if "reference_batch" in arguments else {}
            )
            for reading in ("code", "paper") if "reading" in arguments else (None,):
                more = {} if reading is None else {"reading": reading}
                key = " ".join(filter(None, (*stream, name, reading)))
                yield key, stream, name, settings | more, "none"
                if stream[0] == "split-digits" and name in AUGMENTED:
                    yield f"{key} crop-flip", stream, name, settings | more, "crop-flip"


CASES = {key: rest for key, *rest in cases()}


def learned(key):
    """The length of all weights after three tasks, and some of them."""
    (benchmark, heads), name, settings, augment = CASES[key]
    kept = mdmt.memory.Reservoir(60) if METHODS[name].policy == "Reservoir" else mdmt.memory.Ring(3)
    image = benchmark == "split-digits"
    network = mdmt.backbones.reduced_resnet18(1, 3) if image else mdmt.backbones.mlp(784, 20)
    learner = mdmt.Learner(
        network,
        METHODS[name](**settings),
        memory=kept,
        lr=0.02,
        seed=5,
        augment=augment,
        batch=1 if name == "mer" else 10,
    )
    learner.run(small_stream(benchmark, tasks=3, train=40, test=20, heads=heads))
    weights = learner.model.flat.detach()
    return [float(weights.norm()), *weights[:: len(weights) // 20].tolist()]


@pytest.mark.long
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("key", CASES)
def test_what_was_learned_before(key):
    assert learned(key) == pytest.approx(json.loads(FIXTURE.read_text())[key], rel=1e-8, abs=1e-10)
