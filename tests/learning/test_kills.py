"""Runs that are killed with SIGKILL and started again: the same bits as without.

Children are forked from this process, which has imported torch, so that many kills are affordable.
MDMT_KILLS sets how many kills at random moments each method and network gets; the named moments of
the writer and the first and last step come always.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import mdmt.experiments.run
import mdmt.learning.checkpoints as checkpoints
import mdmt.system.state
from mdmt.cli.app import main
from mdmt.experiments.run import run
from mdmt.experiments.sweep import sweep
from mdmt.learner import Learner
from mdmt.methods import METHODS
from mdmt.runs.config import folder_of
from mdmt.runs.folder import RunFolder
from support.processes import child
from support.short_runs import config_of, done, essence, small

RANDOM_KILLS = int(os.environ.get("MDMT_KILLS", "2"))
POINTS = ("model written", "memory written", "previous kept", "state written", "old removed")


@pytest.fixture(autouse=True)
def small_streams(monkeypatch):
    monkeypatch.setattr(mdmt.experiments.run, "stream_for", small)


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def killed_at_step(config, out, step):
    with child(
        lambda: run(
            config, out, every=1, on_step=lambda x: die() if x.record.steps == step else None
        )
    ) as (
        _,
        ended,
    ):
        pass
    return ended[0]


def killed_at_point(config, out, point, times):
    """Kill a run when its writer reaches `point` for the `times`-th time."""

    def work():
        met = []

        def reached(name):
            met.append(name)
            if met.count(point) == times:
                die()

        mdmt.system.state._crash_point = reached
        run(config, out, every=1)

    with child(work) as (_, ended):
        pass
    return ended[0]


def killed_at_a_moment(config, out, seconds):
    with child(lambda: run(config, out, every=2)) as (pid, ended):
        # Of this very child, also when its number is given away after its end.
        handle = os.pidfd_open(pid)

        def kill():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)

        timer = threading.Timer(seconds, kill)
        timer.start()
    timer.cancel()
    timer.join()
    os.close(handle)
    return ended[0]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["resnet", "mlp"])
@pytest.mark.parametrize("name", METHODS)
def test_killed_and_started_again_it_gives_the_same_bits(name, kind, tmp_path, record_property):
    config, chance = config_of(name, kind), random.Random(f"{name} {kind}")
    straight = done(config, tmp_path / "straight")
    steps, out, kills = straight["steps"], tmp_path / "out", 0
    for step in (1, steps):
        kills += killed_at_step(config, out, step) == -signal.SIGKILL
    assert kills == 2
    assert essence(done(config, out)) == essence(straight)
    for point in POINTS:
        if point == "memory written" and not METHODS[name].uses_memory:
            continue
        shutil.rmtree(out)
        times = chance.randint(1, 2)
        assert killed_at_point(config, out, point, times) == -signal.SIGKILL
        kills += 1 + (killed_at_point(config, out, point, times) == -signal.SIGKILL)
        assert essence(done(config, out)) == essence(straight)
    for _ in range(RANDOM_KILLS):
        shutil.rmtree(out)
        for _ in range(3):  # the same run killed up to three times
            kills += killed_at_a_moment(config, out, chance.uniform(0, 0.4)) == -signal.SIGKILL
        assert essence(done(config, out)) == essence(straight)
    record_property("kills", kills)


def interrupted(tmp_path, name="er"):
    """An unfinished run with two checkpoints, its config and its folder."""
    config = config_of(name, "mlp")
    straight = done(config, tmp_path / "straight")
    assert killed_at_step(config, tmp_path / "out", 4) == -signal.SIGKILL
    return config, folder_of(config, tmp_path / "out"), straight


@pytest.mark.parametrize(
    "damage", ["truncated", "flipped", "empty", "gone", "manifest truncated", "manifest empty"]
)
def test_a_damaged_newest_checkpoint_costs_only_the_steps_since_the_one_before(damage, tmp_path):
    config, folder, straight = interrupted(tmp_path)
    manifest = folder / "checkpoint" / "state.json"
    newest = json.loads(manifest.read_text())["files"]["model"]["file"]
    victim = manifest if damage.startswith("manifest") else folder / "checkpoint" / newest
    data = bytearray(victim.read_bytes())
    if damage == "gone":
        victim.unlink()
    elif damage == "flipped":
        data[len(data) // 2] ^= 16
        victim.write_bytes(data)
    else:
        victim.write_bytes(data[: len(data) // 2] if "truncated" in damage else b"")
    told = []
    record = done(config, tmp_path / "out", warn=told.append)
    assert essence(record) == essence(straight)
    assert len(told) == 1
    assert victim.name in told[0]
    assert "going on from the checkpoint before it" in told[0]


@pytest.mark.parametrize("name", ["er", "ewc", "mdmt-r"])
def test_any_one_file_of_a_checkpoint_may_be_damaged(name, tmp_path):
    """Although every part is the same in the last two checkpoints."""
    config = config_of(name, "mlp")
    straight = done(config, tmp_path / "straight")
    assert killed_at_step(config, tmp_path / "whole", straight["steps"]) == -signal.SIGKILL
    out = tmp_path / "out"
    folder = folder_of(config, tmp_path / "whole") / "checkpoint"
    checkpoints.save(Learner.load(folder), folder, keep=True)
    assert any(path.name.startswith("memory") for path in folder.iterdir()) == (name != "ewc")
    for file in sorted(path.name for path in folder.iterdir()):
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(tmp_path / "whole", out)
        victim = folder_of(config, out) / "checkpoint" / file
        data = bytearray(victim.read_bytes())
        data[len(data) // 2] ^= 16
        victim.write_bytes(data)
        assert essence(done(config, out)) == essence(straight), file


def test_no_good_checkpoint_left_is_one_clear_line_and_nothing_is_removed(tmp_path):
    config, folder, _ = interrupted(tmp_path)
    for path in (folder / "checkpoint").glob("*.json"):
        path.write_text("{")
    with pytest.raises(ValueError, match="no good checkpoint is left: use --fresh"):
        run(config, tmp_path / "out")
    assert list((folder / "checkpoint").glob("*.safetensors"))
    assert run(config, tmp_path / "out", fresh=True).finished


def test_a_folder_of_another_configuration_is_refused(tmp_path):
    config, folder, _ = interrupted(tmp_path)
    other = replace(config, lr=0.5)
    (folder / "config.json").write_text(json.dumps(other.to_json()))
    with pytest.raises(ValueError, match="holds a run of another configuration"):
        run(config, tmp_path / "out")


def test_two_processes_on_one_folder(tmp_path):
    """The second process is refused while the first one works, and changes nothing."""
    config = config_of("van", "mlp")
    reader, writer = os.pipe()
    go_reader, go_writer = os.pipe()

    def first():
        def on_step(learner):
            if learner.record.steps == 2:
                os.write(writer, b"x")
                os.read(go_reader, 1)  # hold the folder until the other one has tried

        run(config, tmp_path, on_step=on_step)

    with child(first) as (_, ended):
        os.read(reader, 1)
        try:
            with pytest.raises(ValueError, match="in use by another process"):
                run(config, tmp_path)
        finally:
            os.write(go_writer, b"x")
    assert ended == [0]
    assert run(config, tmp_path).finished


@pytest.mark.parametrize(("number", "fresh"), [(signal.SIGTERM, False), (signal.SIGINT, True)])
def test_a_signal_leaves_a_checkpoint_and_says_how_to_go_on(number, fresh, tmp_path, capfd):
    config, straight = config_of("mdmt-r", "mlp"), None
    straight = done(config, tmp_path / "straight")
    stop = {"fresh": fresh, "on_step": lambda learner: os.kill(os.getpid(), number)}
    with child(lambda: run(config, tmp_path / "out", **stop)) as (_, ended):
        pass
    assert ended == [1]
    command = "the same command without --fresh" if fresh else "the same command"
    assert f"; {command} goes on from there" in capfd.readouterr().err
    assert (folder_of(config, tmp_path / "out") / "checkpoint" / "state.json").exists()
    assert essence(done(config, tmp_path / "out")) == essence(straight)


def result_of(folder):
    """All files of a run, without those of its repetition and the lock."""
    return {
        path: data
        for path, data in content(folder).items()
        if path.parts[0] != "fresh" and path.name != ".lock"
    }


def listed(out, capsys):
    capsys.readouterr()
    assert main(["runs", "list", str(out), "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    return run


def repeated_until(config, out, step):
    """Do a run with --fresh in a child that is killed after a step."""

    def on_step(learner):
        if learner.record.steps == step:
            die()

    options = {"fresh": True, "every": 1, "events": True, "on_step": on_step}
    with child(lambda: run(config, out, **options)) as (_, ended):
        pass
    return ended[0]


def test_a_finished_result_stays_until_the_fresh_one_is_complete(tmp_path, capsys):
    config = replace(config_of("er", "mlp"), keep_model=True)
    straight = done(config, tmp_path, events=True)
    folder = folder_of(config, tmp_path)
    before = result_of(folder)
    assert {path.parts[0] for path in before} >= {"record.json", "model", "tensorboard"}
    for step in (1, 4):  # the second repetition starts over too
        assert repeated_until(config, tmp_path, step) == -signal.SIGKILL
        assert result_of(folder) == before
    about = listed(tmp_path, capsys)
    assert (about["state"], about["A_T"]) == ("finished", straight["metrics"]["A_T"])
    assert "the same command without --fresh goes on" in about["reason"]
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 0
    assert f"{100 * straight['metrics']['A_T']:.2f}" in (tmp_path / "page.html").read_text()
    steps = []
    again = done(
        replace(config, keep_model=False),
        tmp_path,
        on_step=lambda learner: steps.append(learner.record.steps),
    )
    assert steps == list(range(5, straight["steps"] + 1))
    assert essence(again) == essence(straight)
    after = result_of(folder)
    assert {path.parts[0] for path in after} == {path.parts[0] for path in before} - {
        "model",
        "tensorboard",
    }
    assert after[Path("record.json")] != before[Path("record.json")]  # it has other times
    assert not (folder / "fresh").exists()
    assert listed(tmp_path, capsys)["reason"] == ""


@pytest.mark.parametrize("moment", ["_remove_events", "_remove_repetition"])
def test_a_fresh_run_that_is_killed_while_it_finishes(moment, tmp_path, capsys):
    config = config_of("er", "mlp")
    straight = done(config, tmp_path)

    def killed():
        setattr(RunFolder, moment, die)
        run(config, tmp_path, fresh=True)

    with child(killed) as (_, ended):
        pass
    assert ended == [-signal.SIGKILL]
    assert listed(tmp_path, capsys)["state"] == "finished"
    steps = []
    assert essence(done(config, tmp_path, on_step=steps.append)) == essence(straight)
    assert steps == []
    assert not (folder_of(config, tmp_path) / "fresh").exists()


@pytest.mark.parametrize("again", ["run", "sweep"])
def test_a_run_killed_before_its_checkpoint_is_removed(again, tmp_path):
    """The record is written: the next command reads it, and removes the rest."""
    config = config_of("er", "mlp")

    def killed():
        RunFolder._remove_repetition = die
        run(config, tmp_path, every=1)

    with child(killed) as (_, ended):
        pass
    assert ended == [-signal.SIGKILL]
    folder = folder_of(config, tmp_path)
    before = (folder / "record.json").read_bytes()
    assert (folder / "checkpoint").is_dir()
    if again == "run":
        assert run(config, tmp_path).finished
    else:
        (outcome,) = sweep([config], tmp_path)
        assert outcome.read
    assert (folder / "record.json").read_bytes() == before
    assert not (folder / "checkpoint").exists()


def test_a_full_disk_keeps_the_result_that_fresh_would_replace(disk, capsys):
    out, _ = disk
    config = replace(config_of("er", "mlp"), keep_model=True)
    record = run(config, out)
    before = result_of(folder_of(config, out))
    (out / "other").write_bytes(bytes(shutil.disk_usage(out).free))
    with pytest.raises(OSError, match="No space left on device; the previous file is intact"):
        run(config, out, fresh=True)
    (out / "other").unlink()
    assert result_of(folder_of(config, out)) == before
    assert run(config, out) == record


def test_fresh_starts_an_unfinished_run_over(tmp_path):
    config, folder, straight = interrupted(tmp_path)
    steps = []
    record = done(
        config,
        tmp_path / "out",
        fresh=True,
        on_step=lambda learner: steps.append(learner.record.steps),
    )
    assert steps == list(range(1, straight["steps"] + 1))
    assert essence(record) == essence(straight)
    assert not (folder / "checkpoint").exists()


def test_a_run_of_the_cluster_starts_over_once(tmp_path):
    """The process that hands a fresh run to the cluster makes it start over; a restart goes on."""
    config = config_of("er", "mlp")
    straight = done(config, tmp_path)
    RunFolder(folder_of(config, tmp_path)).start_over(config)
    steps = []
    assert killed_at_step(config, tmp_path, 4) == -signal.SIGKILL
    again = done(config, tmp_path, on_step=lambda learner: steps.append(learner.record.steps))
    assert steps[0] == 5
    assert essence(again) == essence(straight)


@pytest.fixture
def disk(tmp_path):
    """A separate disk of 2 MB; `mount` changes it."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(*options):
        done = subprocess.run(["mount", *options, "tmpfs", folder], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no disk of its own can be mounted here: {done.stderr.strip()}")

    if shutil.which("mount") is None:
        pytest.skip("no disk of its own can be mounted here: there is no mount command")
    mount("-t", "tmpfs", "-o", "size=2m")
    yield folder, mount
    subprocess.run(["umount", folder], check=True)


def content(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_full_disk_loses_nothing(tmp_path, disk, capsys):
    """One clear line, and the previous files are intact; with free space the run continues."""
    out, _ = disk
    config = config_of("er", "mlp")
    straight = done(config, tmp_path / "straight")
    assert killed_at_step(config, out, 4) == -signal.SIGKILL
    before = content(out)
    (out / "other").write_bytes(bytes(shutil.disk_usage(out).free))
    with pytest.raises(
        OSError, match="No space left on device; the previous file is intact; free some disk space"
    ):
        run(config, out, every=1)
    (out / "other").unlink()
    assert content(out) == before
    assert essence(done(config, out)) == essence(straight)


def test_a_read_only_folder_is_refused_but_read(tmp_path, disk):
    out, mount = disk
    done, other = config_of("van", "mlp"), config_of("er", "mlp")
    record = run(done, out)
    mount("-o", "remount,ro")
    assert run(done, out) == record
    with pytest.raises(
        ValueError,
        match="cannot be written \\(Read-only file system\\): choose another folder with --out",
    ):
        run(other, out)
    mount("-o", "remount,rw")
    assert killed_at_step(other, out, 4) == -signal.SIGKILL
    before = content(out)
    mount("-o", "remount,ro")
    with pytest.raises(ValueError, match="Read-only file system"):
        run(other, out)
    assert content(out) == before


def test_a_number_that_is_not_finite_names_the_last_good_checkpoint(tmp_path):
    config = replace(config_of("van", "mlp"), lr=1e15)
    with pytest.raises(
        FloatingPointError,
        match=r"not finite.*the last good state is that of task .* step \d+, in ",
    ) as told:
        run(config, tmp_path, every=1)
    folder = folder_of(config, tmp_path) / "checkpoint"
    assert str(folder) in str(told.value)
    # A second start continues from the checkpoint and ends in the same way.
    with pytest.raises(FloatingPointError, match=re.escape(str(told.value))):
        run(config, tmp_path, every=1)
