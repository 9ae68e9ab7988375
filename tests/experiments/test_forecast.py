"""A long run says so early; a comparison passes on what its workers have to tell."""

import json
from types import SimpleNamespace

import pytest

import mdmt.learning.recorder
from mdmt import backbones
from mdmt.cli.app import main
from mdmt.errors import Stopped
from mdmt.experiments.run import Forecast, run
from mdmt.experiments.sweep import sweep
from mdmt.runs.config import folder_of
from support.configs import config_for
from support.helpers import small_stream


@pytest.fixture
def clock(monkeypatch):
    """The learner's clock, which moves by so many seconds whenever it is read: once before a step
    and once after it.
    """
    state = SimpleNamespace(now=0.0, step=0.0)

    def read():
        state.now += state.step
        return state.now

    monkeypatch.setattr(mdmt.learning.recorder, "time", SimpleNamespace(perf_counter=read))
    return state


def learned(clock, seconds, total=60):
    """What was told of two tasks of 30 steps, and after which step, when a step takes so long in
    each task.
    """
    told = []
    stream = small_stream("permuted-digits", tasks=2, train=300, test=10)
    learner = mdmt.Learner(backbones.mlp(784, 4), mdmt.VAN(), heads="shared")
    forecast = Forecast("it", total, lambda line: told.append((learner.record.steps, line)))

    def after_step(learner):
        forecast.after_step(learner)
        clock.step = seconds[learner.current]

    clock.step = seconds[0]
    learner.run(stream, on_step=after_step)
    return told


def test_a_run_of_hours_is_told_once_and_early(clock):
    ((step, line),) = learned(clock, [1000.0, 1000.0])
    assert step == 2  # the first step is left out
    # 58 steps of 1000 s.
    assert line.startswith("it will take about 16 h; Ctrl-C leaves a checkpoint")


def test_twenty_steps_are_enough_where_they_are_quick(clock):
    assert learned(clock, [0.125, 0.125]) == []
    ((step, line),) = learned(clock, [0.125, 0.125], total=72_000)
    assert step == 21
    assert "about 2.5 h" in line


def test_rehearsal_that_makes_the_second_task_slow_is_told_there(clock):
    ((step, line),) = learned(clock, [0.125, 500.0])
    assert step == 32  # its first step is left out
    assert "about 3.9 h" in line


def test_run_tells_it_with_its_name(clock, tmp_path):
    clock.step = 200.0
    told = []
    config = config_for("permuted-digits", "van", tasks=1)

    def stop(learner):
        if learner.step_in_task == 3:
            raise Stopped

    with pytest.raises(Stopped):
        run(config, tmp_path, on_step=stop, warn=told.append)
    assert len(told) == 1
    assert told[0].startswith("permuted-digits, van, seed 1234 will take about ")


def damaged(out):
    """A run that stopped after its second checkpoint, which is damaged."""
    config = config_for("permuted-digits", "van", tasks=1)

    def stop(learner):
        if learner.step_in_task == 4:
            raise Stopped

    with pytest.raises(Stopped):
        run(config, out, every=2, on_step=stop)
    manifest = folder_of(config, out) / "checkpoint" / "state.json"
    manifest.write_text(manifest.read_text()[:-20])
    return config


def test_a_comparison_tells_of_a_damaged_checkpoint_however_quiet_it_is(tmp_path, capsys):
    damaged(tmp_path)
    arguments = [
        "compare",
        "--methods",
        "van",
        "--tasks",
        "1",
        "--seeds",
        "1",
        "--out",
        str(tmp_path),
        "--json",
    ]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert len(json.loads(out)["rows"]) == 1
    assert err.count("\n") == 1
    assert err.startswith("mdmt: ")
    assert "state.json is damaged" in err
    assert err.endswith("going on from the checkpoint before it\n")


def test_workers_are_told_when_to_write_checkpoints(tmp_path):
    (outcome,) = sweep([config_for("permuted-digits", "van", tasks=1)], tmp_path, 1, every="often")
    assert "checkpoint-every often: must be" in outcome.reason


def test_compare_takes_reading_and_checkpoint_every(tmp_path, capsys):
    common = ["compare", "--tasks", "1", "--seeds", "1", "--out", str(tmp_path), "--json"]
    mdmt_r = ["--methods", "mdmt-r", "--set", "reference_batch=8"]
    assert main([*common, *mdmt_r, "--reading", "paper", "--checkpoint-every", "500"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["reading"], row["label"]) == ("paper", "mdmt-r[reading=paper,reference_batch=8]")
    for more, message in (
        (["--reading", "aloud"], "reading='aloud': must be one of 'code', 'paper'"),
        (["--methods", "van", "--reading", "paper"], "setting 'reading' is unknown"),
        (["--checkpoint-every", "often"], "checkpoint-every often: must be"),
    ):
        assert main([*common, *more]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert message in err
