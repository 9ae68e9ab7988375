"""The places of the data sets, and the facts about them."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from mdmt.data.sources import SOURCES, data_folder, locate
from support.publisher import idx


def test_the_data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("MDMT_DATA", str(tmp_path / "env"))
    assert data_folder("mine") == Path("mine")
    assert data_folder() == tmp_path / "env"
    monkeypatch.delenv("MDMT_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_folder() == tmp_path / "mdmt" / "data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_folder() == Path.home() / ".cache" / "mdmt" / "data"


def test_a_missing_data_set_says_what_to_do(tmp_path):
    for name, source in SOURCES.items():
        if name == "fashion-mnist":
            continue  # Debian may have it
        with pytest.raises(ValueError) as caught:
            locate(name, tmp_path)
        line = str(caught.value)
        assert "\n" not in line
        assert f"mdmt data fetch {name}" in line
        assert source.files[0].name in line
        assert "https://" in line
        assert str(tmp_path / source.folders[0]) in line


def test_debians_fashion_mnist(tmp_path, monkeypatch):
    debian = tmp_path / "usr"
    debian.mkdir()
    places = (*SOURCES["fashion-mnist"].folders[:-1], str(debian))
    assert SOURCES["fashion-mnist"].folders[-1] == "/usr/share/dataset-fashion-mnist"
    monkeypatch.setitem(SOURCES, "fashion-mnist", replace(SOURCES["fashion-mnist"], folders=places))
    for name, data in idx().items():
        (debian / name).write_bytes(data)
    assert locate("fashion-mnist", tmp_path).folder == debian


def test_the_registry_is_whole():
    for name, source in SOURCES.items():
        assert name == source.name
        assert source.licence
        for file in source.files:
            assert all(url.startswith("https://") for url in file.urls)
            assert file.md5 is None or re.fullmatch("[0-9a-f]{32}", file.md5)
            assert file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256)
            assert file.size > 0
        assert not source.archive or len(source.files) == 1
        assert not source.archive or source.max_bytes > source.files[0].size
        assert set(source.part_md5) <= set(source.parts)
