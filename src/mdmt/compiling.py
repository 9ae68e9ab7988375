"""`compile`: the part of a step that is products and what lies between them, through torch.compile."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch


def compiled(work: Callable[..., Any]) -> Callable[..., Any]:
    """The same work in compiled code: one compilation for each shape, kept by torch between processes.

    A shape is not generalised when another one comes: what is computed must not depend on what came before.
    """
    fixed = getattr(torch.compiler, "skip_guard_on_globals_unsafe", None)
    options = None if fixed is None else {"guard_filter_fn": fixed}  # no module is changed while it runs: not looked up
    return torch.compile(work, dynamic=False, fullgraph=True, options=options)


@lru_cache
def problem() -> str | None:
    """Why nothing can be compiled here, in a line; None where it can. Compiles something small to find out."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, of its own parts
            torch.compile(torch.cos, dynamic=False)(torch.zeros(64))
    except Exception as error:  # torch.compile has no family of its own
        reason = str(error).strip().splitlines() or [type(error).__name__]
        return reason[0]
    return None
