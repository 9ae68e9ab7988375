"""The step log: loss and gradient of each logged step of a run.

Two runs with equal logs took the same steps; the first row that differs says when they parted.
`loss` is the last loss that the step computed, `gradient` the sum of the gradient that it applied,
and `gradient_norm` the norm of that gradient (NaN in logs of versions that did not keep it).
"""

from __future__ import annotations

import csv
import io
import math
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from mdmt.errors import Mistake, first_line
from mdmt.words import printable

ROWS = "rows"  # the name of the log's array in a checkpoint


class Step(NamedTuple):
    """A row of the log; tasks and steps count from 1."""

    task: float
    step: float
    loss: float
    gradient: float
    seconds: float
    gradient_norm: float = math.nan


class StepLog(Sequence[Step]):
    """The logged steps of a run, in order.

    They are numbers in an array: a list of rows would take six times the memory.
    """

    COLUMNS = Step._fields
    FIRST_COLUMNS = COLUMNS[:5]  # of the first logs of mdmt 0.1.0, which had no gradient_norm

    def __init__(self, rows: Iterable[Step] = ()) -> None:
        self._numbers = array("d")
        for row in rows:
            self.append(row)

    def append(self, row: Step) -> None:
        """Add the row of a step."""
        self._numbers.extend(row)

    def __len__(self) -> int:
        return len(self._numbers) // len(self.COLUMNS)

    @overload
    def __getitem__(self, index: int) -> Step: ...

    @overload
    def __getitem__(self, index: slice) -> StepLog: ...

    def __getitem__(self, index: int | slice) -> Step | StepLog:
        if isinstance(index, slice):
            return StepLog(self[number] for number in range(*index.indices(len(self))))
        begin = range(len(self))[index] * len(self.COLUMNS)
        return Step(*self._numbers[begin : begin + len(self.COLUMNS)])

    def fill(self, task: int, step: int, loss: float, gradient: float, norm: float) -> None:
        """Write loss and gradient into the row of a step, if the step was logged."""
        for number in range(len(self) - 1, -1, -1):
            row = self[number]
            if row.task != task or row.step < step:
                return
            if row.step == step:
                row = row._replace(loss=loss, gradient=gradient, gradient_norm=norm)
                begin = number * len(row)
                self._numbers[begin : begin + len(row)] = array("d", row)
                return

    def to_csv(self) -> str:
        """Write the log as CSV; `from_csv` restores every number exactly.

        >>> print(StepLog([Step(1, 1, 0.5, float("nan"), 0.25, 2.0)]).to_csv(), end="")
        task,step,loss,gradient,seconds,gradient_norm
        1,1,0.5,nan,0.25,2.0
        """
        has_norms = not self or any(not math.isnan(row.gradient_norm) for row in self)
        columns = self.COLUMNS if has_norms else self.FIRST_COLUMNS  # an old log stays as it is
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([int(row.task), int(row.step), *row[2 : len(columns)]] for row in self)
        return text.getvalue()

    @classmethod
    def from_csv(cls, text: str) -> StepLog:
        """Read what `to_csv` wrote; raise a Mistake on anything else.

        >>> StepLog.from_csv(StepLog([Step(2, 7, 0.1, -3.5, 9.0, 4.0)]).to_csv())[0].gradient
        -3.5
        """
        header, _, body = text.partition("\n")
        columns = tuple(header.rstrip("\r").split(","))
        if columns not in (cls.COLUMNS, cls.FIRST_COLUMNS):
            raise Mistake(f"its columns are not {', '.join(cls.COLUMNS)}")
        if not body.strip():
            return cls()
        try:
            rows = np.loadtxt(io.StringIO(body), delimiter=",", comments=None, ndmin=2)
        except ValueError as error:
            raise Mistake(printable(first_line(error))) from None
        if rows.shape[1] != len(columns):
            raise Mistake(f"a line does not have {len(columns)} numbers")
        return cls.from_array(rows)

    def to_array(self) -> NDArray[np.float64]:
        """The log as an array with a column for each of COLUMNS."""
        return np.array(self._numbers).reshape(-1, len(self.COLUMNS))

    @classmethod
    def from_array(cls, rows: NDArray[Any] | None) -> StepLog:
        """Check an array of unknown origin and convert it; raise a Mistake if it is not a log."""
        widths = (len(cls.COLUMNS), len(cls.FIRST_COLUMNS))
        if (
            rows is None
            or rows.dtype != np.float64
            or rows.ndim != 2
            or rows.shape[1] not in widths
        ):
            raise Mistake(f"it does not have {len(cls.COLUMNS)} numbers per step")
        positions = rows[:, :2]
        is_whole = positions == np.floor(positions)
        if not ((positions >= 1) & (positions <= 1e12) & is_whole).all():
            raise Mistake("task and step are not whole numbers from 1")
        log = cls()
        whole = np.full((len(rows), len(cls.COLUMNS)), math.nan)
        whole[:, : rows.shape[1]] = rows
        log._numbers.frombytes(whole.tobytes())
        return log
