"""mdmt: one network learns task after task without forgetting the earlier ones.

Names are imported when they are first used, so that `mdmt --help` never loads torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mdmt import backbones, benchmarks, checks, losses, memory, methods, metrics, ranks
    from mdmt.cli.notebook import compare
    from mdmt.learner import Learner
    from mdmt.living.model_folder import LivingModel
    from mdmt.methods import (
        AGEM,
        DERPP,
        ER,
        ERACE,
        EWC,
        GEM,
        MAS,
        MDMTR,
        MEGA,
        MER,
        PI,
        VAN,
        Joint,
        Method,
        RWalk,
    )
    from mdmt.report.comparison import Comparison
    from mdmt.tasks import Examples, Stream, Task

_MODULES = ("backbones", "benchmarks", "checks", "losses", "memory", "methods", "metrics", "ranks")
_OPTIONAL_MODULES = ("sklearn",)  # which need an extra, so `import *` leaves them out
# The modules of the names that are not methods.
_PLACES = {
    "Comparison": "report.comparison",
    "compare": "cli.notebook",
    "Learner": "learner",
    "LivingModel": "living.model_folder",
    "Examples": "tasks",
    "Stream": "tasks",
    "Task": "tasks",
}

__all__ = [
    "AGEM", "DERPP", "ER", "ERACE", "EWC", "GEM", "MAS", "MDMTR", "MEGA", "MER", "PI", "VAN",
    "Comparison", "Examples", "Joint", "Learner", "LivingModel", "Method", "RWalk", "Stream",
    "Task", "backbones", "benchmarks", "checks", "compare", "losses", "memory", "methods",
    "metrics", "ranks",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES + _OPTIONAL_MODULES:
        return importlib.import_module(f"mdmt.{name}")
    if name in __all__:
        return getattr(importlib.import_module(f"mdmt.{_PLACES.get(name, 'methods')}"), name)
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("mdmt")
    raise AttributeError(f"module 'mdmt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
