"""Deliveries in separate processes, one of them killed with SIGKILL again and again.

MDMT_KILLS sets how many random moments are tried.
"""

import os
import random
import signal

import pytest

import mdmt
import mdmt.learning.checkpoints as checkpoints
import mdmt.system.state
from mdmt.learner import Learner
from support.deliveries import delivery, stored_bytes, versions_without_times
from support.processes import child

BUDGET = 12_000
MONTHS = [
    ("january", ["owl", "kite"]),
    ("february", ["robin"]),
    ("march", ["owl", "wren"]),
    ("april", ["kite"]),
    ("may", ["crane", "robin", "stork"]),
]
KILLS = int(os.environ.get("MDMT_KILLS", "10"))


def teach(folder, number, on_event=lambda: None):
    """Learn one month in this process; `on_event` is called at every step and write."""
    name, classes = MONTHS[number]
    step = Learner.step

    def counted(self, batch):
        on_event()
        step(self, batch)
        assert sum(self.memory.bytes.values()) <= BUDGET

    Learner.step = counted
    mdmt.system.state._crash_point = lambda _: on_event()
    checkpoints.SECONDS, checkpoints.WAIT_FACTOR = 0.0, 0
    model = mdmt.LivingModel(folder)
    lesson = model.learn(delivery(classes, 20, seed=number), name, memory=BUDGET)
    assert lesson.stored_bytes <= BUDGET
    assert stored_bytes(folder) <= BUDGET


def in_child(folder, number, on_event=lambda: None):
    with child(lambda: teach(folder, number, on_event)) as (_, ended):
        pass
    return ended[0]


def bomb(at):
    met = []

    def event():
        met.append(1)
        if len(met) == at:
            os.kill(os.getpid(), signal.SIGKILL)

    return event


def counting(file):
    def event():
        with open(file, "ab") as out:
            out.write(b".")

    return event


def test_deliveries_of_which_one_is_killed_end_as_without(tmp_path):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    for number in range(len(MONTHS)):
        assert in_child(straight, number, counting(tmp_path / f"events {number}")) == 0
    events = (tmp_path / "events 2").stat().st_size
    assert events > 40
    random.seed(0)
    for number in range(len(MONTHS)):
        moments = sorted(random.sample(range(1, events), KILLS)) if number == 2 else []
        for moment in moments:
            # Each attempt goes on where the last one was killed, so it may end before the moment.
            if in_child(killed, number, bomb(moment)) == 0:
                break
        else:
            assert in_child(killed, number) == 0
    assert versions_without_times(killed) == versions_without_times(straight)
    model = mdmt.LivingModel(killed)
    assert model.version == 5
    assert model.verify() == {}


@pytest.mark.parametrize("share", [0.3, 0.8, 0.97, 1.0])
def test_a_delivery_killed_once_ends_as_without(tmp_path, share):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    for folder in (straight, killed):
        assert in_child(folder, 0) == 0
    assert in_child(straight, 2, counting(tmp_path / "events")) == 0
    moment = round(share * (tmp_path / "events").stat().st_size)
    assert in_child(killed, 2, bomb(moment)) == -signal.SIGKILL
    model = mdmt.LivingModel(killed)
    assert len(model.predict(delivery(["owl"])[0])) == 30  # readers are not disturbed
    if model.version == 1:
        assert in_child(killed, 2) == 0
    assert versions_without_times(killed) == versions_without_times(straight)
