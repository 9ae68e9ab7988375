"""The n-th operation on the disk fails, for every n: nothing is lost, and nothing claims success.

What fails is opening, writing, flushing to the disk, renaming, closing, removing, making a folder;
with no space left, an I/O error, no permission or an interrupted call; once, or from there on.
"""

import shutil

import numpy as np
import pytest

import mdmt.learning.checkpoints as checkpoints
from faults.disk import Fault, faults_in, files_of, turns, watched
from faults.work import DELIVERIES, contents, drafts, learn, living, put, saved
from mdmt.cli.app import main
from mdmt.errors import EXPECTED, Mistake, summarise
from mdmt.experiments.run import run
from mdmt.learner import Learner
from mdmt.living.jobs import Jobs
from mdmt.runs.config import folder_of
from mdmt.runs.folder import RunFolder
from mdmt.system.state import StateFolder
from support.deliveries import delivery
from support.short_runs import done, essence


def told(work, folder, fault):
    """The line with which work is refused; None if it ends well. A traceback is an error."""
    with watched(folder, Fault(*fault)):
        try:
            work()
        except EXPECTED as error:
            line = summarise(error)
            assert len(line.splitlines()) == 1, line
            assert line.strip()
            return line
    return None


def each_and_all(name):
    """A test with a fault for each operation, and a long one with all faults."""
    return pytest.mark.parametrize(
        name, [turns, pytest.param(list, marks=pytest.mark.long)], ids=["each", "all"]
    )


@each_and_all("chosen")
@pytest.mark.parametrize("keep", [False, True], ids=["save", "checkpoint"])
def test_a_learner_is_saved_whole_or_not_at_all(learners, keep, chosen, tmp_path):
    """`Learner.save` over an earlier save, and a checkpoint after an earlier one."""
    first, second, third = learners
    folder = tmp_path / "state"

    def work():
        checkpoints.save(second, folder, keep=keep)

    if keep:  # so that files of a state before the last have to go
        checkpoints.save(third, folder, keep=True)
        older = saved(folder)
    checkpoints.save(first, folder, keep=keep)
    before, old = files_of(folder), saved(folder)
    faults = chosen(faults_in(work, folder))
    new = saved(folder)
    assert old != new
    refused = 0
    for fault in faults:
        put(before, folder)
        line = told(work, folder, fault)
        refused += line is not None
        state = saved(folder)
        assert state == new if line is None else state in (old, new), (fault, line)
        if keep and state == new:  # the state before it is still there
            previous = StateFolder(folder).open("previous.json")
            assert (previous.decode(bytes, ()), previous.rest) in (old, older), fault
        assert len(drafts(folder)) <= 3, fault
        work()
        assert saved(folder) == new, fault
        assert drafts(folder) == [], fault
    assert refused > len(faults) / 2
    assert Learner.load(folder).model.sha256() == second.model.sha256()


def test_saving_does_not_take_files_of_a_version_that_cannot_be_read(tmp_path):
    """A manifest that cannot be opened now names files that are needed tomorrow."""
    store = StateFolder(tmp_path)
    store.write_as("version-1.json", [("model", b"first")], {})
    for fault in faults_in(lambda: store.write([("model", b"other")], {}), tmp_path):
        told(lambda: store.write([("model", b"second")], {}), tmp_path, fault)
        assert store.open("version-1.json").part("model") == b"first", fault


# Runs.


def check_run(config, out, faults, content, straight):
    """A run that a fault ends is whole, and the same call ends it as if nothing had been."""
    refused = 0
    for fault in faults:
        put(content, out)
        line = told(lambda: run(config, out, every=4), out, fault)
        refused += line is not None
        folder = RunFolder(folder_of(config, out))
        if folder.finished_record is not None:
            assert essence(done(config, out)) == straight, fault
        else:
            assert line is not None, fault
            Learner.load(folder.path / "checkpoint")
            assert essence(done(config, out, every=4)) == straight, fault
        assert drafts(out) == [], fault
        assert not (folder.path / "checkpoint").exists(), fault
    assert refused > len(faults) / 3


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.long)])
def test_a_run_goes_on_after_a_fault(every, halted, tmp_path):
    """Its checkpoints, and its finish: record, snapshots, step log."""
    config, content, straight = halted
    out = tmp_path / "out"
    put(content, out)
    faults = faults_in(lambda: run(config, out, every=4), out)
    check_run(config, out, turns(faults, every), content, straight)


@each_and_all("chosen")
@pytest.mark.parametrize("fresh", [False, True])
def test_a_run_is_finished_whole_or_not_at_all(fresh, chosen, halted, tmp_path):
    """With `fresh`, the finish replaces an earlier result."""
    config, content, _ = halted
    out = tmp_path / "out"
    result = RunFolder(folder_of(config, tmp_path / "straight"))
    parts = config, result.record, result.steps, result.snapshots
    put(files_of(result.path) if fresh else {}, folder_of(config, out))
    place = folder_of(config, out)
    checkpoint = {name: data for name, data in content.items() if "checkpoint" in name}
    for name, data in content.items():
        if name.endswith(".lock"):
            continue
        target = place / ("fresh" if fresh else "") / (out / name).relative_to(place)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    assert checkpoint
    (place / ".record.json.7.tmp").write_bytes(b"left by a process that was killed")
    before = files_of(out)
    faults = chosen(faults_in(lambda: RunFolder(place).finish(*parts), out))
    after = files_of(out)
    assert not [name for name in after if "checkpoint" in name or "fresh" in name]
    assert drafts(out) == []
    refused = 0
    for fault in faults:
        put(before, out)
        line = told(lambda: RunFolder(place).finish(*parts), out, fault)
        refused += line is not None
        folder = RunFolder(place)
        record = folder.finished_record
        if line is None or fresh or record is not None:
            assert record == result.record, fault
            assert folder.snapshots.to_bytes() == result.snapshots.to_bytes(), fault
            assert list(folder.steps) == list(result.steps), fault
        if record is None:
            assert Learner.load(place / "checkpoint").record.steps == 5, fault
        RunFolder(place).finish(*parts)
        assert files_of(out) == after, fault
    assert refused > len(faults) / 3


@pytest.mark.parametrize(
    "fault",
    [
        ("write", 2, "ENOSPC", True),
        ("open", 9, "EIO", True),
        ("rename", 4, "EACCES", False),
        ("fsync", 3, "EIO", False),
        ("mkdir", 1, "EACCES", True),
    ],
    ids=lambda fault: fault[0],
)
def test_a_command_that_a_fault_ends_is_one_line(fault, tmp_path, short_streams, capsys):
    command = ["run", "--method", "er", "--tasks", "2", "--quiet", "--out", str(tmp_path / "out")]
    with watched(tmp_path / "out", Fault(*fault)):
        assert main([*command, "--checkpoint-every", "2"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert main([*command, "--json"]) == 0


# Model folders.


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of one delivery, and its content with a second one."""
    folder = tmp_path_factory.mktemp("model") / "birds"
    learn(folder, 0)
    before, old = files_of(folder), contents(folder)
    faults = faults_in(lambda: learn(folder, 1), folder)
    return before, old, contents(folder), faults


def check_learn(model, faults, folder, again):
    before, old, new, _ = model
    refused = 0
    for number, fault in enumerate(faults):
        put(before, folder)
        line = told(lambda: learn(folder, 1), folder, fault)
        refused += line is not None
        version, versions = contents(folder)  # every one of them is whole
        assert version == (2 if line is None else version), (fault, line)
        assert {version: versions[version]}.items() <= new[1].items(), fault
        assert versions[1] == old[1][1], fault
        assert len(drafts(folder)) <= 4, fault
        if number % again == 0:
            if version == 1:
                learn(folder, 1)
            assert contents(folder) == new, fault
            assert living(folder).verify() == {}, fault
            assert learn(folder, 2).version == 3, fault
            assert drafts(folder) == [], fault
            assert not (folder / "learning").exists(), fault
    assert refused > len(faults) / 2


def test_a_delivery_is_learned_whole_or_not_at_all(model, tmp_path):
    check_learn(model, turns(model[3], 2), tmp_path / "birds", again=4)


@pytest.mark.long
def test_a_delivery_is_learned_whole_or_not_at_all_after_every_fault(model, tmp_path):
    check_learn(model, model[3], tmp_path / "birds", again=7)


def test_nothing_is_forgotten_in_words_only(model, tmp_path):
    """A fault while examples are removed: either they are gone, or `forget` does not say so."""
    folder = tmp_path / "birds"
    put(model[0], folder)
    learn(folder, 1)
    full = files_of(folder)
    # Of a delivery that was interrupted: its checkpoint holds examples of the memory too.
    full |= {"learning/state/" + name: data for name, data in full.items() if "memory" in name}
    kept = delivery("ab", 4)[0]

    def work():
        living(folder).forget(classes=["a", "b"])

    def holds():
        data = b"".join(files_of(folder).values())
        return any(example.tobytes() in data for example in kept)

    put(full, folder)
    assert holds()
    faults = faults_in(work, folder)
    assert not holds()
    for fault in turns([fault for fault in faults if fault[0] == "unlink"]):
        put(full, folder)
        line = told(work, folder, fault)
        if line is None:
            assert not holds(), fault
        elif living(folder).version == 2:
            work()
            assert not holds(), fault
        else:
            learn(folder, 2)  # the next writer ends what was begun
            assert not holds(), fault


def test_a_new_model_that_could_not_be_made_leaves_the_next_call_free(tmp_path):
    folder = tmp_path / "birds"
    faults = faults_in(lambda: learn(folder, 0), folder)
    for fault in turns(faults, 8):
        shutil.rmtree(folder)
        line = told(lambda: learn(folder, 0), folder, fault)
        if line is None or living(folder).exists:
            assert living(folder).verify() == {}, fault
        else:
            assert learn(folder, 0).version == 1, fault


def test_a_job_of_a_server_is_on_the_disk_or_refused(tmp_path):
    """Also after a crash that left the folder of a job without the job."""
    data = DELIVERIES[0][0]

    def work():
        return Jobs(tmp_path, []).add({"do": "learn", "name": "first"}, data)

    for fault in turns(faults_in(work, tmp_path)):
        put({}, tmp_path)
        line = told(work, tmp_path, fault)
        assert Jobs(tmp_path, []).numbers() == [1] or line is not None, fault
        number = work()["job"]
        assert Jobs(tmp_path, []).read(number)["state"] == "waiting", fault
        with np.load(tmp_path / "jobs" / str(number) / "delivery.npz") as content:
            assert len(content["x"]) == len(data[0]), fault


def test_mistakes_are_not_taken_for_faults(tmp_path):
    """What refuses a fault is not a check that would have refused the work anyway."""
    assert (
        told(lambda: learn(tmp_path / "birds", 0), tmp_path, ("open", 10**6, "EIO", False)) is None
    )
    with pytest.raises(Mistake, match="was learned already"):
        living(tmp_path / "birds").learn(*DELIVERIES[0])
