"""What the paper shows, by name: its methods, its tables and its figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mdmt.published import table

METHODS = tuple(table("table1")["rows"]["split-cifar"])  # the rows of Table 1, in its order
NEWER = ("der++", "er-ace")  # what came after the paper; their rows stand below its own
# On which benchmark a table is made unless another is named.
BENCHMARKS = {"table1": "split-cifar", "table2": "split-cifar", "cost": "split-cifar"}


def _parts(row: dict[str, Any]) -> dict[str, Any]:
    """The settings of MDMT-R that make a row of Table 2.

    The vanilla softmax is that of ordinary linear heads, each sample scored by its own head alone.
    The other rows have the cosine head, whose softmax crosses the domains, with margins (m_t, m_c).
    Where there is distillation, the reading decides on its distance.
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
    """The rows of Table 2 that can differ, by number from 0.

    One shared head has no task margin: of rows that are alike but for it, the first stands for all.

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
    """A figure of the paper: the methods that it shows, on what, with how many seeds."""

    methods: str
    benchmark: str
    seeds: int
    files: tuple[str, ...]
    title: str


# The paper does not list the methods of Fig. 4 and 7: here they are all that learn task by task.
SEQUENTIAL = ",".join(name for name in METHODS if name != "joint")
# Fig. 3 shows what each loss does to the angles: plain softmax, cross-domain softmax, margins, and
# all
# of MDMT-R. It speaks of class centres of single tasks, so each task has a head of its own: with
# one
# shared head there is neither a cross-domain softmax nor a task margin.
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
