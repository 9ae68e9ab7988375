"""What the tests of this folder do: a learner that is saved, a run, a model that learns."""

import shutil

import mdmt
from faults.disk import files_of
from mdmt.system.state import StateFolder
from support.deliveries import delivery

BUDGET = 12_000
DELIVERIES = [
    (delivery(classes, 4), name)
    for classes, name in (("ab", "first"), ("cd", "second"), ("ef", "third"))
]


def drafts(folder):
    return [name for name in files_of(folder) if name.endswith(".tmp")]


def put(content, folder):
    """Make a folder hold these files and no others."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, data in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def saved(folder):
    """The state that loads from a folder, whole: all tensors as bytes, and the rest."""
    return StateFolder(folder).read(bytes)


def living(folder):
    return mdmt.LivingModel(folder, backbone=lambda: mdmt.backbones.mlp(12, 4))


def learn(folder, number):
    data, name = DELIVERIES[number]
    first = {"memory": BUDGET, "method": "er", "epochs": 1} if number == 0 else {}
    return living(folder).learn(data, name, **first)


def contents(folder):
    """What each version holds, by number, without the moment at which it was made."""
    model = living(folder)
    found = {}
    for number in model.versions_.numbers():
        saved = model.versions_.open(number)
        living_ = {k: v for k, v in saved.rest["living"].items() if k != "created"}
        living_["deliveries"] = [{**one, "date": ""} for one in living_["deliveries"]]
        parts = {name: saved.part(name) for name in saved.files if name != "training"}
        found[number] = (parts, {**saved.rest, "living": living_, "record": None})
    return model.version if model.exists else 0, found
