"""`model.module()`: a plain torch module that answers as the model does."""

import numpy as np
import onnxruntime
import pytest
import torch

import mdmt
import mdmt.living.defaults as defaults
from mdmt import backbones
from mdmt.living.answers import Answers
from mdmt.living.module import AnswerModule
from mdmt.living.onnx import export_onnx
from mdmt.methods import METHODS


def learned(method="er", heads="shared", backbone=None, inputs=None):
    """Answers of a network that has learned two tasks, and inputs for it."""
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 12)).astype(np.float32) if inputs is None else inputs
    learner = mdmt.Learner(backbone or backbones.mlp(12, width=16), method, heads=heads)
    tasks = [
        mdmt.Task("first", x[:30], ["owl", "kite"] * 15),
        mdmt.Task("second", x[30:], ["owl", "wren"] * 15),
    ]
    learner.run(mdmt.Stream("two", tasks, heads=heads))
    return Answers(learner.model, scale=learner.predictor.scale, temperature=0.7), x


@pytest.mark.parametrize("heads", ["shared", "per-task"])
@pytest.mark.parametrize("method", METHODS)
def test_it_answers_as_the_model(method, heads):
    answers, x = learned(method, heads)
    module = AnswerModule(answers)
    expected = answers.predictor.predict_proba(x)
    np.testing.assert_allclose(module(torch.from_numpy(x)).numpy(), expected, atol=1e-6)
    assert module.labels == [label for _, label in answers.predictor.classes()]


def test_it_answers_with_the_averaged_weights_that_the_model_answers_with():
    answers, x = learned(mdmt.MDMTR(average=0.9))
    shares = AnswerModule(answers)(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(shares, answers.predictor.predict_proba(x), atol=1e-6)


def test_it_does_not_change_when_the_model_does():
    answers, x = learned()
    module = AnswerModule(answers)
    before = module(torch.from_numpy(x)).clone()
    answers.model.flat.data.zero_()
    assert torch.equal(module(torch.from_numpy(x)), before)


@pytest.mark.parametrize("method", ["er", "mdmt-r"])
@pytest.mark.parametrize("name", ["mlp", "reduced_resnet18"])
def test_torch_export_takes_any_batch(name, method):
    backbone, x = None, None
    if name != "mlp":
        backbone = backbones.MAKERS[name](3, 4)
        x = np.random.default_rng(0).integers(0, 256, (60, 3, 9, 9), dtype=np.uint8)
    answers, x = learned(method, backbone=backbone, inputs=x)
    inputs = torch.from_numpy(x)
    batch = torch.export.Dim("batch")
    program = torch.export.export(
        AnswerModule(answers), (inputs[:2],), dynamic_shapes=({0: batch},)
    ).module()
    for size in (1, 7):
        shares = program(inputs[:size]).numpy()
        np.testing.assert_allclose(shares, answers.predictor.predict_proba(x[:size]), atol=1e-6)


def test_a_version_its_module_and_its_onnx_file_answer_from_both_mirror_images(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(defaults.ARGUMENTS, defaults.METHOD, {"mirror": True})
    x = np.random.default_rng(0).integers(0, 256, (60, 3, 9, 9), dtype=np.uint8)
    y = ["owl", "kite"] * 30
    x[::2, :, :, :4] //= 3  # owls are dark on the left
    model = mdmt.LivingModel(tmp_path / "model")
    model.learn((x, y), "birds", epochs=1)
    learner = model.learner()
    both = [learner.model.embed(torch.from_numpy(part)) for part in (x, np.flip(x, -1).copy())]
    answers = model.versions_.read(Answers.load)
    with torch.no_grad():
        scores = answers.model.scores((both[0] + both[1]) / 2)
        expected = (scores[:, :2] / answers.temperature).softmax(1).numpy()
    np.testing.assert_allclose(model.predict_proba(x), expected, atol=1e-5)
    one = (answers.model.scores(both[0])[:, :2] / answers.temperature).softmax(1)
    assert np.abs(one.detach().numpy() - expected).max() > 1e-3
    np.testing.assert_allclose(model.module()(torch.from_numpy(x)).numpy(), expected, atol=1e-5)
    export_onnx(answers, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (shares,) = session.run(None, {"inputs": x})
    np.testing.assert_allclose(shares, expected, atol=1e-4)
