"""A request leads to a configuration and back: the command line that is printed does the same run."""

import json
import re
import shlex

import pytest
import torch

import mdmt
import mdmt.backbones as backbones
import mdmt.report.sections as sections
from mdmt.cli.app import main
from mdmt.errors import Mistake
from mdmt.experiments.resolve import configs_for, resolve
from mdmt.methods import METHODS
from mdmt.report.study import read_studies
from mdmt.runs.config import MAX_SEED, RunConfig
from mdmt.runs.folder import RunFolder
from mdmt.runs.request import RunRequest, split_at_commas
from support.helpers import mistake
from support.photos import photos
from support.run_folders import leave

NETWORK = """
import torch

def narrow(width=8):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, width))

class Own(torch.nn.Flatten):
    pass
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with images, first weights and a module; it is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MDMT_CACHE", str(tmp_path / "cache"))
    photos(tmp_path / "photos")
    (tmp_path / "own_networks.py").write_text(NETWORK)
    torch.save(backbones.resnet18(width=4).state_dict(), tmp_path / "weights.pth")
    return tmp_path


REQUESTS = {
    "defaults": {},
    "tasks": {"tasks": 2, "subset": 30, "seed": 7},
    "settings": {"method": "er[lr=0.2]", "set": ["batch=5", "heads=per-task", "policy=Ring"]},
    "preset": {"preset": "best", "set": ["average=0.5"]},
    "reading": {"method": "er", "reading": "paper"},
    "machine": {"threads": 2, "precision": "bf16", "keep_model": True},
    "split": {"benchmark": "split-digits", "method": "mdmt-r[distance=none]"},
    "network": {"benchmark": "split-digits", "backbone": "resnet18"},
    "width": {"benchmark": "split-digits", "backbone": "reduced_resnet18[width=7]"},
    "published": {"benchmark": "split-cifar", "method": "gem", "tasks": 3},
    "published stream": {
        "benchmark": "permuted-mnist", "method": "van", "set": ["stream=published"],
    },
    "published network": {"benchmark": "split-cifar", "backbone": "reduced_resnet18"},
    "birds": {"benchmark": "split-cub", "image_size": 64},
    "weights": {"benchmark": "split-cifar", "weights": "weights.pth"},
    "photos": {"benchmark": "folder", "data": "photos", "skip_broken": True},
    "large photos": {"benchmark": "folder", "data": "photos", "backbone": "resnet18", "tasks": 1},
    "own network": {"benchmark": "folder", "data": "photos", "backbone": "own_networks.py:Own"},
    "own width": {
        "benchmark": "folder", "data": "photos", "backbone": "own_networks:narrow[width=5]",
    },
}  # fmt: skip


def parsed(argv, monkeypatch):
    """The options that the command line makes of these words."""
    options = []
    monkeypatch.setattr("mdmt.cli.run._run_on_ranks", lambda given, *_: options.append(given))
    assert argv[0] == "mdmt"
    assert main(argv[1:]) == 0
    return options[0]


@pytest.mark.parametrize("name", REQUESTS)
def test_the_command_of_a_configuration_does_the_same_run(name, place, monkeypatch):
    config = resolve(RunRequest(**REQUESTS[name]))
    repeated = resolve(parsed(RunRequest.of(config).argv(), monkeypatch))
    assert (repeated.hash, repeated.seed) == (config.hash, config.seed)
    assert repeated == config


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("benchmark", ["permuted-mnist", "split-awa", "split-digits"])
def test_the_command_of_every_method_does_the_same_run(method, benchmark, monkeypatch):
    config = resolve(RunRequest(benchmark, method, seed=3))
    repeated = resolve(parsed(RunRequest.of(config).argv(), monkeypatch))
    assert repeated == config


@pytest.mark.parametrize(
    "name", ["width", "photos", "large photos", "machine", "own width", "published stream"]
)
def test_the_command_in_the_report_does_the_same_runs(name, place, monkeypatch):
    options = {"method": "van", **REQUESTS[name]}
    benchmark, method = options.pop("benchmark", "permuted-digits"), options.pop("method")
    config = resolve(RunRequest(benchmark, method, **{"tasks": 2, **options}))
    path = leave(place / "runs", method, benchmark="permuted-digits", tasks=2)
    (path / "config.json").write_text(json.dumps(config.to_json()))
    (study,), _ = read_studies([RunFolder(path)])
    (line,) = sections.commands(study)
    words = shlex.split(line)
    at = words.index("--methods")
    variants = split_at_commas(words[at + 1])
    request = parsed(["mdmt", "run", *words[2:at], *words[at + 2 :]], monkeypatch)
    ((repeated,),) = configs_for(request, variants)
    assert repeated == config


def test_every_difference_from_the_defaults_is_written_and_read(monkeypatch):
    request = RunRequest(
        "split-cub", "er[lr=0.1]", 2, 5, 3, ["a=1", "b=x y"], "paper", "best", "some where", 64, 9,
        "resnet18[width=3]", "w.pth", True, True, 7, 2, "cuda:1", "bf16",
    )  # fmt: skip
    options = parsed(shlex.split(shlex.join(request.argv())), monkeypatch)
    assert RunRequest(**{name: getattr(options, name) for name in vars(request)}) == request
    assert RunRequest().argv() == ["mdmt", "run", "permuted-digits", "--method", "mdmt-r"]


def test_seeds_that_numpy_does_not_take_are_one_line(capsys, tmp_path):
    line = r"mdmt: seed \d+ is too large: the largest seed is 4294967295\n"
    for words in (["--seed", str(2**32)], ["--seed", str(2**32 - 1), "--seeds", "2"]):
        for name in (["run"], ["compare", "--methods", "van"], ["tune"], ["reproduce", "fig4"]):
            assert main([*name, *words, "--out", str(tmp_path / "runs")]) == 2
            assert re.fullmatch(line, capsys.readouterr().err)
    config = resolve(RunRequest(seed=MAX_SEED)).to_json()
    assert RunConfig.from_json(config).seed == MAX_SEED
    assert "seed is 4294967296" in mistake(RunConfig.from_json, {**config, "seed": 2**32})
    with pytest.raises(Mistake, match="seed=4294967296: must be a whole number, 0 to 4294967295"):
        mdmt.Learner(backbones.mlp(4), seed=2**32)


def test_the_largest_seed_learns(tmp_path):
    words = ["run", "--method", "van", "--tasks", "1", "--subset", "20", "--quiet"]
    assert main([*words, "--seed", str(MAX_SEED), "--out", str(tmp_path)]) == 0


def test_a_number_of_seeds_beyond_reason_builds_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in (4 * 10**9, 99_999_999_999):
        assert main(["run", "permuted-digits", "--seeds", str(number)]) == 2
        assert f"--seeds {number}: must be 1 to 10,000" in capsys.readouterr().err
