"""Matrix products in bfloat16: weights, losses and updates stay float32, and results hold."""

import pytest
import torch

import mdmt
from mdmt.experiments.resolve import stream_for
from mdmt.experiments.run import learner_for
from support.configs import config_for
from support.helpers import small_stream

BACKBONES = {
    "mlp": lambda: mdmt.backbones.mlp(784, 16),
    "resnet": lambda: mdmt.backbones.reduced_resnet18(1, 2),
}


def learned(method, backbone, precision):
    learner = mdmt.Learner(
        BACKBONES[backbone](), method, memory=mdmt.memory.Ring(3), lr=0.001, precision=precision
    )
    learner.run(small_stream(tasks=2, train=20))
    return learner


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("method", ["mdmt-r", "er", "der++", "mas"])
def test_products_are_rounded_and_all_else_is_whole(method, backbone):
    learner = learned(method, backbone, "bf16")
    parts = [part.state()[0] for part in learner.parts().values()]
    floats = {
        key: value for part in parts for key, value in part.items() if value.is_floating_point()
    }
    # Halves always.
    floats = {
        key: value for key, value in floats.items() if not key.startswith("snapshots.features")
    }
    assert {value.dtype for value in floats.values()} <= {torch.float32, torch.float64}
    whole = learned(method, backbone, "fp32").model.flat
    assert not torch.equal(learner.model.flat, whole)
    apart = (learner.model.flat - whole).norm() / whole.norm()
    assert apart < 0.02


def test_losses_are_computed_in_float32(monkeypatch):
    kinds = set()
    usual = mdmt.MDMTR.loss

    def watched(self, features, batch):
        loss = usual(self, features, batch)
        kinds.update((features.dtype, self.model.scores(features).dtype, loss.dtype))
        return loss

    monkeypatch.setattr(mdmt.MDMTR, "loss", watched)
    learned("mdmt-r", "mlp", "bf16")
    assert kinds == {torch.float32}


def test_a_saved_learner_keeps_its_precision_unless_another_is_asked_for(tmp_path):
    learned("er", "mlp", "bf16").save(tmp_path)
    assert mdmt.Learner.load(tmp_path).model.precision == "bf16"
    assert mdmt.Learner.load(tmp_path, precision="fp32").model.precision == "fp32"


def test_it_is_part_of_the_configuration_and_neutral_at_fp32():
    usual = config_for("permuted-digits", "er")
    rounded = config_for("permuted-digits", "er", precision="bf16")
    assert usual.precision == "fp32"
    assert rounded.hash != usual.hash
    assert learner_for(rounded).precision == "bf16"


@pytest.mark.long
@pytest.mark.parametrize("method", ["mdmt-r", "er"])
def test_accuracy_is_within_a_hundredth_of_float32(method):
    final = {}
    for precision in ("fp32", "bf16"):
        config = config_for("permuted-digits", method, precision=precision)
        record = learner_for(config).run(stream_for(config))
        final[precision] = mdmt.metrics.average_accuracy(record.accuracy)
    assert abs(final["bf16"] - final["fp32"]) < 0.01
