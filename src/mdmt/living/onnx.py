"""A version as an ONNX file: raw inputs to calibrated probabilities, with what they mean."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mdmt.errors import Mistake
from mdmt.living.answers import Answers
from mdmt.living.module import AnswerModule
from mdmt.network.predictor import columns
from mdmt.system.files import write_file
from mdmt.system.packages import optional

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
INPUTS, OUTPUTS = "inputs", "probabilities"
# A wrong graph is far off; rounding alone stays far below, also with a low temperature.
DIFFERENCE = 1e-3


def export_onnx(answers: Answers, file: str | Path) -> Path:
    """Write an ONNX file, whole or not at all, after onnxruntime has answered as torch does.

    Its input `inputs` are raw inputs, any number of them, as `predict` takes them; its output
    `probabilities` has a column for each class. The metadata hold `classes` and `input_shape` as
    JSON, `temperature`, `reject_threshold` if it is known, `model_version` and `mdmt_version`, and,
    if every task has a head, `tasks`: the task of each column.
    """
    file = Path(file)
    if file.is_dir():
        raise Mistake(f"{file} is a folder: name a file such as {file / 'model.onnx'}")
    if not file.parent.is_dir():
        raise Mistake(f"{file} cannot be written: there is no folder {file.parent}")
    _check_packages()
    module = AnswerModule(answers)
    shape, kind = answers.model.input
    example = torch.zeros(2, *shape, dtype=getattr(torch, kind.removeprefix("torch.")))
    content = _translate(module, example, _metadata(answers))
    _check_alike(module, content, example)
    write_file(file, content)
    return file


def _check_packages() -> None:
    for name in PACKAGES:
        optional(name, "an ONNX file", "export")


def _metadata(answers: Answers) -> dict[str, str]:
    chosen = columns(answers.model.heads, None)
    about = {
        "classes": json.dumps([column.label for column in chosen]),
        "input_shape": json.dumps(answers.model.input[0]),
        "temperature": repr(answers.temperature),
        "model_version": str(answers.version),
        "mdmt_version": importlib.metadata.version("mdmt"),
    }
    if answers.threshold is not None:
        about["reject_threshold"] = repr(answers.threshold)
    if not answers.shared:
        about["tasks"] = json.dumps([column.task for column in chosen])
    return about


def _translate(module: AnswerModule, example: torch.Tensor, about: dict[str, str]) -> bytes:
    """The bytes of the ONNX file."""
    with _quiet():
        try:
            program = torch.onnx.export(
                module,
                (example,),
                dynamo=True,
                dynamic_shapes=({0: "batch"},),
                input_names=[INPUTS],
                output_names=[OUTPUTS],
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            raise Mistake(f"this network cannot be exported to ONNX: {_reason(error)}") from None
    assert program is not None
    model = program.model_proto
    # What the exporter notes of each node is for its own developers, and has paths of this machine.
    for part in (model.graph, *model.graph.node, *model.graph.input, *model.graph.output):
        del part.metadata_props[:]
    for value in (*model.graph.initializer, *model.graph.value_info):
        del value.metadata_props[:]
    del model.metadata_props[:]
    for key, text in about.items():
        model.metadata_props.add(key=key, value=text)
    content: bytes = model.SerializeToString()
    return content


def _reason(error: BaseException) -> str:
    """The first cause of an error, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}".strip().splitlines()[0]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's notes about torchvision and about its own deprecated calls."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
            yield
    finally:
        logger.setLevel(level)


def _check_alike(module: AnswerModule, content: bytes, example: torch.Tensor) -> None:
    """Refuse a file that answers otherwise than the module, on random inputs."""
    import onnxruntime

    draws = torch.Generator().manual_seed(0)
    shape = (3, *example.shape[1:])
    if example.dtype == torch.uint8:
        inputs = torch.randint(0, 256, shape, generator=draws, dtype=torch.uint8)
    else:
        inputs = torch.randn(shape, generator=draws).to(example.dtype)
    options: Any = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    (shares,) = session.run(None, {INPUTS: inputs.numpy()})
    with torch.no_grad():
        expected = module(inputs).numpy()
    difference = float(np.abs(shares - expected).max())
    if not difference <= DIFFERENCE:
        raise Mistake(
            f"this network cannot be exported: in ONNX its probabilities differ by {difference:.2g}"
        )
