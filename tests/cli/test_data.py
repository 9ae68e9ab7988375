"""`mdmt data` list, fetch, verify and cache."""

import io
import json
from datetime import datetime, timedelta

import pytest

from mdmt.cli.app import main
from mdmt.data.fetch import fetch
from mdmt.data.images import load_images
from mdmt.data.sources import SOURCES
from mdmt.system.files import lock
from support.formats import picture


def test_list(tmp_path, publish, server, capsys, monkeypatch):
    publish("cifar100")
    monkeypatch.setenv("MDMT_DATA", str(tmp_path))
    fetch("cifar100", tmp_path, base=server.url)
    assert main(["data", "list"]) == 0
    out = capsys.readouterr().out
    assert "cifar100: present" in out
    assert "cub: missing" in out
    assert "about 13,500.0 MB" in out
    assert str(tmp_path / "CUB_200_2011.tgz") in out
    assert main(["data", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows["folder"] == str(tmp_path)
    assert set(rows["data"]) == set(SOURCES)
    assert rows["data"]["cifar100"]["state"] == "present"


def test_fetch_and_verify_commands(tmp_path, publish, server, capsys):
    publish("cub")
    data = ["--data", str(tmp_path)]
    assert main(["data", "fetch", "cub", *data, "--from", server.url]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"cub: fetched, md5 as published: {tmp_path / 'CUB_200_2011'} (licence: ")
    assert err == "CUB_200_2011.tgz, 0.0 MB\n"
    assert main(["data", "verify", "cub", *data, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bytes"] == "published"
    assert found["figures"]["images"] == 10
    assert main(["data", "fetch", "cub", *data, "--from", server.url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "present"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["fetch", "no-such"],
            "data set 'no-such' is not one of mnist, fashion-mnist, cifar100, cub, awa2",
        ),
        (["verify", "no-such"], "data set 'no-such' is not one of"),
        (["verify", "cub"], "cub is not in"),
        (["fetch", "cub", "--from", "http://example.org"], "data is fetched over https only"),
    ],
)
def test_mistakes_are_one_line(arguments, message, tmp_path, capsys):
    assert main(["data", *arguments, "--data", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """A cache of two lists of images, among files that mdmt did not write."""
    monkeypatch.setenv("MDMT_CACHE", str(tmp_path / "cache"))
    birds = [picture(tmp_path / "birds" / f"{i}.png", i) for i in range(4)]
    fish = [picture(tmp_path / "fish" / f"{i}.png", i) for i in range(3)]
    load_images(birds, 8, rows=[1, 2])
    load_images(fish, 8)
    place = tmp_path / "cache" / "images"
    (place / "mine.u8").write_text("mine")
    (place / f"{'0' * 32}.jpg").write_text("mine")
    (place / f"{'0' * 32}.u8").mkdir()
    return place


def test_the_cache_is_listed(cached, tmp_path, capsys):
    assert main(["data", "cache"]) == 0
    out = capsys.readouterr().out
    assert f"cache folder: {cached}\n" in out
    assert ": 2 of 4 images, 8 x 8 pixels\n" in out
    assert ": 3 of 3 images, 8 x 8 pixels\n" in out
    assert f"  images    {tmp_path / 'birds'}\n" in out
    assert main(["data", "cache", "birds", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["images"]
    assert (row["images"], row["decoded"], row["of"]) == (str(tmp_path / "birds"), 2, 4)
    used = datetime.fromisoformat(row["used"])
    assert abs(used - datetime.now()) < timedelta(minutes=10)
    old = {path.name for path in cached.iterdir()}
    assert main(["data", "cache", "cats", "--clear", "--yes"]) == 2
    assert "nothing in the cache is named 'cats'" in capsys.readouterr().err
    assert {path.name for path in cached.iterdir()} == old


def test_the_cache_is_cleared_of_what_mdmt_wrote(cached, tmp_path, capsys, monkeypatch):
    mine = {"mine.u8", f"{'0' * 32}.jpg", f"{'0' * 32}.u8"}
    (tmp_path / "outside").write_text("mine")
    (cached / f"{'1' * 32}.u8").symlink_to(tmp_path / "outside")
    (cached / f".{'2' * 32}.json.77.tmp").write_text("left by a killed process")
    assert main(["data", "cache", "--clear", "birds", "--yes"]) == 0
    assert ", removed\n" in capsys.readouterr().out
    assert main(["data", "cache", "--json"]) == 0
    assert [row["images"] for row in json.loads(capsys.readouterr().out)["images"]] == [
        None,
        str(tmp_path / "fish"),
    ]
    monkeypatch.setattr("sys.stdin", io.StringIO("n\nn\n"))
    assert main(["data", "cache", "--clear"]) == 0
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main(["data", "cache", "--clear"]) == 2
    assert "nobody answered" in capsys.readouterr().err
    assert len(list(cached.glob("*.json"))) == 1
    with lock(next(cached.glob("*.json")).with_suffix(".lock")):
        assert main(["data", "cache", "fish", "--clear", "--yes"]) == 2
    assert "a process is decoding images into it" in capsys.readouterr().err
    assert main(["data", "cache", "--clear", "--yes"]) == 0
    assert {path.name for path in cached.iterdir()} == {*mine, f"{'1' * 32}.u8"}
    assert (tmp_path / "outside").read_text() == "mine"


def test_an_empty_cache(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MDMT_CACHE", str(tmp_path / "none"))
    assert main(["data", "cache"]) == 0
    assert capsys.readouterr().out.endswith("\nnothing kept\n")
    assert main(["data", "cache", "--clear", "--yes"]) == 0
    assert not (tmp_path / "none").exists()
