"""The methods of Table 1, one short file each."""

from __future__ import annotations

from mdmt.methods.base import Buffer, Method, setting
from mdmt.methods.mdmt_r import MDMTR
from mdmt.methods.van import VAN

METHODS: dict[str, type[Method]] = {method.name: method for method in (VAN, MDMTR)}

__all__ = ["MDMTR", "METHODS", "VAN", "Buffer", "Method", "setting"]
