"""The configuration of a run: everything that determines its result.

`RunConfig.from_json` checks configs that somebody else wrote. It refuses values that could lead to
another folder, make a reader hang or crash, or send control characters to a terminal.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import mdmt.runs.gate as gate
from mdmt.runs.gate import Settings
from mdmt.system.files import JsonObject
from mdmt.system.own_code import is_own_data
from mdmt.words import count

MAX_SEED = 2**32 - 1  # numpy's RandomState, which makes the published streams, takes no more
NEUTRAL: Settings = {  # a key with this value is left out of the hash
    "threads": 1, "device": "cpu", "precision": "fp32", "image_size": None, "subset": None,
    "weights": None, "cross_validation": False, "validation": None, "source": None,
    "fingerprint": None, "augment": "none", "network_source": None, "stream": "own",
    "evaluate_every": 0,
}  # fmt: skip
# Keys that do not change the result, and the seed, which names a folder below the hash. Without
# skip_broken, broken images end the run, so there is no other result to confuse it with.
NOT_HASHED = ("seed", "label", "data", "weights_file", "skip_broken", "keep_model")
# The values of keys that a file lacks.
ABSENT = {
    **NEUTRAL, "data": None, "weights_file": None, "skip_broken": False, "keep_model": False,
}  # fmt: skip


@dataclass(frozen=True)
class RunConfig:
    """A benchmark, a method, a seed, and every setting that changes the result."""

    benchmark: str
    tasks: int | None
    heads: str
    stream: str  # own: by the seed of the run; published: the one of all published runs
    method: str  # a name, or module:Class
    arguments: Settings
    memory: Settings
    backbone: Settings  # its name and its arguments
    lr: float
    batch: int
    epochs: int
    optimiser: str
    augment: str
    image_size: int | None
    subset: int | None
    weights: str | None  # the SHA-256 of the file with the first weights
    weights_file: str | None
    data: str | None
    fingerprint: str | None  # of images that are not a published data set
    skip_broken: bool  # skip images that cannot be read
    cross_validation: bool
    validation: str | None  # the test data of held-out tasks, if not their test sets
    source: str | None  # the SHA-256 of the module of a user's own method
    network_source: str | None  # the SHA-256 of the module of a user's own network
    seed: int
    threads: int
    device: str
    precision: str
    keep_model: bool  # save the learner at the end
    evaluate_every: int  # steps between two points of the record's anytime; 0: none
    label: str

    @property
    def hash(self) -> str:
        """A hash of everything that determines the result, except the seed."""
        kept = {
            key: value
            for key, value in self.to_json().items()
            if key not in NOT_HASHED and not (key in NEUTRAL and value == NEUTRAL[key])
        }
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        """The run in words: its label, benchmark and seed."""
        return f"{self.label} on {self.benchmark}, seed {self.seed}"

    @property
    def is_own_data(self) -> bool:
        """Whether the data are the user's own, so that there is no published protocol."""
        return is_own_data(self.benchmark)

    @property
    def setup(self) -> list[str]:
        """Network, image size, epochs and memory in words; a method may use no memory."""
        start = "from scratch" if self.weights is None else f"from weights {self.weights[:12]}"
        words = [f"{self.backbone['name']} {start}"]
        if self.image_size is not None:
            words.append(f"{self.image_size} px")
        words.append(count("epoch", self.epochs) + self.steps_an_example)
        (size,) = (value for key, value in self.memory.items() if key != "policy")
        unit = " a class" if "per_class" in self.memory else ""
        return [*words, f"{count('example', size)}{unit} kept"]

    @property
    def steps_an_example(self) -> str:
        """In words, if examples are learned more often than once an epoch; else nothing."""
        repeats, reviews = self.arguments.get("repeats", 1), self.arguments.get("review", 0)
        words = f", {repeats} steps an example" if repeats != 1 else ""
        if reviews:
            words += f", {count('review', reviews)} of the memory a task"
        return words

    def to_json(self) -> JsonObject:
        """The content of config.json."""
        return asdict(self)

    def checked(self) -> RunConfig:
        """This configuration; raises a Mistake if `from_json` would refuse it."""
        self.from_json(json.loads(json.dumps(self.to_json())))
        return self

    @classmethod
    def from_json(cls, content: JsonObject) -> RunConfig:
        """Check the content of a config.json; raise a Mistake that says what is wrong.

        Keys of later versions are ignored; keys that earlier versions lack get neutral values.
        """
        content = {**ABSENT, **content}
        checked: JsonObject = {}
        for field in fields(cls):
            value = gate.value_of(content, field.name)
            checked[field.name] = FIELD_CHECKS[field.name](field.name, value)
        return cls(**checked)


def folder_of(config: RunConfig, out: str | Path) -> Path:
    """The folder of a run under OUT."""
    method = config.method.replace(":", ".")
    return Path(out, config.benchmark.replace(":", "."), method, config.hash, str(config.seed))


def _memory(key: str, value: Any) -> Settings:
    spec = gate.settings(key, value)
    gate.name(f"{key}.policy", spec.get("policy"))
    sizes = {name: size for name, size in spec.items() if name != "policy"}
    if not sizes:
        raise gate.refusal(key, value, "a policy and its size")
    for name, size in sizes.items():
        gate.whole(0, 10**9)(f"{key}.{name}", size)
    return spec


_norm_start = gate.matching("fast|zero", "fast or zero")


def _backbone(key: str, value: Any) -> Settings:
    if not isinstance(value, dict) or set(value) != {"name", "arguments"}:
        raise gate.refusal(key, value, "the name and the arguments of a network")
    arguments = gate.settings(f"{key}.arguments", value["arguments"])
    for name, given in arguments.items():
        check = _norm_start if name == "norm_start" else gate.whole(1, 10**6)
        check(f"{key}.{name}", given)
    return {"name": _network(f"{key}.name", value["name"]), "arguments": arguments}


OWN_NAME = r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*"  # module:name
METHOD = rf"[A-Za-z0-9][\w.+-]*|{OWN_NAME}"
_network = gate.matching(rf"[^\W\d]\w*|{OWN_NAME}", "the name of a network, or module:name")

FIELD_CHECKS: dict[str, gate.Check] = {
    "benchmark": gate.file_name,
    "tasks": gate.or_null(gate.whole(1, 10_000)),
    "heads": gate.matching("shared|per-task", "shared or per-task"),
    "stream": gate.matching("own|published", "own or published"),
    "method": gate.matching(METHOD, "the name of a method, or module:Class"),
    "arguments": gate.settings,
    "memory": _memory,
    "backbone": _backbone,
    "lr": gate.number(),
    "batch": gate.whole(1, 10**9),
    "epochs": gate.whole(1, 10**9),
    "optimiser": gate.name,
    "augment": gate.matching("none|crop-flip", "none or crop-flip"),
    "image_size": gate.or_null(gate.whole(1, 10_000)),
    "subset": gate.or_null(gate.whole(1, 10**9)),
    "weights": gate.or_null(gate.sha256),
    "weights_file": gate.or_null(gate.path),
    "data": gate.or_null(gate.path),
    "fingerprint": gate.or_null(gate.sha256),
    "skip_broken": gate.flag,
    "cross_validation": gate.flag,
    "validation": gate.or_null(gate.text),
    "source": gate.or_null(gate.sha256),
    "network_source": gate.or_null(gate.sha256),
    "seed": gate.whole(0, MAX_SEED),
    "threads": gate.whole(1, 1024),
    "device": gate.matching(r"cpu|(cuda|mps|xpu)(:\d{1,3})?", "cpu, cuda, cuda:N, mps or xpu"),
    "precision": gate.matching("fp32|bf16", "fp32 or bf16"),
    "keep_model": gate.flag,
    "evaluate_every": gate.whole(0, 10**9),
    "label": gate.text,
}
