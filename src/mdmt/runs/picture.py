"""Pictures: figures of matplotlib that a notebook shows by itself."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

Values = NDArray[np.float64]
FEW = 10  # tasks whose accuracies are written into their cells
DPI = 200


class Picture(Figure):
    """A figure; `savefig` writes it to a file."""

    def _repr_png_(self) -> tuple[bytes, dict[str, Any]]:
        data = io.BytesIO()
        self.savefig(data, format="png", dpi=DPI, facecolor="white")
        return data.getvalue(), {"width": round(100 * self.get_figwidth())}


def accuracy_picture(values: Values, names: Sequence[str], title: str) -> Picture:
    """The accuracy (%) on each task (columns) after each task (rows); NaN where it is unknown."""
    with mpl.rc_context({"font.size": 9}):
        size = 2.6 + 0.42 * min(len(values), 2 * FEW)
        picture = Picture(figsize=(size + 1.2, size), layout="constrained")
        axes = picture.subplots()
        image = axes.imshow(values, vmin=0, vmax=100, cmap="cividis")
        names = [name.replace("$", r"\$") for name in names]
        step = max(1, len(names) // FEW)
        places = range(0, len(names), step)
        axes.set_xticks(places, names[::step], rotation=45, ha="right")
        axes.set_yticks(places, names[::step])
        axes.set_xlabel("accuracy on")
        axes.set_ylabel("after learning")
        axes.set_title(title, fontsize=9)
        if len(values) <= FEW:
            _write_values(axes, values)
        picture.colorbar(image, ax=axes, label="accuracy (%)", shrink=0.8)
    return picture


def _write_values(axes: Axes, values: Values) -> None:
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            colour = "black" if value > 60 else "white"
            axes.text(column, row, f"{value:.0f}", ha="center", va="center", color=colour)
