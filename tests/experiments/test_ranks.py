"""A run on several ranks: one writer, a rank that dies, and a checkpoint that knows nothing of
their number.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import pytest
import torch

import mdmt
import mdmt.experiments.run
from mdmt import ranks
from mdmt.cli.app import main
from mdmt.errors import Stopped
from mdmt.experiments.rerun import rerun
from mdmt.experiments.run import run
from mdmt.runs.config import folder_of
from mdmt.runs.folder import RunFolder
from support.configs import config_for
from support.helpers import mistake, small_stream
from support.ranks import fork_ranks, words_into

CONFIG = config_for(
    "permuted-digits", "mdmt-r", tasks=2, keep_model=True,
    settings={"lr": 0.01, "memory": 3, "batch": 7, "reference_batch": 9, "distance": "mse"},
)  # fmt: skip
COMMAND = [
    "run",
    "permuted-digits",
    "--tasks",
    "2",
    "--method",
    "er",
    "--checkpoint-every",
    "2",
    "--set",
    "memory=3",
    "--set",
    "reference_batch=9",
    "--set",
    "lr=0.01",
]


@pytest.fixture(autouse=True)
def small_streams(monkeypatch):
    monkeypatch.setattr(mdmt.experiments.run, "stream_for", lambda config, **_: small())


def small():
    return small_stream("permuted-digits", tasks=2, train=36, test=10)


def run_until(step, out):
    """The run, stopped after a step; every step leaves a checkpoint."""

    def stop(learner):
        if learner.record.steps == step:
            raise Stopped

    def work():
        with ranks.group(), suppress(Stopped):
            run(CONFIG, out, every=1, on_step=stop)

    return work


def weights(out):
    return mdmt.Learner.load(folder_of(CONFIG, out) / "model").model.flat.detach()


def record(out):
    return json.loads((folder_of(CONFIG, out) / "record.json").read_text())


def test_two_ranks_go_on_as_one_and_back(tmp_path):
    run(CONFIG, tmp_path / "one")
    assert fork_ranks(2, run_until(4, tmp_path / "both")) == [0, 0]
    run_until(8, tmp_path / "both")()
    assert fork_ranks(2, run_until(99, tmp_path / "both")) == [0, 0]
    one, both = (record(tmp_path / name) for name in ("one", "both"))
    assert (one["ranks"], both["ranks"]) == (1, 2)
    assert [one[key] for key in ("accuracy", "curve", "steps")] == [
        both[key] for key in ("accuracy", "curve", "steps")
    ]
    torch.testing.assert_close(
        weights(tmp_path / "one"), weights(tmp_path / "both"), rtol=0, atol=1e-5
    )
    assert "done by several ranks" in mistake(
        rerun, RunFolder(folder_of(CONFIG, tmp_path / "both"))
    )


def command(folder, out, kill=None):
    """The command line as torchrun starts it on two ranks; `kill` dies in its fifth step. Exit
    codes, and what was said.
    """
    real = mdmt.Learner.step

    def step(learner, batch):
        if ranks.rank() == kill and learner.record.steps == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        real(learner, batch)

    def work():
        mdmt.Learner.step = step
        with words_into(folder):
            return main([*COMMAND, "--out", str(out)])

    codes = fork_ranks(2, work)
    return codes, {
        path.name: path.read_text() for path in sorted(folder.iterdir()) if path.is_file()
    }


@pytest.mark.parametrize("victim", [pytest.param(0, marks=pytest.mark.long), 1])
def test_a_rank_that_is_killed_and_the_same_command_again(victim, tmp_path):
    survivor = 1 - victim
    codes, said = command(tmp_path, tmp_path / "runs", kill=victim)
    assert (codes[victim], codes[survivor]) == (-signal.SIGKILL, 2)
    line = (
        f"mdmt: rank {survivor}: another rank has ended, or does not answer; the same command goes"
        " on from the last"
    )
    assert said[f"{survivor}.err"].splitlines()[-1].startswith(line)
    assert [*(tmp_path / "runs").rglob("checkpoint/state.json")]
    codes, said = command(tmp_path, tmp_path / "runs")
    assert codes == [0, 0]
    assert " on permuted-digits, 2 tasks, seed 1234" in said["0.out"]
    assert (said["1.out"], said["1.err"]) == ("", "")  # the others are silent
    (folder,) = (path.parent for path in (tmp_path / "runs").rglob("record.json"))
    assert json.loads((folder / "record.json").read_text())["ranks"] == 2
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [".lock", "config.json", "record.json", "snapshots.safetensors", "steps.csv"]
    )
    main([*COMMAND, "--out", str(tmp_path / "alone")])
    (alone,) = (tmp_path / "alone").rglob("record.json")
    # One hash.
    assert alone.relative_to(tmp_path / "alone") == (folder / "record.json").relative_to(
        tmp_path / "runs"
    )
    one, both = (json.loads(path.read_text()) for path in (alone, folder / "record.json"))
    assert [one[key] for key in ("accuracy", "curve", "steps")] == [
        both[key] for key in ("accuracy", "curve", "steps")
    ]


def test_a_signal_to_one_rank_stops_them_all_at_one_step(tmp_path):
    def interrupt(learner):
        if ranks.rank() == 1 and learner.record.steps == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    def work():
        with ranks.group(), pytest.raises(Stopped, match="task 1, step 6"):
            run(CONFIG, tmp_path, on_step=interrupt)

    assert fork_ranks(2, work) == [0, 0]
    assert [*tmp_path.rglob("checkpoint/state.json")]


def launch(monkeypatch, rank):
    told = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("what", ["compare", "tune", "ablate", "cost"])
def test_other_commands_than_run_say_so_once(what, monkeypatch, capsys):
    waited = []
    monkeypatch.setattr("mdmt.cli.process.time.sleep", waited.append)
    for rank in (0, 1):
        launch(monkeypatch, rank)
        assert main([what]) == 2
    line = (
        f"several ranks do one run: torchrun --nproc-per-node K -m mdmt run ...; start mdmt {what}"
        " without torchrun"
    )
    assert capsys.readouterr() == ("", f"mdmt: {line}\n")
    assert len(waited) == 1  # the second leaves the first time to speak, before torchrun ends both


@pytest.mark.long
def test_torchrun_does_the_run_of_every_seed(tmp_path, monkeypatch):
    """The command of the documentation, as it is typed."""
    monkeypatch.undo()
    options = [
        "--method",
        "er",
        "--tasks",
        "2",
        "--subset",
        "60",
        "--seeds",
        "2",
        "--json",
        "--out",
        str(tmp_path),
    ]
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "-m",
        "mdmt",
        "run",
    ]
    done = subprocess.run(
        [*torchrun, "permuted-digits", *options], capture_output=True, text=True, check=True
    )
    config = config_for("permuted-digits", "er", tasks=2, subset=60)
    alone = [run(replace(config, seed=seed), tmp_path / "alone") for seed in (1234, 1235)]
    assert json.loads(done.stdout)["metrics"]["A_T"]["runs"] == [
        record.metrics["A_T"] for record in alone
    ]
