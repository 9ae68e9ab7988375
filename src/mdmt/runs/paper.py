"""The methods, tables and figures of the paper, by name."""

from __future__ import annotations

from dataclasses import dataclass

from mdmt.published import table
from mdmt.runs.gate import Settings
from mdmt.system.files import JsonObject

PAPER_METHODS = tuple(table("table1")["rows"]["split-cifar"])  # the rows of Table 1, in its order
NEWER = ("der++", "er-ace")  # newer than the paper; their rows come after its own
# The default benchmark of each table.
PAPER_BENCHMARKS = {"table1": "split-cifar", "table2": "split-cifar", "cost": "split-cifar"}


def _parts(row: JsonObject) -> Settings:
    """The settings of MDMT-R for a row of Table 2.

    The vanilla softmax belongs to ordinary linear heads that score only samples of their own task.
    The other rows have the cosine head, whose softmax spans all domains, with margins (m_t, m_c).
    With distillation, its distance is left to the reading.
    """
    distance = {} if row["distillation"] else {"distance": "none"}
    if row["softmax"] == "vanilla":
        return {"head": "linear", "competitors": "own", **distance}
    return {
        "head": "cosine",
        **{name: row[name] for name in ("task_margin", "class_margin")},
        **distance,
    }


ABLATION = tuple(_parts(row) for row in table("table2")["rows"])  # the last row is MDMT-R itself
VARIANTS = tuple(
    f"mdmt-r[{','.join(f'{key}={value}' for key, value in parts.items())}]" for parts in ABLATION
)


def distinct_rows(heads: str) -> list[int]:
    """The numbers of the rows of Table 2 that can differ, from 0.

    One shared head has no task margin, so of rows that differ only in it the first one is enough.

    >>> len(distinct_rows("per-task")), distinct_rows("shared")
    (10, [0, 1, 2, 4, 7, 8, 9])
    """
    if heads != "shared":
        return list(range(len(ABLATION)))
    first: dict[str, int] = {}
    for number, parts in enumerate(ABLATION):
        alike = {key: value for key, value in parts.items() if key != "task_margin"}
        first.setdefault(repr(sorted(alike.items())), number)
    return list(first.values())


@dataclass(frozen=True)
class Figure:
    """A figure of the paper: its methods, benchmark and number of seeds."""

    methods: str
    benchmark: str
    seeds: int
    files: tuple[str, ...]
    title: str


# The paper does not list the methods of Fig. 4 and 7: all that learn task by task are shown.
SEQUENTIAL = ",".join(name for name in PAPER_METHODS if name != "joint")
# Fig. 3 compares the angles under four losses: plain softmax, cross-domain softmax, margins, and
# MDMT-R itself. It needs a head per task, since one shared head has neither a cross-domain softmax
# nor a task margin.
SOFTMAXES = ",".join(
    f"mdmt-r[{','.join(('heads=per-task', *parts))}]"
    for parts in (
        ("head=linear", "competitors=own", "distance=none"),
        ("task_margin=0", "class_margin=0", "distance=none"),
        ("distance=none",),
        (),
    )
)
SHIFT = "a-gem,mega,mdmt-r[distance=none],mdmt-r"
FIGURES = {
    "fig3": Figure(
        SOFTMAXES, "permuted-mnist", 1, ("fig3a", "fig3b"), "Angles of features and class centres"
    ),
    "fig4": Figure(SEQUENTIAL, "split-cifar", 5, ("fig4",), "Average accuracy along learning"),
    "fig5": Figure(
        "a-gem,mega,mdmt-r", "permuted-mnist", 1, ("fig5",), "Three tasks after the last, by t-SNE"
    ),
    "fig6": Figure(SHIFT, "permuted-mnist", 1, ("fig6",), "Task 1 along learning, by t-SNE"),
    "fig7": Figure(SEQUENTIAL, "split-cifar", 5, ("fig7",), "How fast a new task is learned"),
}
