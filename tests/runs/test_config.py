"""A run's config: its hash never changes, and what others wrote is checked."""

import json
from dataclasses import replace

import pytest

from mdmt.errors import Mistake
from mdmt.methods import METHODS
from mdmt.runs.config import RunConfig, folder_of
from mdmt.words import printable
from support.configs import config_for

HASHES = {  # as release 0.1.0 gives them: with another, finished runs would not be found
    "permuted-digits": {
        "joint": "57eb568bd223",
        "van": "245c7465b4fb",
        "ewc": "11c607a7f975",
        "mas": "a3e397906f24",
        "rwalk": "6cca605aa0f9",
        "pi": "2632be0e2c9a",
        "mer": "7711be820950",
        "gem": "1a8c529c9f8c",
        "a-gem": "842da8113c42",
        "er": "a8aff4096b6b",
        "mega": "40fa82e86dc5",
        "mdmt-r": "2b44112684cf",
        "mdmt-r[distance=none]": "0c8f7deecb4e",
        "er[reading=paper,lr=1]": "c81b9e54a9ef",
    },
    "split-digits": {
        "joint": "abb0dab29beb",
        "van": "f4960226eaf1",
        "ewc": "29ad7064b212",
        "mas": "1270883ed58b",
        "rwalk": "21b7926210df",
        "pi": "ab3e25b0d2c0",
        "mer": "78e101e4fa56",
        "gem": "ec89428d7515",
        "a-gem": "2e2bf3643854",
        "er": "bc5af7e32a97",
        "mega": "e2af34a15e39",
        "mdmt-r": "d97740bb9846",
        "mdmt-r[distance=none]": "3c57e96310d6",
        "er[reading=paper,lr=1]": "69456fd9de7b",
    },
    "permuted-mnist": {"mdmt-r": "0f5dbcf731db", "mer": "52e97a663260"},
    "split-cifar": {"mdmt-r": "8d5715ee87d5", "mer": "dd34d3c95ce2"},
    "split-cub": {"mdmt-r": "8a288e8905f8", "mer": "2aaf5f0e201f"},
    "split-awa": {"mdmt-r": "305000612d6b", "mer": "5cb2e79ae1f9"},
}
# split-digits since its batch norm starts fast; the hashes above are those of its network before
FAST = {
    "joint": "80ab8e259cfb", "van": "12b80f5010e1", "ewc": "5b90949e0146", "mas": "689b612f8a59",
    "rwalk": "35dc2968f1c6", "pi": "ffaa6760430e", "mer": "1711c7d299dc", "gem": "8bc71a9baefc",
    "a-gem": "35f1f6dc1636", "er": "bdc163edab00", "mega": "578be867e31f", "mdmt-r": "cbfcb8dd72bb",
    "mdmt-r[distance=none]": "75fbd7df434a", "er[reading=paper,lr=1]": "b422c3914af4",
}  # fmt: skip
# The digits had other settings then.
pytestmark = pytest.mark.usefixtures("untuned")
CONFIGS = [(benchmark, variant) for benchmark, variants in HASHES.items() for variant in variants]


@pytest.mark.parametrize(("benchmark", "variant"), CONFIGS)
def test_hashes_stay(benchmark, variant):
    config = config_for(benchmark, variant)
    then = config
    if benchmark == "split-digits":
        assert config.hash == FAST[variant]
        then = replace(
            config, backbone={"name": "reduced_resnet18", "arguments": {"channels": 1, "width": 5}}
        )
    assert then.hash == HASHES[benchmark][variant]
    read = RunConfig.from_json(json.loads(json.dumps(config.to_json())))
    assert (read, read.hash) == (config, config.hash)


def test_the_stream_is_part_of_the_hash_and_a_file_without_it_has_its_own():
    own, theirs = (
        config_for("permuted-mnist", method) for method in ("van", "van[stream=published]")
    )
    assert own.hash != theirs.hash
    assert replace(theirs, stream="own").hash == own.hash
    content = own.to_json()
    del content["stream"]
    assert RunConfig.from_json(content) == own


def test_a_hash_with_everything_set():
    config = config_for(
        "permuted-digits",
        "van",
        tasks=2,
        cross_validation=True,
        threads=2,
        settings={"heads": "per-task"},
    )
    assert config.hash == "b2205a737729"  # of permutations tested on held-out images


def test_the_folder_and_the_name_of_a_run(tmp_path):
    config = config_for("split-digits", "mdmt-r[distance=none]", seed=7)
    assert (
        folder_of(config, tmp_path)
        == tmp_path / "split-digits" / "mdmt-r" / FAST["mdmt-r[distance=none]"] / "7"
    )
    assert config.name == "mdmt-r[distance=none] on split-digits, seed 7"


@pytest.fixture
def content():
    return config_for("split-digits", "mdmt-r").to_json()


def test_what_other_versions_wrote_is_read(content):
    config = RunConfig.from_json(content)
    assert RunConfig.from_json({**content, "sparsity": 0.5}) == config
    for key in (
        "threads",
        "device",
        "precision",
        "image_size",
        "subset",
        "weights",
        "cross_validation",
        "source",
        "data",
    ):
        assert RunConfig.from_json({k: v for k, v in content.items() if k != key}) == config


@pytest.mark.parametrize(
    "key", ["benchmark", "method", "seed", "label", "arguments", "memory", "lr", "optimiser"]
)
def test_a_key_that_is_missing_is_named(content, key):
    del content[key]
    with pytest.raises(Mistake, match=f"{key} is missing"):
        RunConfig.from_json(content)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("benchmark", "../up"), ("benchmark", ".."), ("benchmark", ""), ("benchmark", "a\x1b[2J"), ("benchmark", 3),
        ("method", "/tmp/x"), ("method", "../x"), ("method", "a/b:C"), ("method", ".."), ("method", "os:"),
        ("seed", "../../x"), ("seed", -1), ("seed", 1.0), ("seed", True), ("seed", 10**30), ("seed", None),
        ("tasks", 0), ("tasks", "2"), ("tasks", 10**9), ("lr", "0.1"), ("lr", float("nan")), ("lr", 1e308), ("lr", -1),
        ("batch", 0), ("batch", 2.5), ("epochs", None), ("threads", 10**6), ("image_size", -3), ("subset", 0),
        ("cross_validation", 1), ("device", "cuda:0; rm"), ("precision", "fp16"), ("optimiser", "SGD()"),
        ("optimiser", []),
        ("weights", "abc"), ("weights_file", "a\nb"), ("data", 5), ("data", "\x9b1m"), ("label", 5), ("label", "x" * 5000),
        ("arguments", []), ("arguments", {"scale": float("inf")}), ("arguments", {"scale": [[[[1]]]]}), ("arguments", {"a b": 1}),
        ("memory", {"policy": "Ring"}), ("memory", {"policy": "Ring", "per_class": "2"}),
        ("memory", None), ("backbone", {"name": "mlp"}), ("backbone", {"name": "mlp", "arguments": {"width": 10**12}}),
        ("backbone", {"name": "resnet18", "arguments": {"norm_start": "slow"}}),
        ("backbone", {"name": "resnet18", "arguments": {"norm_start": 3}}), ("heads", "none"), ("source", "no hash"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_is_refused_by_name(content, key, value):
    with pytest.raises(Mistake, match=f"^{key}.* it must be ") as caught:
        RunConfig.from_json({**content, key: value})
    assert printable(str(caught.value)) == str(caught.value)
    assert len(str(caught.value)) < 200


def test_a_label_is_shown_without_what_a_terminal_would_obey(content):
    label = "van\x1b]0;owned\x07\r\n\u202ebad"
    assert (
        RunConfig.from_json({**content, "label": label}).label
        == "van\\x1b]0;owned\\x07\\r\\n\\u202ebad"
    )
    assert RunConfig.from_json({**content, "label": "é ü 中"}).label == "é ü 中"


@pytest.mark.parametrize("name", METHODS)
def test_the_runs_of_every_method_can_be_read(name):
    config = config_for("permuted-digits", name)
    assert RunConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
