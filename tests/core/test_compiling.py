"""Compiled steps: what they compute is what was computed before, and goes on after an interruption with the same bits."""

import shutil

import pytest
import torch

import mdmt
import mdmt.compiling as compiling
import mdmt.learning.arguments
from mdmt.cli.app import main
from mdmt.experiments.resolve import resolve, stream_for
from mdmt.experiments.run import learner_for
from mdmt.tasks import Task

NEEDS_A_COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler here")


class Stop(Exception):
    pass


def tasks():
    generator = torch.Generator().manual_seed(2)
    for number in range(2):
        inputs = torch.randint(0, 256, (63, 12), dtype=torch.uint8, generator=generator)
        labels = torch.arange(63) % 3
        yield Task(f"task {number}", inputs, labels, test=(inputs[:20], labels[:20]))


def learner(compile):
    method = mdmt.MDMTR(
        reference_batch=6, distance="mse"
    )  # the slope of the absolute value jumps, and roundings with it
    return mdmt.Learner(
        mdmt.backbones.mlp(12, 8), method, memory=mdmt.memory.Ring(3), lr=0.002, heads="shared", compile=compile
    )


@pytest.mark.long
@NEEDS_A_COMPILER
@pytest.mark.filterwarnings("ignore")  # torch's own, of its own parts
def test_compiled_steps_are_the_same_steps_and_can_be_interrupted(tmp_path, float64):
    """In double precision: in single, roundings grow along the stream."""
    usual, compiled, stopped = learner(False), learner(True), learner(True)
    seen = []
    count = compiled.compiles
    compiled.compiles = lambda sizes: seen.append((sizes, count(sizes))) or seen[-1][1]
    for task in tasks():
        usual.learn(task)
        compiled.learn(task)
    assert dict(seen) == {(10,): True, (3,): False, (6, 10): True, (6, 3): False}
    torch.testing.assert_close(compiled.model.flat, usual.model.flat, rtol=0, atol=1e-10)
    assert not torch.equal(compiled.model.flat, usual.model.flat)  # it was not computed in the same way

    def stop(at):
        if at.record.steps == 10:
            raise Stop

    first, second = tasks()
    stopped.learn(first)
    with pytest.raises(Stop):
        stopped.learn(second, on_step=stop)
    stopped.save(tmp_path)
    resumed = mdmt.Learner.load(tmp_path)
    assert resumed.compile
    resumed.learn(second)
    assert resumed.model.sha256() == compiled.model.sha256()


@pytest.mark.long
@NEEDS_A_COMPILER
@pytest.mark.filterwarnings("ignore")  # torch's own, of its own parts
def test_accuracy_on_digits_is_that_of_uncompiled_steps():
    found = {}
    for compile in (False, True):
        config = resolve("permuted-digits", "mdmt-r", tasks=3, compile=compile)
        found[compile] = learner_for(config).run(stream_for(config)).metrics["A_T"]
    assert found[True] == pytest.approx(found[False], abs=0.01)


def test_it_is_part_of_the_configuration_and_neutral_when_off(monkeypatch):
    monkeypatch.setattr(mdmt.learning.arguments, "problem", lambda: None)
    compiled = resolve("permuted-digits", "er", compile=True)
    assert compiled.hash != resolve("permuted-digits", "er").hash
    assert learner_for(compiled).compile


def test_where_nothing_can_be_compiled_a_line_says_so_and_learning_goes_on(monkeypatch, tmp_path, capsys):
    for module in (compiling, mdmt.learning.arguments):
        monkeypatch.setattr(module, "problem", lambda: "no C++ compiler")
    with pytest.warns(UserWarning, match="nothing can be compiled here, so nothing is"):
        assert not learner(True).compile
    words = ["run", "permuted-digits", "--method", "van", "--tasks", "1", "--subset", "20", "--out", str(tmp_path)]
    assert main([*words, "--compile", "--quiet"]) == 0
    told = capsys.readouterr().err
    assert told == "mdmt: --compile: nothing can be compiled here, so nothing is (no C++ compiler)\n"
    assert main([*words, "--quiet"]) == 0  # the same run: it was finished before
    assert len(list(tmp_path.glob("*/*/*/*/record.json"))) == 1


def test_only_yes_and_no_are_understood():
    with pytest.raises(ValueError, match="compile='yes': must be true or false"):
        learner("yes")
