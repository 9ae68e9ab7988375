"""The power fails at any moment of a change: the old state loads or the new one, never neither.

The operations of one change are recorded. Then every state that the disk may be left in is built
(`faults.power` says which these are) and loaded. Of a moment that leaves more than 4,096 states,
4,096 are drawn, with a fixed seed. Once the call has returned, only the new state will do.
"""

import os

import pytest

import mdmt.learning.checkpoints as checkpoints
from faults.disk import Recorder, files_of, real_open, watched
from faults.power import states_after
from faults.work import contents, drafts, learn, living, put, saved
from mdmt.errors import Mistake
from mdmt.learner import Learner
from mdmt.runs.config import folder_of
from mdmt.runs.folder import RunFolder
from mdmt.system.files import write_file
from support.deliveries import delivery


def after_power_loss(work, root):
    """Do some work below a folder, then give every state that a loss of power may leave there."""
    before = files_of(root)
    with watched(root, Recorder()) as recorder:
        work()
    for state, over in states_after(root, before, recorder.operations):
        put({}, root)
        for name, data in state.items():
            path = os.path.join(root, name)
            if name.endswith(os.sep):
                os.makedirs(path, exist_ok=True)
            else:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with real_open(path, "wb") as file:
                    file.write(data)
        yield over


def test_the_model_loses_what_was_not_flushed(tmp_path):
    """Of a file that is written in place of another one without any flush, nothing is sure."""
    (tmp_path / "file").write_bytes(b"old one")

    def careless():
        with open(tmp_path / "draft", "wb") as file:
            file.write(b"new")
        os.replace(tmp_path / "draft", tmp_path / "file")

    def found(work):
        return {
            (over, (tmp_path / "file").read_bytes()) for over in after_power_loss(work, tmp_path)
        }

    assert {data for over, data in found(careless) if over} == {b"old one", b"", b"n", b"new"}
    (tmp_path / "file").write_bytes(b"old one")
    states = found(lambda: write_file(tmp_path / "file", b"new"))
    assert {data for _, data in states} == {b"old one", b"new"}
    assert {data for over, data in states if over} == {b"new"}


@pytest.mark.parametrize("keep", [False, True], ids=["save", "checkpoint"])
def test_a_learner_is_saved_whole_or_not_at_all(learners, keep, tmp_path):
    """`Learner.save` over an earlier save, and a checkpoint after an earlier one."""
    first, second, third = learners
    folder = tmp_path / "state"
    if keep:
        checkpoints.save(third, folder, keep=True)
    checkpoints.save(first, folder, keep=keep)
    old = saved(folder)
    tried = 0
    for over in after_power_loss(lambda: checkpoints.save(second, folder, keep=keep), tmp_path):
        if not tried:
            checkpoints.save(second, tmp_path.parent / "new", keep=keep)
            new = saved(tmp_path.parent / "new")
            assert new != old
        tried += 1
        assert saved(folder) == new if over else saved(folder) in (old, new)
        if tried % 4 == 0:
            assert Learner.load(folder).record.steps in (first.record.steps, second.record.steps)
            checkpoints.save(second, folder, keep=keep)
            assert saved(folder) == new
            assert drafts(folder) == []
    assert tried > 12


def test_the_first_save_is_there_once_it_has_returned(learners, tmp_path):
    """Although the folders that it made have to be noted in those above them."""
    folder = tmp_path / "models" / "first"
    for over in after_power_loss(lambda: learners[0].save(folder), tmp_path):
        if over or (folder / "state.json").exists():
            assert Learner.load(folder).model.sha256() == learners[0].model.sha256()


@pytest.mark.parametrize("fresh", [False, True])
def test_a_run_is_finished_whole_or_not_at_all(fresh, halted, tmp_path):
    """With `fresh`, the finish replaces an earlier result."""
    config, _, _ = halted
    result = RunFolder(folder_of(config, tmp_path / "straight"))
    out = tmp_path / "out"
    place = folder_of(config, out)
    parts = config, result.record, result.steps, result.snapshots
    if fresh:
        interrupted = files_of(place)
        put(files_of(result.path), place)
        put({name: data for name, data in interrupted.items() if name != ".lock"}, place / "fresh")
    tried = unfinished = 0
    for over in after_power_loss(lambda: RunFolder(place).finish(*parts), place):
        tried += 1
        folder = RunFolder(place)
        if fresh or over or folder.has("record.json"):
            assert folder.record == result.record
            assert folder.snapshots.to_bytes() == result.snapshots.to_bytes()
            assert list(folder.steps) == list(result.steps)
        else:
            unfinished += 1
            if unfinished % 10 == 1:
                assert Learner.load(place / "checkpoint").record.steps == 5
        # Where the repetition goes on, it does so from its checkpoint.
        work = folder.workplace()
        if work is not folder:
            assert not over
            saved(work.path / "checkpoint")
    assert tried > 30


def test_a_checkpoint_is_removed_whole_or_stays(halted, tmp_path):
    """When an unfinished run starts over, what comes back must be one to go on from."""
    config, _, _ = halted
    place = folder_of(config, tmp_path / "out")
    seen = set()
    for over in after_power_loss(lambda: RunFolder(place).clear(), place):
        is_there = bool(RunFolder(place).checkpoint.manifests)
        if is_there:
            saved(place / "checkpoint")
        assert not (over and is_there)
        seen.add(is_there)
    assert seen == {True, False}


def test_a_delivery_is_learned_whole_or_not_at_all(tmp_path):
    folder = tmp_path / "birds"
    learn(folder, 0)
    old, new = contents(folder), None
    tried = 0
    for over in after_power_loss(lambda: learn(folder, 1), tmp_path):
        if new is None:
            learn(tmp_path.parent / "straight", 0)
            learn(tmp_path.parent / "straight", 1)
            new = contents(tmp_path.parent / "straight")
            straight = files_of(tmp_path.parent / "straight")
        tried += 1
        version, versions = contents(folder)
        assert (version, versions) == new if over else version in (1, 2)
        assert versions[1] == old[1][1]
        assert version == 1 or versions[2] == new[1][2]
        if tried % 15 == 0:  # going on ends as without the loss
            if version == 1:
                learn(folder, 1)
            assert contents(folder) == new
            assert learn(folder, 2).version == 3
            assert {name for name in files_of(folder) if "-3" not in name} >= {
                name for name in straight if name.startswith("version")
            }
            assert drafts(folder) == []
    assert tried > 50


def test_a_new_model_is_there_once_learn_has_returned(tmp_path):
    folder = tmp_path / "models" / "birds"
    for number, over in enumerate(after_power_loss(lambda: learn(folder, 0), tmp_path)):
        if over or living(folder).exists:
            assert contents(folder)[0] == 1
        elif number % 25 == 0:
            assert learn(folder, 0).version == 1


def test_a_rollback_happens_whole_or_not_at_all(tmp_path):
    """It replaces current.json."""
    folder = tmp_path / "birds"
    learn(folder, 0)
    learn(folder, 1)
    seen = set()
    for over in after_power_loss(lambda: living(folder).rollback(1), tmp_path):
        version, versions = contents(folder)
        assert version == 1 if over else version in (1, 2)
        assert sorted(versions) == [1, 2]
        seen.add(version)
    assert seen == {1, 2}


def test_what_was_forgotten_does_not_come_back(tmp_path):
    """Also not the checkpoint of an interrupted delivery, which holds examples of the memory."""
    folder = tmp_path / "birds"
    learn(folder, 0)
    learn(folder, 1)
    memory = {name: data for name, data in files_of(folder).items() if "memory" in name}
    put(
        files_of(folder) | {f"learning/state/{name}": data for name, data in memory.items()}, folder
    )
    kept = delivery("ab", 4)[0]

    def holds():
        data = b"".join(files_of(folder).values())
        return any(example.tobytes() in data for example in kept)

    assert holds()
    seen = set()
    for number, over in enumerate(
        after_power_loss(lambda: living(folder).forget(classes=["a", "b"]), tmp_path)
    ):
        version, _ = contents(folder)
        assert version == 3 if over else version in (2, 3)
        assert not (over and holds())
        if version == 3 and number % 20 == 0:  # the next writer ends what was begun
            with pytest.raises(Mistake, match="was not learned"):
                living(folder).forget(classes=["a"])
            assert not holds()
        seen.add((version, holds()))
    assert {(2, True), (3, False)} <= seen
