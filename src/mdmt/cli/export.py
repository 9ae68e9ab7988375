"""`mdmt export`: a model as a file for other programs."""

from __future__ import annotations

from typing import Annotated

import typer

from mdmt.words import bytes_text, count, printable


def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The folder of a model.")],
    onnx: Annotated[str, typer.Option(metavar="FILE", help="The ONNX file to write.")],
) -> None:
    """Write the current version as an ONNX file. Raw inputs in, probabilities out."""
    from mdmt.living.model_folder import LivingModel

    living = LivingModel(model)
    file = living.export_onnx(onnx)
    classes = count("class", len(living.classes), "classes")
    shape = " x ".join(["batch", *map(str, living.input_shape)])
    size = bytes_text(file.stat().st_size)
    print(f"{printable(str(file))}: version {living.version}, {classes}, inputs {shape}, {size}")
