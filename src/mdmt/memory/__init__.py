"""Episodic memory M with representations F: which examples are stored, and how they are drawn.

The learner writes to it: `open_task` before a task, `observe` after every step, `close_task` at the
end of the task. Methods read from it with `sample`.
"""

from __future__ import annotations

from mdmt.memory.base import READ_AT_ONCE, Memory, Read, Spec, share_to_draw
from mdmt.memory.reservoirs import ClassReservoir, Reservoir
from mdmt.memory.rings import Ring, TaskRing
from mdmt.memory.task_end import AtTaskEnd, Balanced, BalancedFirst, even_shares

__all__ = [
    "POLICIES",
    "READ_AT_ONCE",
    "AtTaskEnd",
    "Balanced",
    "BalancedFirst",
    "ClassReservoir",
    "Memory",
    "Read",
    "Reservoir",
    "Ring",
    "Spec",
    "TaskRing",
    "even_shares",
    "make",
    "share_to_draw",
]

KINDS = (Ring, Reservoir, ClassReservoir, AtTaskEnd, TaskRing, Balanced, BalancedFirst)
POLICIES = {kind.__name__: kind for kind in KINDS}


def make(spec: Spec) -> Memory:
    """Build a memory from its policy and arguments.

    >>> make({"policy": "Ring", "per_class": 3}).spec
    {'policy': 'Ring', 'per_class': 3}
    """
    arguments = {key: value for key, value in spec.items() if key != "policy"}
    return POLICIES[spec["policy"]](**arguments)
