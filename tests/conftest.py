import signal

import pytest
import torch

from mdmt.experiments import presets
from support.publisher import publish, server  # noqa: F401 (fixtures)

if hasattr(signal, "SIGHUP"):
    # Under nohup the signal is ignored, and so it would be by every process that a test starts.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(7)


@pytest.fixture
def float64():
    """Networks made in this test compute in double precision."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def untuned(monkeypatch):
    """The presets of the digits as they were before all methods were tuned on them."""
    monkeypatch.setattr(presets, "digits_presets", dict)


def pytest_terminal_summary(terminalreporter):
    passed = terminalreporter.stats.get("passed", [])
    kills = [
        value for report in passed for name, value in report.user_properties if name == "kills"
    ]
    if kills:
        terminalreporter.write_line(
            f"{sum(kills)} kills in {len(kills)} runs: each gave the same bits when started again"
        )
