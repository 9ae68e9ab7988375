"""Models without a learner."""

from mdmt.network.heads import Heads
from mdmt.network.model import Model, Normalisation


def model_of(backbone, features, outputs, *, scale=1.0, mean=None, **more):
    """A model with room for some classes, none of which is claimed."""
    heads = Heads(outputs=outputs)
    return Model(backbone, features, heads, normalisation=Normalisation(scale, mean), **more)
