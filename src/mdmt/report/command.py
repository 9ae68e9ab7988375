"""The command that does a study's runs again."""

from __future__ import annotations

import shlex

from mdmt.report.study import Study


def commands(study: Study) -> list[str]:
    """`mdmt compare` lines that ask for the runs of a study; one for each set of seeds that methods share.

    Held-out tasks have none: `mdmt tune` alone runs them.
    """
    if study.runs[0].config.cross_validation:
        return []
    by_seeds: dict[tuple[int, ...], list[str]] = {}
    for entry in study.entries:
        by_seeds.setdefault(tuple(run.config.seed for run in entry.runs), []).append(entry.runs[0].config.label)
    return [
        shlex.join(["mdmt", "compare", study.benchmark, "--methods", ",".join(labels), "--seed", str(first),
                    "--seeds", str(count), *_options(study)])
        for seeds, labels in by_seeds.items()
        for first, count in spans(list(seeds))
    ]  # fmt: skip


def _options(study: Study) -> list[str]:
    """What differs from the defaults of the command."""
    config = study.runs[0].config
    values = {
        "--tasks": config.tasks if "tasks" in study.less or study.benchmark == "folder" else None,
        "--image-size": config.image_size,
        "--subset": config.subset,
        "--weights": config.weights_file,
        "--data": config.data,
        "--threads": config.threads if config.threads != 1 else None,
    }
    return [text for name, value in values.items() if value is not None for text in (name, str(value))]


def spans(seeds: list[int]) -> list[tuple[int, int]]:
    """Seeds as (first, how many) of each unbroken sequence.

    >>> spans([1234, 1235, 1240])
    [(1234, 2), (1240, 1)]
    """
    found: list[tuple[int, int]] = []
    for seed in sorted(seeds):
        if found and seed == sum(found[-1]):
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((seed, 1))
    return found
