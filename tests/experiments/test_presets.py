"""Every preset cell of the published benchmarks against a literal table of the protocol."""

import hashlib
import json

import pytest

from mdmt.experiments.presets import BEST, preset, preset_cells
from mdmt.experiments.resolve import configs_for
from mdmt.runs.request import RunRequest
from support.configs import config_for
from support.helpers import mistake

BENCHMARKS = ("permuted-mnist", "split-cifar", "split-cub", "split-awa")

TWO_SCRIPTS = ("script", "script", "ours", "ours")  # no script has the method on CUB and AWA
PROTOCOL = {  # (method, setting): the four values, and their source or that of each
    ("van", "lr"): ((0.03, 0.01, 0.03, 0.001), "script"),
    ("ewc", "lr"): ((0.03, 0.03, 0.03, 0.003), "script"),
    ("ewc", "strength"): ((10, 10, 1, 100), "script"),
    ("ewc", "window"): ((10, 50, 50, 50), "script"),
    ("pi", "lr"): ((0.1, 0.01, 0.03, 0.003), "script"),
    ("pi", "strength"): ((0.1, 0.1, 0.1, 1), "script"),
    ("mas", "lr"): ((0.1, 0.03, 0.03, 0.003), "script"),
    ("mas", "strength"): ((0.1, 0.1, 0.1, 1), "script"),
    ("rwalk", "lr"): ((0.1, 0.03, 0.03, 0.003), "script"),
    ("rwalk", "strength"): ((1, 1, 1, 10), "script"),
    ("rwalk", "window"): ((10, 50, 50, 50), "script"),
    ("a-gem", "lr"): ((0.1, 0.03, 0.03, 0.01), "script"),
    ("mega", "lr"): ((0.1, 0.03, 0.03, 0.01), "script"),
    ("mdmt-r", "lr"): ((0.1, 0.03, 0.03, 0.01), "published"),
    ("mdmt-r", "task_margin"): ((0.1, 0.1, 0.4, 0.2), "published"),
    ("mdmt-r", "class_margin"): ((0.01, 0.01, 0.05, 0.02), "published"),
    ("mdmt-r", "scale"): ((32, 24, 20, 32), "published"),
    ("er", "lr"): ((0.1, 0.03, 0.03, 0.01), "ours"),  # unrecorded; A-GEM's fits
    ("gem", "lr"): ((0.03, 0.03, 0.03, 0.01), "ours"),
    ("gem", "margin"): ((0.5, 0.5, 0.5, 0.5), TWO_SCRIPTS),
    **{
        (m, "reference_batch"): ((256, 256, 128, 128), "script")
        for m in ("a-gem", "mega", "mdmt-r")
    },
    ("er", "reference_batch"): ((256, 256, 128, 128), TWO_SCRIPTS),
    **{(m, "memory"): ((25, 13, 5, 20), "script") for m in ("a-gem", "mega", "mdmt-r")},
    **{(m, "memory"): ((25, 13, 5, 20), TWO_SCRIPTS) for m in ("gem", "er")},
    ("mer", "memory"): ((25, 13, 5, 20), "ours"),  # its script has 5,120 in all on MNIST
    **{
        (m, "policy"): (("Ring", "Ring", "AtTaskEnd", "AtTaskEnd"), "script")
        for m in ("a-gem", "mega", "mdmt-r")
    },
    ("gem", "policy"): (("Ring", "Ring", "AtTaskEnd", "AtTaskEnd"), "ours"),
    ("er", "policy"): (("Reservoir",) * 4, TWO_SCRIPTS),
    ("mer", "policy"): (("Reservoir",) * 4, ("script", "ours", "ours", "ours")),
    **{(m, "batch"): ((10, 10, 10, 10), "script") for m in ("joint", "van", "ewc", "er", "mdmt-r")},
    **{(m, "epochs"): ((1, 1, 1, 1), "script") for m in ("joint", "van", "ewc", "er", "mdmt-r")},
}


@pytest.mark.parametrize(("method", "key"), PROTOCOL)
def test_published_cells(method, key):
    values, source = PROTOCOL[method, key]
    found = [preset_cells(benchmark, method)[key] for benchmark in BENCHMARKS]
    assert tuple(cell.value for cell in found) == values
    sources = (source,) * 4 if isinstance(source, str) else source
    assert tuple(cell.source for cell in found) == sources


def test_cells_whose_source_differs_by_benchmark():
    # Joint is a flag of VAN in the programs, with the rate of VAN's script on MNIST.
    assert [preset_cells(b, "joint")["lr"] for b in BENCHMARKS] == [
        *3 * [(0.03, "script")],
        (0.01, "ours"),
    ]
    mer = preset_cells("permuted-mnist", "mer")
    assert {k: mer[k].value for k in ("lr", "beta", "gamma", "replay", "batches", "batch")} == {
        "lr": 0.03, "beta": 0.03, "gamma": 1.0, "replay": 100, "batches": 10, "batch": 1,
    }  # fmt: skip
    assert mer["lr"].source == "script"
    assert preset_cells("split-cifar", "mer")["lr"].source == "ours"


def test_the_digits_are_ours():
    for benchmark in ("permuted-digits", "split-digits"):
        for method in ("van", "mdmt-r", "mer"):
            assert {cell.source for cell in preset_cells(benchmark, method).values()} == {"ours"}


def test_the_policy_of_the_memory_is_a_setting():
    for method, policy, memory in (
        ("mdmt-r", "Reservoir", {"policy": "Reservoir", "size": 25 * 10 * 3}),
        ("er", "Ring", {"policy": "Ring", "per_class": 25}),
        ("er", "AtTaskEnd", {"policy": "AtTaskEnd", "per_class": 25}),
    ):
        assert (
            config_for("permuted-digits", method, tasks=3, settings={"policy": policy}).memory
            == memory
        )
    with pytest.raises(
        ValueError, match="policy=Heap: must be one of Ring, Reservoir, ClassReservoir, AtTaskEnd"
    ):
        config_for("permuted-digits", "er", settings={"policy": "Heap"})


# Hashes of every value on every benchmark in release 0.1.0: other values would be other runs.
DIGESTS = {
    "joint": "2a0294ac8ff3", "van": "d3cc9fb2ab7e", "ewc": "e3aa012cd153", "mas": "f08b3166a6cd",
    "rwalk": "bc074baf35bf", "pi": "d5301764e80d", "mer": "1a0aac8b0b26", "gem": "0f0960d31d59",
    "a-gem": "97f6faebad18", "er": "e16288a15740", "mega": "97f6faebad18", "mdmt-r": "75b629161b0e",
    "my:Own": "97f6faebad18",
}  # fmt: skip


@pytest.mark.usefixtures("untuned")
@pytest.mark.parametrize("method", DIGESTS)
def test_every_value_stays(method):
    benchmarks = {b: b for b in (*BENCHMARKS, "permuted-digits", "split-digits")}
    benchmarks["folder"] = "one without presets"  # as folder was then
    found = {
        b: {key: cell.value for key, cell in preset_cells(name, method).items()}
        for b, name in benchmarks.items()
    }
    assert (
        hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:12]
        == DIGESTS[method]
    ), found


def test_own_photos_differ_from_cifar_in_few_settings():
    changes = {"epochs": 20, "augment": "crop-flip"}
    for method, more in (
        ("mdmt-r", {}),
        ("van", {"lr": 0.03}),
        ("pi", {"lr": 0.03, "strength": 0.001}),
    ):
        assert preset("folder", method) == preset("split-cifar", method) | changes | more


@pytest.mark.parametrize("benchmark", BEST)
def test_best_differs_from_published_in_settings_of_the_method_alone(benchmark):
    published, best = config_for(benchmark, "mdmt-r"), config_for(benchmark, "mdmt-r[preset=best]")
    assert (published.label, best.label) == ("mdmt-r", "mdmt-r[preset=best]")
    for key in ("memory", "backbone", "heads", "epochs", "batch", "tasks", "optimiser"):
        assert getattr(published, key) == getattr(best, key)
    assert best.arguments["reference_batch"] == published.arguments["reference_batch"]
    chosen = {"lr": best.lr, **best.arguments}
    assert {key: chosen[key] for key in BEST[benchmark]} == BEST[benchmark]
    assert best.hash != published.hash
    assert config_for(benchmark, "mdmt-r[preset=published]") == published


def test_what_is_set_goes_before_the_preset():
    config = config_for("permuted-mnist", "mdmt-r[preset=best]", settings={"average": "0.5"})
    assert config.arguments["average"] == 0.5
    assert config.label == "mdmt-r[average=0.5,preset=best]"


def test_best_is_for_one_method_on_some_benchmarks():
    request = RunRequest("permuted-mnist", seed=0, preset="best")
    (ours,), (other,) = configs_for(request, ["mdmt-r", "er"])
    assert ours.arguments == config_for("permuted-mnist", "mdmt-r[preset=best]").arguments
    assert other == config_for("permuted-mnist", "er", seed=0)
    alone = "preset best is for mdmt-r; er has only the preset published"
    assert mistake(config_for, "permuted-mnist", "er", preset="best") == alone
    assert mistake(configs_for, request, ["er", "van"]) == alone
    assert mistake(config_for, "split-awa", preset="best").endswith(
        "; split-awa has only the preset published"
    )
    assert (
        mistake(config_for, "split-awa", settings={"preset": "worst"})
        == "preset=worst: must be published or best"
    )
