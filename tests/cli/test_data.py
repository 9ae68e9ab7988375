"""`mdmt data` list, fetch and verify."""

import json

import pytest

from mdmt.cli.app import main
from mdmt.data.fetch import fetch
from mdmt.data.sources import SOURCES


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
