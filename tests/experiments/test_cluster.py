"""Runs on a real Ray cluster of two nodes on this machine, and what is refused before any run
starts.
"""

import os
import signal
import socket
import threading
from pathlib import Path

import pytest

from mdmt.cli.app import main
from mdmt.experiments.sweep import run_all
from mdmt.runs.folder import RunFolder
from support.configs import config_for

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install ray")
SAME = ("accuracy", "curve", "drift", "steps", "weights_sha256")


@pytest.fixture(scope="module")
def address():
    """Two nodes with a core each."""
    from ray.cluster_utils import Cluster as Nodes

    nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes.add_node(num_cpus=1)
    yield nodes.address
    nodes.shutdown()


def configs():
    methods = ("van", "er[reference_batch=8]", "a-gem[reference_batch=8]")
    return [
        [config_for("permuted-digits", m, seed=s, tasks=3, subset=300) for s in (1, 2)]
        for m in methods
    ]


def process_of(name):
    """The process of the cluster that is doing a run."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if words.startswith(f"ray::{name}"):
            return int(folder.name)
    return None


@pytest.mark.long
@pytest.mark.xdist_group("ray")
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"
)
def test_six_runs_one_of_whose_processes_is_killed(address, tmp_path):
    from mdmt.experiments.cluster import Cluster

    killed = []

    def kill_one(event):
        if not killed and event.kind == "progress" and event.text == "task 2/3":
            name = f"{event.config.benchmark}, {event.config.label}, seed {event.config.seed}"
            number = process_of(name)
            if number is not None:
                os.kill(number, signal.SIGKILL)
                killed.append(name)

    rows, failed = run_all(
        configs(),
        str(tmp_path / "cluster"),
        Cluster(address, tmp_path / "cluster", every=5),
        every=5,
        on_event=kill_one,
    )
    assert failed == []
    assert len(killed) == 1
    assert not ray.is_initialized()
    here, _ = run_all(configs(), str(tmp_path / "here"), 1)
    for there, local in zip(rows, here, strict=True):
        assert there.seeds == local.seeds == [1, 2]
        for folders in zip(there.runs, local.runs, strict=True):
            records = [RunFolder(folder).record for folder in folders]
            for name in SAME:
                assert getattr(records[0], name) == getattr(records[1], name)


@pytest.mark.long
@pytest.mark.xdist_group("ray")
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"
)
def test_a_folder_that_the_machines_do_not_see(address, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Path, "touch", lambda *_: None)  # what is written here is not there
    out = str(tmp_path / "runs")
    assert (
        main(
            [
                "compare",
                "--methods",
                "van",
                "--tasks",
                "2",
                "--cluster",
                address,
                "--out",
                out,
                "--quiet",
            ]
        )
        == 2
    )
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert (
        f"does not see {tmp_path / 'runs'}: choose a folder with --out that all machines share"
        in told
    )
    assert not list((tmp_path / "runs").glob("*"))


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("nowhere", "--cluster nowhere: must be auto or HOST:PORT"),
        ("127.0.0.1:{closed}", "nobody answers there"),
    ],
)
def test_a_cluster_that_does_not_answer(address, told, tmp_path, capsys):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        place = address.format(closed=unused.getsockname()[1])
    command = [
        "compare",
        "--methods",
        "van",
        "--tasks",
        "2",
        "--out",
        str(tmp_path / "runs"),
        "--quiet",
    ]
    assert main([*command, "--cluster", place]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert not (tmp_path / "runs").exists()
    assert main([*command, "--cluster", place, "--workers", "2"]) == 2
    assert "a cluster decides how many runs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("says", "told"),
    [
        (None, "nobody answers there (timed out)"),
        (b"HTTP/1.1 400", "the server there is not Ray"),
    ],
)
def test_something_else_listens_there(says, told, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("mdmt.experiments.cluster.ANSWER", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer():
            line, _ = other.accept()
            with line:
                line.recv(100)
                if says is None:
                    line.recv(100)  # until the other side goes
                else:
                    line.sendall(says)

        talk = threading.Thread(target=answer)
        talk.start()
        place = f"127.0.0.1:{other.getsockname()[1]}"
        out = tmp_path / "runs"
        assert (
            main(
                [
                    "compare",
                    "--methods",
                    "van",
                    "--tasks",
                    "2",
                    "--out",
                    str(out),
                    "--cluster",
                    place,
                    "--quiet",
                ]
            )
            == 2
        )
        talk.join()
    error = capsys.readouterr().err
    assert f"--cluster {place}: {told}" in error
    assert error.count("\n") == 1
    assert not out.exists()
