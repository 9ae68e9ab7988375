"""A saved state is whole or not there, and other people's files in its folder are left alone."""

import json
import os
import signal
from pathlib import Path

import pytest
import safetensors.torch
import torch

import mdmt
import mdmt.system.state as state
from mdmt.errors import Mistake
from mdmt.learning.checkpoints import Checkpoints, encoded
from mdmt.system.state import StateFolder
from support.helpers import small_stream
from support.processes import child

RELEASE = Path(__file__).parent.parent / "fixtures" / "runs-0.1.0"


def parts(**given):
    return [(name, text.encode()) for name, text in given.items()]


def files(folder):
    return {path.name for path in folder.iterdir()}


def read(folder, **more):
    return StateFolder(folder).read(bytes.decode, **more)


FOREIGN = ("weights.safetensors", "notes.tmp", "model-0123456789abcdef.safetensors", ".notes.1.tmp")


@pytest.mark.parametrize("keep", [False, True])
def test_files_of_others_survive(tmp_path, keep):
    for name in FOREIGN:
        (tmp_path / name).write_text("somebody else's")
    for number in range(4):
        StateFolder(tmp_path).write(parts(model=f"{number}"), {"number": number}, keep=keep)
    assert {name for name in FOREIGN if (tmp_path / name).read_text() == "somebody else's"} == set(
        FOREIGN
    )
    own = {"state.json", "previous.json"} if keep else {"state.json"}
    assert len(files(tmp_path) - set(FOREIGN) - own) == len(own)  # a part for each manifest


def test_a_learner_leaves_files_of_others_alone(tmp_path):
    learner = mdmt.Learner(mdmt.backbones.mlp(784, 8), mdmt.ER(reference_batch=4), heads="shared")
    stream = small_stream("permuted-digits", tasks=2, train=20, test=10)
    for folder in (tmp_path / "save", tmp_path / "checkpoint"):
        folder.mkdir()
        for name in FOREIGN:
            (folder / name).write_text("somebody else's")
    learner.run(stream, checkpoint=Checkpoints(tmp_path / "checkpoint", 1))
    learner.save(tmp_path / "save")
    for folder in (tmp_path / "save", tmp_path / "checkpoint"):
        assert set(FOREIGN) < files(folder)
        assert mdmt.Learner.load(folder).model.sha256() == learner.model.sha256()


def test_the_parts_of_replaced_states_go(tmp_path):
    folder = StateFolder(tmp_path)
    for number in range(5):
        folder.write(parts(model=f"model {number}", memory="same"), {}, keep=True)
    assert len(files(tmp_path)) == 2 + 2 + 2  # manifests, models, two copies of the memory
    folder.write(parts(model="last"), {})
    assert len(files(tmp_path)) == 2
    assert read(tmp_path) == ({"model": "last"}, {})


def test_the_part_of_a_damaged_state_goes_too(tmp_path):
    folder = StateFolder(tmp_path)
    folder.write(parts(model="first"), {})
    (old,) = tmp_path.glob("model-*")
    old.write_text("damaged")
    folder.write(parts(model="second"), {})
    assert not old.exists()


class Killed(Exception):
    pass


def test_what_killed_writers_leave_does_not_pile_up(tmp_path, monkeypatch):
    folder = StateFolder(tmp_path)
    folder.write(parts(model="good"), {})

    def die(name):
        if name == "model written":
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(state, "_crash_point", die)
        for number in range(3):
            with pytest.raises(Killed):
                folder.write(parts(model=f"lost {number}"), {})
    (tmp_path / f".model-{'0' * 16}.safetensors.{os.getpid()}.tmp").touch()
    (tmp_path / ".state.json.77.tmp").touch()
    assert len(files(tmp_path)) == 1 + 4 + 2
    assert read(tmp_path) == ({"model": "good"}, {})
    folder.write(parts(model="next"), {})
    assert len(files(tmp_path)) == 2


def test_a_damaged_state_falls_back_to_the_previous_one(tmp_path):
    folder = StateFolder(tmp_path)
    for text in ("first", "second"):
        folder.write(parts(model=text, log=f"log of {text}"), {"text": text}, keep=True)
    warnings = []
    current = folder.open().files
    (tmp_path / current["model"]["file"]).write_text("damaged")
    assert read(tmp_path, warn=warnings.append)[1] == {"text": "first"}
    assert warnings[0].endswith("its checksum is wrong; going on from the checkpoint before it")
    (tmp_path / folder.open("previous.json").files["log"]["file"]).unlink()
    with pytest.raises(Mistake, match=r"model-\w+\.safetensors is damaged"):
        read(tmp_path)
    assert read(tmp_path, optional=["log"]) == ({"model": "first"}, {"text": "first"})


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 16
    path.write_bytes(data)


def test_each_file_may_be_damaged_although_a_part_is_the_same_in_both_states(tmp_path):
    folder = StateFolder(tmp_path)
    folder.write(parts(model="model 0", memory="same"), {"number": 0}, keep=True)
    for number in range(1, 5):
        folder.write(parts(model=f"model {number}", memory="same"), {"number": number}, keep=True)
        for name in files(tmp_path):
            whole = (tmp_path / name).read_bytes()
            flip(tmp_path / name)
            found, rest = read(tmp_path)
            assert found == {"model": f"model {rest['number']}", "memory": "same"}
            assert rest["number"] in (number, number - 1)
            (tmp_path / name).write_bytes(whole)


def test_a_part_that_does_not_change_is_written_twice_and_no_more(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(
        state, "write_file", lambda path, data: (written.append(path.name), path.write_bytes(data))
    )
    for number in range(6):
        StateFolder(tmp_path).write(parts(model=f"{number}", memory="same"), {}, keep=True)
    assert sum(name.startswith("memory") for name in written) == 2
    for _ in range(3):
        StateFolder(tmp_path / "saved").write(parts(memory="same"), {})
    assert sum(name.startswith("memory") for name in written) == 3


def test_a_damaged_part_is_whole_after_the_next_write(tmp_path):
    folder = StateFolder(tmp_path)
    folder.write(parts(model="same"), {})
    (part,) = tmp_path.glob("model-*")
    flip(part)
    folder.write(parts(model="same"), {})
    assert read(tmp_path) == ({"model": "same"}, {})


def test_a_damaged_manifest_does_not_take_the_place_of_the_good_one(tmp_path):
    folder = StateFolder(tmp_path)
    for text in ("first", "second"):
        folder.write(parts(model=text), {}, keep=True)
    (tmp_path / "state.json").write_text("{")
    folder.write(parts(model="third"), {}, keep=True)
    (tmp_path / "state.json").write_text("{")
    assert read(tmp_path) == ({"model": "first"}, {})


def test_a_folder_that_does_not_exist_is_not_made_by_reading(tmp_path):
    with pytest.raises(Mistake, match="no saved state here"):
        read(tmp_path / "nowhere")
    StateFolder(tmp_path / "nowhere").remove()
    assert files(tmp_path) == set()


@pytest.mark.parametrize("keep", [False, True])
def test_writers_and_readers_of_one_folder(tmp_path, keep):
    """Every read gives one whole state, although two processes replace it all the time."""
    folder = StateFolder(tmp_path)
    folder.write(parts(model="0" * 10**5, memory="0"), {"text": "0"}, keep=keep)

    def write(name):
        for number in range(100):
            text = f"{name}{number}"
            folder.write(parts(model=text * 10**5, memory=text), {"text": text}, keep=keep)

    with child(lambda: write("a")) as (_, first), child(lambda: write("b")) as (_, second):
        for _ in range(150):
            found, rest = read(tmp_path)
            assert found["memory"] == rest["text"]
            assert found["model"] == rest["text"] * (10**5)
    assert (first, second) == ([0], [0])
    assert read(tmp_path)[1]["text"] in ("a99", "b99")


def test_parts_of_versions_in_the_folder_stay(tmp_path):
    folder = StateFolder(tmp_path)
    folder.write_as("version-1.json", parts(model="first"), {})
    folder.write(parts(model="second"), {})
    folder.write(parts(model="third"), {})
    assert folder.open("version-1.json").part("model") == b"first"
    folder.remove()
    assert folder.open("version-1.json").part("model") == b"first"
    assert len(files(tmp_path)) == 2


def test_a_writer_that_is_killed_leaves_no_lock(tmp_path):
    folder = StateFolder(tmp_path)
    folder.write(parts(model="before"), {})

    def die_within():
        state._crash_point = lambda _: os.kill(os.getpid(), signal.SIGKILL)
        folder.write(parts(model="never"), {})

    with child(die_within) as (_, ended):
        pass
    assert ended == [-signal.SIGKILL]
    assert read(tmp_path) == ({"model": "before"}, {})
    folder.write(parts(model="after"), {})
    assert read(tmp_path) == ({"model": "after"}, {})


def test_removing_takes_only_what_was_written(tmp_path):
    folder = StateFolder(tmp_path / "state")
    for number in range(3):
        folder.write(parts(model=f"{number}", memory="same"), {}, keep=True)
    (tmp_path / "state" / f".model-{'0' * 16}.safetensors.7.tmp").touch()
    (tmp_path / "link").symlink_to(tmp_path / "state")
    StateFolder(tmp_path / "link").remove()
    assert read(tmp_path / "state")[0]["model"] == "2"
    for name in FOREIGN:
        (tmp_path / "state" / name).write_text("somebody else's")
    folder.remove()
    assert files(tmp_path / "state") == set(FOREIGN)
    for name in FOREIGN:
        (tmp_path / "state" / name).unlink()
    folder.remove()
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"format": "1"},
        {"format": None},
        {"files": []},
        {"files": {"model": []}},
        {"files": {"model": {"file": "../model-0123456789abcdef.safetensors", "sha256": ""}}},
        {"files": {"model": {"file": "model-0123456789abcdef.safetensors"}}},
        {"state": 7},
    ],
)
def test_a_manifest_of_somebody_else_is_refused(tmp_path, change):
    StateFolder(tmp_path).write(parts(model="x"), {})
    body = json.loads((tmp_path / "state.json").read_text()) | change
    del body["sha256"]
    (tmp_path / "state.json").write_text(json.dumps(body | {"sha256": state._digest(body)}))
    with pytest.raises(Mistake, match=r"state\.json is damaged: it does not describe"):
        read(tmp_path)


def test_a_newer_format_is_named(tmp_path):
    body = {"format": 2, "files": {}, "state": {}}
    (tmp_path / "state.json").write_text(json.dumps(body | {"sha256": state._digest(body)}))
    with pytest.raises(Mistake, match="newer mdmt"):
        read(tmp_path)


def test_tensors_of_every_kind_come_back(tmp_path):
    tensors = {
        "bool": torch.tensor([True, False]),
        "int64": torch.arange(3),
        "uint8": torch.arange(4, dtype=torch.uint8),
        "float16": torch.rand(2, 3).half(),
        "bfloat16": torch.rand(2, 3).bfloat16(),
        "float64": torch.rand(2).double(),
        "number": torch.tensor(0.5),
        "transposed": torch.rand(2, 3).T,
        "empty": torch.empty(0, 4),
    }
    StateFolder(tmp_path).write(encoded({"model": tensors}), {})
    parts, _ = StateFolder(tmp_path).read(safetensors.torch.load)
    for name, tensor in tensors.items():
        assert parts["model"][name].dtype == tensor.dtype
        assert torch.equal(parts["model"][name], tensor)


def test_parts_have_the_bytes_that_0_1_0_wrote():
    (folder,) = RELEASE.rglob("checkpoint")
    saved = StateFolder(folder).open()
    assert sorted(saved.files) == ["memory", "model", "snapshots", "steps"]
    for name, data in encoded(saved.decode(safetensors.torch.load, ())):
        assert data == saved.part(name)
