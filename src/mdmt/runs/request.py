"""A request for runs: each option once, read from text and written as a command line.

`RunOptions` of the command line adds a help text to each of these options, and
`experiments/resolve` turns a request into configurations. Nothing here loads torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import mdmt.runs.paper as paper
from mdmt.errors import Mistake
from mdmt.runs.config import MAX_SEED, RunConfig
from mdmt.system.own_code import canonical, is_own

MAX_SEEDS = 10_000  # in one command, which makes a configuration for each


@dataclass(frozen=True)
class RunRequest:
    """The options of a run, in the order in which help texts show them."""

    benchmark: str = "permuted-digits"
    method: str = "mdmt-r"  # a name or a variant such as mdmt-r[distance=none]
    seeds: int = 1  # number of runs, with the seeds that follow the first
    seed: int = 1234  # of the first run
    tasks: int | None = None
    set: list[str] | None = None  # settings as key=value
    reading: str | None = None
    preset: str | None = None
    data: str | None = None
    image_size: int | None = None
    subset: int | None = None
    backbone: str | None = None
    weights: str | None = None
    skip_broken: bool = False
    keep_model: bool = False
    evaluate_every: int = 0  # steps
    threads: int = 1
    device: str = "cpu"
    precision: str = "fp32"

    def __post_init__(self) -> None:
        if not 1 <= self.seeds <= MAX_SEEDS:
            raise Mistake(f"--seeds {self.seeds}: must be 1 to {MAX_SEEDS:,}")
        last = self.seed + self.seeds - 1
        if last > MAX_SEED:
            raise Mistake(f"seed {last} is too large: the largest seed is {MAX_SEED}")

    @classmethod
    def of(cls, config: RunConfig) -> RunRequest:
        """The request that leads to this configuration; its label names the method's settings."""
        return cls(
            benchmark=config.benchmark,
            method=config.label,
            seed=config.seed,
            tasks=config.tasks,
            data=config.data,
            image_size=config.image_size,
            subset=config.subset,
            backbone=_backbone_text(config),
            weights=config.weights_file,
            skip_broken=config.skip_broken,
            keep_model=config.keep_model,
            evaluate_every=config.evaluate_every,
            threads=config.threads,
            device=config.device,
            precision=config.precision,
        )

    @property
    def all_seeds(self) -> range:
        return range(self.seed, self.seed + self.seeds)

    @property
    def settings(self) -> dict[str, str]:
        """The settings that --set, --reading and --preset give, by name.

        >>> RunRequest(set=["lr=0.1", "scale=20"], reading="paper").settings
        {'lr': '0.1', 'scale': '20', 'reading': 'paper'}
        """
        options = {"reading": self.reading, "preset": self.preset}
        given = {name: value for name, value in options.items() if value is not None}
        return dict(map(parse_setting, self.set or [])) | given

    def with_settings(self, settings: Mapping[str, object]) -> RunRequest:
        """This request with more settings; of two values of a setting the later one counts."""
        texts = [f"{key}={value}" for key, value in settings.items()]
        return replace(self, set=[*(self.set or []), *texts])

    def argv(self) -> list[str]:
        """The command line of `mdmt run` that makes this request.

        >>> RunRequest("split-digits", "er", tasks=2, set=["lr=1"], skip_broken=True).argv()[1:]
        ['run', 'split-digits', '--method', 'er', '--tasks', '2', '--set', 'lr=1', '--skip-broken']
        """
        return ["mdmt", "run", self.benchmark, "--method", self.method, *self.flags()]

    def flags(self) -> list[str]:
        """The options other than benchmark and method that do not have their default value."""
        words: list[str] = []
        for field in fields(RunRequest):
            value = getattr(self, field.name)
            if field.name in ("benchmark", "method") or value == field.default:
                continue
            flag = f"--{field.name.replace('_', '-')}"
            if value is True:
                words.append(flag)
            else:
                for one in value if isinstance(value, list) else [value]:
                    words += [flag, str(one)]
        return words


def _backbone_text(config: RunConfig) -> str | None:
    """The value of --backbone, or None if the configuration has the benchmark's own network.

    Networks that --backbone names, unlike most benchmarks' own ones, have norm_start=fast. Naming
    the others again changes nothing.
    """
    name, arguments = config.backbone["name"], config.backbone["arguments"]
    if is_own(name):
        return label_of(name, arguments)
    if arguments.get("norm_start") == "fast":
        return label_of(name, {"width": arguments["width"]})
    return None


def parse_variant(text: str) -> tuple[str, dict[str, str]]:
    """The name and the settings of a variant.

    >>> parse_variant("mdmt-r[distance=none,scale=20]")
    ('mdmt-r', {'distance': 'none', 'scale': '20'})
    """
    match = re.fullmatch(r"([^\[\]]+)(?:\[([^\[\]]*)\])?", text)
    if match is None:
        raise Mistake(f"method {text!r}: write it as name or name[key=value,...]")
    settings = [item for item in (match[2] or "").split(",") if item]
    return canonical(match[1]), dict(map(parse_setting, settings))


def parse_setting(text: str) -> tuple[str, str]:
    """The name and the value of a setting given as key=value."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise Mistake(f"setting {text!r}: write it as key=value")
    return key.strip(), value.strip()


def label_of(name: str, settings: Mapping[str, object]) -> str:
    """A variant as text, its settings sorted by name.

    >>> label_of("mdmt-r", {"scale": 20, "distance": "none"}), label_of("er", {})
    ('mdmt-r[distance=none,scale=20]', 'er')
    """
    if not settings:
        return name
    return f"{name}[{','.join(f'{key}={settings[key]}' for key in sorted(settings))}]"


def split_at_commas(text: str) -> list[str]:
    """The items of a list of methods or labels; commas inside brackets belong to an item.

    >>> split_at_commas("mdmt-r[distance=none,scale=20], er,")
    ['mdmt-r[distance=none,scale=20]', 'er']
    """
    items = (item.strip() for item in re.split(r",(?![^\[]*\])", text))
    return [item for item in items if item]


def split_methods(text: str) -> list[str]:
    """The methods of a list; `all` are those of the package, `paper` those of Table 1.

    >>> split_methods("er,paper")[:3]
    ['er', 'joint', 'van']
    """
    groups = {"all": paper.PAPER_METHODS + paper.NEWER, "paper": paper.PAPER_METHODS}
    names: list[str] = []
    for item in split_at_commas(text):
        names += groups.get(item, (item,))
    if not names:
        raise Mistake(
            f"--methods {text!r}: write it as all, as paper, or as a list such as"
            " van,er,'mdmt-r[distance=none]'"
        )
    return list(dict.fromkeys(names))
