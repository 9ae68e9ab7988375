import pytest

from support.commands import run
from support.deliveries import as_npz


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """The test runs in a folder of its own, with its own cache."""
    monkeypatch.setenv("MDMT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def birds(tmp_path, own_cache, capsys):
    """A model of two deliveries."""
    assert run("learn", "birds", as_npz(tmp_path / "january.npz", ["owl", "kite"])) == 0
    assert run("learn", "birds", as_npz(tmp_path / "february.npz", ["robin"], seed=1)) == 0
    capsys.readouterr()
    return tmp_path / "birds"
