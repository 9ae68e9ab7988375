"""Which runs a comparison asks for: lists of methods and variants, and settings for those that have them."""

from __future__ import annotations

from typing import Any

from mdmt.errors import Mistake
from mdmt.experiments.config import LEARNING, Config, argument_types, find_method, parse_variant, resolve
from mdmt.methods import METHODS


def split_methods(text: str) -> list[str]:
    """A list of methods, cut at the commas outside of brackets; `all` is the twelve of Table 1.

    >>> split_methods("mdmt-r[distance=none,scale=20], er")
    ['mdmt-r[distance=none,scale=20]', 'er']
    """
    items, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            items.append("")
        else:
            items[-1] += letter
    named = [item.strip() for item in items if item.strip()]
    if not named:
        raise Mistake(f"--methods {text!r}: write it as all or as a list such as van,er,'mdmt-r[distance=none]'")
    return list(dict.fromkeys(name for item in named for name in (METHODS if item == "all" else [item])))


def configs_for(
    benchmark: str, variants: list[str], seeds: range, settings: dict[str, str], **options: Any
) -> list[list[Config]]:
    """For each variant the config of each seed. A setting goes to the methods that have it; a variant's own stays."""
    asked = [parse_variant(variant) for variant in variants]
    allowed = [{*LEARNING, *argument_types(find_method(name))} for name, _ in asked]
    for key in settings:
        if not any(key in keys for keys in allowed):
            valid = ", ".join(sorted(set().union(*allowed)))
            raise Mistake(f"setting {key!r} is unknown; these methods take {valid}")
        if all(key in own or key not in keys for (_, own), keys in zip(asked, allowed, strict=True)):
            raise Mistake(f"setting {key!r} is what these variants differ in: each has its own")
    return [
        [
            resolve(
                benchmark, variant, seed=seed, **options,
                settings={k: v for k, v in settings.items() if k in keys and k not in own},
            )
            for seed in seeds
        ]
        for variant, (_, own), keys in zip(variants, asked, allowed, strict=True)
    ]  # fmt: skip


def find_row(name: str, variants: list[str], configs: list[list[Config]]) -> str:
    """The label of the row that --against names: as it was asked for, by its label, or by its method when only one row has it."""
    labels: list[str] = [of_seed[0]["label"] for of_seed in configs]
    for names in (variants, labels):
        if name in names:
            return labels[names.index(name)]
    of_method = [of_seed[0]["label"] for of_seed in configs if of_seed[0]["method"] == name]
    if len(of_method) != 1:
        raise Mistake(f"--against {name!r} is not one row of {', '.join(labels)}")
    return str(of_method[0])
