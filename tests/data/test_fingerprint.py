"""Other images make another run, even in the same folder."""

import json
import os
import re
import shutil

import pytest

from mdmt.cli.app import main
from mdmt.report.study import read_studies
from mdmt.runs.config import RunConfig
from mdmt.runs.folder import find_runs
from support.configs import config_for
from support.formats import write_awa, write_cub
from support.helpers import mistake
from support.photos import photos
from support.run_folders import leave


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MDMT_CACHE", str(tmp_path / "cache"))


def learn(data, tmp_path, *more):
    arguments = [
        "--method",
        "van",
        "--image-size",
        "8",
        "--set",
        "epochs=1",
        "--out",
        str(tmp_path / "runs"),
    ]
    return main(["run", "folder", "--data", str(data), *arguments, *more])


def hash_of(data):
    return config_for("folder", "van", data=str(data)).hash


def test_another_folder_is_another_run(tmp_path, capsys):
    assert learn(photos(tmp_path / "birds"), tmp_path, "--json") == 0
    assert learn(photos(tmp_path / "cars", 30), tmp_path, "--json") == 0
    assert len(list(tmp_path.glob("runs/folder/van/*/1234/record.json"))) == 2
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["runs"] != second["runs"]


def test_whatever_changes_in_a_folder_changes_the_run(tmp_path):
    place = photos(tmp_path / "mine")
    hashes = [hash_of(place)]
    photos(place, tasks=("birds", "fish", "frogs"))
    hashes.append(hash_of(place))
    (place / "frogs").rename(place / "toads")
    hashes.append(hash_of(place))
    (place / "toads" / "one" / "4.png").unlink()
    hashes.append(hash_of(place))
    os.utime(place / "toads" / "one" / "3.png", ns=(1, 1))
    hashes.append(hash_of(place))
    assert len(set(hashes)) == 5
    place.rename(tmp_path / "elsewhere")
    assert hash_of(tmp_path / "elsewhere") == hashes[-1]


def test_a_folder_that_is_not_there_is_refused_whatever_was_finished(tmp_path, capsys):
    place = photos(tmp_path / "mine")
    assert learn(place, tmp_path) == 0
    shutil.rmtree(place)
    capsys.readouterr()
    assert learn(place, tmp_path) == 2
    assert f"{place} is missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("benchmark", "write"), [("split-cub", write_cub), ("split-awa", write_awa)]
)
def test_substitutes_of_a_data_set_are_told_apart(benchmark, write, tmp_path, monkeypatch):
    monkeypatch.setenv("MDMT_DATA", str(tmp_path / "nothing"))
    published = config_for(benchmark, "van")
    assert published.fingerprint is None
    for name in ("one", "two"):
        write(tmp_path / name)
    hashes = {
        config_for(benchmark, "van", data=str(tmp_path / name)).hash for name in ("one", "two")
    }
    assert len(hashes | {published.hash}) == 3
    assert "is not in" in mistake(config_for, benchmark, "van", data=str(tmp_path / "three"))


def test_a_config_of_an_earlier_version_keeps_its_hash(tmp_path):
    config = config_for("folder", "van", data=str(photos(tmp_path / "mine")))
    old = {key: value for key, value in config.to_json().items() if key != "fingerprint"}
    assert RunConfig.from_json(old).fingerprint is None
    assert RunConfig.from_json(old).hash != config.hash


def test_a_report_keeps_two_data_sets_apart(tmp_path):
    leave(tmp_path, "van", fingerprint="a" * 64)
    leave(tmp_path, "van", fingerprint="b" * 64)
    studies, _ = read_studies(find_runs(tmp_path))
    assert [len(study.runs) for study in studies] == [1, 1]


WHEN = r"finished \d+ [A-Z][a-z]+ \d\d:\d\d"


def test_a_result_that_was_read_says_so(tmp_path, capsys):
    place = photos(tmp_path / "mine")
    assert learn(place, tmp_path) == 0
    assert "read from" not in "".join(capsys.readouterr())
    assert learn(place, tmp_path) == 0
    printed = capsys.readouterr().out.replace("\n", " ")
    assert re.search(rf"read from {tmp_path}/runs/folder/van/\w+/1234, {WHEN}", printed)
    assert learn(place, tmp_path, "--json") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["benchmark"] == "folder"
    assert re.search(rf"read from .*, {WHEN}", err)
    assert learn(place, tmp_path, "--fresh") == 0
    assert "read from" not in "".join(capsys.readouterr())


def test_a_comparison_says_how_many_runs_were_read(tmp_path, capsys):
    arguments = ["compare", "--tasks", "1", "--seeds", "1", "--out", str(tmp_path)]
    assert main([*arguments, "--methods", "van"]) == 0
    capsys.readouterr()
    assert main([*arguments, "--methods", "van,van[lr=0.02]"]) == 0
    assert re.search(
        rf"mdmt: 1 of 2 runs was read from {tmp_path}, {WHEN}", capsys.readouterr().err
    )
