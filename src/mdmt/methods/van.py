"""VAN: plain fine-tuning, the lower bound."""

from mdmt.methods.base import Method


class VAN(Method):
    """Learn each task with plain steps and do nothing about forgetting."""

    name, kind, source = "van", "bound", "plain fine-tuning"
