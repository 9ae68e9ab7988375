"""A version as a plain torch module: raw inputs in, calibrated probabilities out."""

from __future__ import annotations

import copy
from typing import cast

import torch
from torch import Tensor, nn

from mdmt.living.answers import Answers
from mdmt.network.predictor import columns


class AnswerModule(nn.Module):
    """Network, head and temperature of a version, for torch.export, ONNX and everything else.

    `labels` are the classes of the columns. It is a copy: the model folder does not change it.
    """

    def __init__(self, answers: Answers) -> None:
        super().__init__()
        model = answers.model
        with model.evaluating():
            self.backbone = copy.deepcopy(model.backbone)
            head = model.head.detach().clone()
        chosen = columns(model.heads, None)
        self.labels = [column.label for column in chosen]
        rows = torch.tensor([column.row for column in chosen])
        weight = head[rows, :-1]
        self.cosine = model.cosine
        self.temperature = answers.temperature
        self.factor = answers.predictor.scale
        self.scale = model.scale
        self.register_buffer("mean", model.mean)
        if self.cosine:
            length = weight.norm(dim=1, keepdim=True)
            weight = weight / length.masked_fill(length == 0, 1.0)
        self.register_buffer("weight", weight.contiguous())
        bias = torch.zeros(len(rows)) if self.cosine else head[rows, -1]
        self.register_buffer("bias", bias.contiguous())
        self.eval()

    def forward(self, inputs: Tensor) -> Tensor:
        """The probability of each class."""
        x = inputs.to(torch.float32) * self.scale
        mean = cast("Tensor | None", self.mean)
        if mean is not None:
            x = x - mean
        features = self.backbone(x)
        if self.cosine:
            length = torch.linalg.vector_norm(features, dim=1, keepdim=True)
            features = features / torch.where(length == 0, torch.ones_like(length), length)
        weight, bias = cast(Tensor, self.weight), cast(Tensor, self.bias)
        return torch.softmax(self.factor * nn.functional.linear(features, weight, bias), dim=1)
