"""`mdmt export`: a model as a file for other programs."""

from __future__ import annotations

from typing import Annotated

import typer

from mdmt.cli.model_folder import ModelFolder, Network, open_model
from mdmt.words import bytes_text, count, printable


def export(
    model: ModelFolder,
    onnx: Annotated[str, typer.Option(metavar="FILE", help="The ONNX file to write.")],
    backbone: Network = None,
) -> None:
    """Write the current version as an ONNX file. Raw inputs in, probabilities out."""
    opened = open_model(model, backbone)
    file = opened.export_onnx(onnx)
    classes = count("class", len(opened.classes), "classes")
    shape = " x ".join(["batch", *map(str, opened.input_shape)])
    size = bytes_text(file.stat().st_size)
    print(f"{printable(str(file))}: version {opened.version}, {classes}, inputs {shape}, {size}")
