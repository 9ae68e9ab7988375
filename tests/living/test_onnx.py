"""Export: one ONNX file that answers as the model does."""

import json
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import mdmt
from mdmt import backbones
from mdmt.cli.app import main
from mdmt.errors import Mistake
from mdmt.living.answers import Answers
from mdmt.living.onnx import export_onnx

METHODS = ["er", "mdmt-r"]  # a linear and a cosine head


def answers_of(name, method, heads="shared"):
    """Answers of a small network that has learned two deliveries, and inputs for it."""
    random = np.random.default_rng(0)
    if name == "mlp":
        backbone = backbones.mlp(12, width=16)
        x = random.normal(size=(40, 12)).astype(np.float32)
    else:
        backbone = backbones.MAKERS[name](3, 4)
        x = random.integers(0, 256, (40, 3, 11, 11), dtype=np.uint8)
    learner = mdmt.Learner(backbone, method, heads=heads)
    learner.learn(("first", x[:20], ["owl", "kite"] * 10))
    learner.learn(("second", x[20:], ["owl", "wren"] * 10))
    answers = Answers(
        learner.model, scale=learner.predictor.scale, temperature=1.3, threshold=0.4, version=2
    )
    return answers, x


def session(file):
    return onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])


def metadata(file):
    return session(file).get_modelmeta().custom_metadata_map


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    answers, _ = answers_of("mlp", "er")
    return export_onnx(answers, tmp_path_factory.mktemp("export") / "model.onnx")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", backbones.MAKERS)
def test_onnxruntime_answers_as_torch_for_any_batch(name, method, tmp_path):
    answers, x = answers_of(name, method)
    file = export_onnx(answers, tmp_path / "model.onnx")
    network = session(file)
    for size in (1, 7):
        (shares,) = network.run(None, {"inputs": x[:size]})
        np.testing.assert_allclose(shares, answers.predictor.predict_proba(x[:size]), atol=1e-5)


def test_the_file_says_what_it_is(exported):
    said = metadata(exported)
    assert json.loads(said["classes"]) == ["kite", "owl", "wren"]
    assert json.loads(said["input_shape"]) == [12]
    assert float(said["temperature"]) == 1.3
    assert float(said["reject_threshold"]) == 0.4
    assert said["model_version"] == "2"
    assert said["mdmt_version"] == mdmt.__version__
    assert "tasks" not in said


def test_with_a_head_per_task_the_file_has_the_task_of_each_column(tmp_path):
    answers, x = answers_of("mlp", "er", heads="per-task")
    file = export_onnx(answers, tmp_path / "model.onnx")
    assert json.loads(metadata(file)["classes"]) == ["kite", "owl", "owl", "wren"]
    assert json.loads(metadata(file)["tasks"]) == ["first", "first", "second", "second"]
    (shares,) = session(file).run(None, {"inputs": x})
    np.testing.assert_allclose(shares, answers.predictor.predict_proba(x), atol=1e-5)


def test_the_file_names_no_folder_of_this_machine(exported):
    content = exported.read_bytes()
    for place in (mdmt.__file__, torch.__file__):
        assert place.rpartition("/")[0].encode() not in content
    onnx.checker.check_model(onnx.load_from_string(content))


class Unusual(torch.nn.Module):
    """A network with an operation that ONNX does not have."""

    def forward(self, x):
        return torch.linalg.eigvalsh(x[:, :, None] * x[:, None, :])


def test_what_onnx_cannot_express_is_one_line_and_leaves_the_old_file(tmp_path):
    learner = mdmt.Learner(Unusual(), "er", heads="shared")
    learner.learn(("first", np.eye(4, dtype=np.float32), list("abab")))
    file = tmp_path / "model.onnx"
    file.write_bytes(b"old")
    with pytest.raises(Mistake, match=r"network cannot be exported.*eigh") as caught:
        export_onnx(Answers(learner.model, scale=1.0), file)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    assert file.read_bytes() == b"old"


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_package_is_one_line(package, tmp_path, monkeypatch):
    answers, _ = answers_of("mlp", "er")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        Mistake, match=f"needs the package {package}: pip install onnx onnxruntime onnxscript$"
    ):
        export_onnx(answers, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("place", "said"), [("absent/model.onnx", "no folder"), ("", "a folder")])
def test_a_place_that_cannot_be_written(place, said, tmp_path):
    answers, _ = answers_of("mlp", "er")
    with pytest.raises(Mistake, match=said):
        export_onnx(answers, tmp_path / place)


def test_the_command_exports_the_current_version(tmp_path, capsys):
    model = mdmt.LivingModel(tmp_path / "birds")
    x = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
    model.learn((x, ["owl", "kite"] * 20), name="january", epochs=1)
    file = tmp_path / "birds.onnx"
    assert main(["export", str(tmp_path / "birds"), "--onnx", str(file)]) == 0
    shown = capsys.readouterr()
    assert "2 classes" in shown.out
    assert shown.err == ""
    (shares,) = session(file).run(None, {"inputs": x})
    np.testing.assert_allclose(shares, model.predict_proba(x), atol=1e-5)


def test_the_command_without_a_model_is_a_mistake(tmp_path, capsys):
    assert main(["export", str(tmp_path / "none"), "--onnx", str(tmp_path / "x.onnx")]) == 2
    assert "is not a model" in capsys.readouterr().err


def test_the_command_exports_a_network_of_yours(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\n\ndef network():\n"
        "    return torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU())\n"
    )
    folder, to = str(tmp_path / "birds"), str(tmp_path / "birds.onnx")
    x = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
    np.savez(tmp_path / "january.npz", x=x, y=["owl", "kite"] * 20)
    own = ["--backbone", f"{file}:network"]
    assert main(["learn", folder, str(tmp_path / "january.npz"), *own]) == 0
    assert main(["export", folder, "--onnx", to]) == 2
    assert "--backbone" in capsys.readouterr().err
    assert main(["export", folder, "--onnx", to, *own]) == 0
    assert session(to).run(None, {"inputs": x})[0].shape == (40, 2)
