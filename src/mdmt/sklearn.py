"""Lifelong learning with scikit-learn's interface.

`LifelongClassifier` learns with `partial_fit(X, y)` new classes, more of known ones, or both.
"""

from __future__ import annotations

try:
    from mdmt.living.estimator import LifelongClassifier
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "sklearn":
        raise
    raise ImportError("mdmt.sklearn needs scikit-learn: pip install scikit-learn") from None

__all__ = ["LifelongClassifier"]
