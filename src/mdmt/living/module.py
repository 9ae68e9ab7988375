"""A version as a plain torch module: raw inputs in, calibrated probabilities out."""

from __future__ import annotations

import copy
from typing import cast

import torch
from torch import Tensor, nn

from mdmt.inputs.augment import mirrored
from mdmt.living.answers import Answers
from mdmt.network.model import lengths
from mdmt.network.predictor import columns


class AnswerModule(nn.Module):
    """Network, head and temperature of a version, for torch.export, ONNX and everything else.

    `labels` are the classes of the columns. It is a copy in evaluation mode, without gradients: the
    model folder does not change it.
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
        self.cosine = model.cosine
        self.mirror = model.mirror
        self.temperature = answers.temperature
        self.factor = answers.predictor.scale
        self.scale = model.scale
        self.register_buffer("mean", model.mean)
        self.register_buffer("weight", head[rows, :-1].contiguous())
        self.register_buffer("bias", None if self.cosine else head[rows, -1].contiguous())
        self.eval().requires_grad_(False)

    def forward(self, inputs: Tensor) -> Tensor:
        """The probability of each class."""
        x = inputs.to(torch.float32) * self.scale
        mean = cast("Tensor | None", self.mean)
        if mean is not None:
            x = x - mean
        if self.mirror:  # one pass: some exporters do not take weights that are used twice
            features = self.backbone(torch.cat([x, mirrored(x)])).unflatten(0, (2, -1)).mean(0)
        else:
            features = self.backbone(x)
        weight = cast(Tensor, self.weight)
        scores = nn.functional.linear(features, weight, cast("Tensor | None", self.bias))
        if self.cosine:
            scores = scores / (lengths(features) * lengths(weight).T)
        return torch.softmax(self.factor * scores, dim=1)
