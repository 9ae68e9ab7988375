"""Every hyper-parameter that a run uses unless told otherwise, with its source.

Sources: `published` (the paper), `script` (the public programs behind its numbers), `ours`.
"""

from __future__ import annotations

from typing import Any

Cell = tuple[Any, str]

# What holds for every method on a benchmark.
COMMON: dict[str, dict[str, Cell]] = {
    "permuted-digits": {"batch": (10, "published"), "epochs": (1, "published"), "memory": (25, "script")},
    "split-digits": {"batch": (10, "published"), "epochs": (1, "published"), "memory": (13, "ours")},
}

# What a method has of its own there; keys are its settings, lr, memory_policy.
PRESETS: dict[str, dict[str, dict[str, Cell]]] = {
    "permuted-digits": {
        "van": {"lr": (0.03, "script")},
        "mdmt-r": {
            "lr": (0.1, "script"), "scale": (32.0, "published"), "task_margin": (0.1, "published"),
            "class_margin": (0.01, "published"), "reference_batch": (256, "script"),
        },
    },
    "split-digits": {
        "van": {"lr": (0.03, "ours")},
        "mdmt-r": {
            "lr": (0.03, "ours"), "scale": (24.0, "ours"), "task_margin": (0.1, "ours"),
            "class_margin": (0.01, "ours"), "reference_batch": (64, "ours"),
        },
    },
}  # fmt: skip


def preset(benchmark: str, method: str) -> dict[str, Any]:
    """The values for a method on a benchmark; a method without a preset there gets lr .1.

    >>> preset("permuted-digits", "van")["lr"]
    0.03
    """
    own = PRESETS.get(benchmark, {}).get(method, {"lr": (0.1, "ours")})
    return {key: value for key, (value, _) in {**COMMON.get(benchmark, {}), **own}.items()}
