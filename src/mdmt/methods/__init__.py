"""The twelve methods of Table 1 and two newer ones, one short file each."""

from __future__ import annotations

from mdmt.methods.agem import AGEM
from mdmt.methods.base import Buffer, Method, Rehearsal, setting
from mdmt.methods.der import DERPP
from mdmt.methods.er import ER
from mdmt.methods.er_ace import ERACE
from mdmt.methods.ewc import EWC
from mdmt.methods.gem import GEM
from mdmt.methods.joint import Joint
from mdmt.methods.mas import MAS
from mdmt.methods.mdmt_r import MDMTR
from mdmt.methods.mega import MEGA
from mdmt.methods.mer import MER
from mdmt.methods.pi import PI
from mdmt.methods.rwalk import RWalk
from mdmt.methods.van import VAN

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (Joint, VAN, EWC, MAS, RWalk, PI, MER, GEM, AGEM, ER, MEGA, MDMTR, DERPP, ERACE)
}

__all__ = [
    "AGEM",
    "DERPP",
    "ER",
    "ERACE",
    "EWC",
    "GEM",
    "MAS",
    "MDMTR",
    "MEGA",
    "MER",
    "METHODS",
    "PI",
    "VAN",
    "Buffer",
    "Joint",
    "Method",
    "RWalk",
    "Rehearsal",
    "setting",
]
