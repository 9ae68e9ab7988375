"""The queue, with workers of another kind: it needs no processes to be tried."""

from collections import deque

import pytest

from mdmt.errors import Mistake
from mdmt.experiments.sweep import sweep
from mdmt.experiments.workers import Event, Outcome, Processes, _Run, process_count
from mdmt.runs.config import folder_of
from mdmt.runs.folder import RunFolder
from support.configs import config_for
from support.run_folders import leave


class Here:
    """Workers that finish runs in the order in which they were started; those of van fail."""

    def __init__(self, slots):
        self.slots = slots
        self.started, self.messages = [], deque()
        self.running = self.most = 0
        self.stopped = False

    def start(self, config):
        self.started.append((config.label, config.seed))
        self.running += 1
        self.most = max(self.most, self.running)
        self.messages.append(Event(config, "task 1/1"))
        failed = config.method == "van"
        self.messages.append(
            Outcome(config, None if failed else {"seed": config.seed}, "no luck" if failed else "")
        )

    def next(self):
        message = self.messages.popleft()
        self.running -= isinstance(message, Outcome)
        return message

    def stop(self):
        self.stopped = True


def configs_of(*methods, seeds=(1, 2)):
    return [
        config_for("permuted-digits", method, tasks=1, seed=seed)
        for seed in seeds
        for method in methods
    ]


def test_workers_of_another_kind_do_all_runs_and_a_failure_stops_none(tmp_path):
    workers, events = Here(2), []
    outcomes = list(sweep(configs_of("van", "er"), tmp_path, workers, events.append))
    assert workers.started == [("van", 1), ("er", 1), ("van", 2), ("er", 2)]
    assert workers.most == 2
    assert workers.stopped
    assert [(o.config.label, o.config.seed, o.record, o.reason) for o in outcomes] == [
        ("van", 1, None, "no luck"),
        ("er", 1, {"seed": 1}, ""),
        ("van", 2, None, "no luck"),
        ("er", 2, {"seed": 2}, ""),
    ]
    assert [event.kind for event in events[:3]] == ["start", "start", "progress"]
    assert len(events) == 8


def test_finished_runs_are_read_first_and_need_no_workers(tmp_path):
    leave(tmp_path, "er", 2, tasks=1)
    record = RunFolder(folder_of(configs_of("er")[1], tmp_path)).record
    workers, unused = Here(1), Here(1)
    first, second = sweep(configs_of("er"), tmp_path, workers)
    assert (first.config.seed, first.read, first.record) == (2, True, record)
    assert (second.config.seed, second.read) == (1, False)
    assert workers.started == [("er", 1)]
    assert [o.read for o in sweep(configs_of("er", seeds=[2]), tmp_path, unused)] == [True]
    assert unused.started == []
    assert unused.stopped  # they may hold a connection
    assert [o.read for o in sweep(configs_of("er", seeds=[2]), tmp_path, Here(1), fresh=True)] == [
        False
    ]


def test_variants_that_name_the_same_run_share_it(tmp_path):
    usual = configs_of("er")[0].lr
    configs = configs_of("er", f"er[lr={usual}]", seeds=[1])
    assert configs[0].hash == configs[1].hash
    workers = Here(2)
    outcomes = list(sweep(configs, tmp_path, workers))
    assert workers.started == [("er", 1)]
    assert [(o.config.label, o.record) for o in outcomes] == [
        ("er", {"seed": 1}),
        (f"er[lr={usual}]", {"seed": 1}),
    ]


def test_whatever_ends_the_loop_early_stops_the_workers(tmp_path):
    workers = Here(1)
    outcomes = sweep(configs_of("er"), tmp_path, workers)
    next(outcomes)
    assert not workers.stopped
    outcomes.close()
    assert workers.stopped


def test_data_that_is_missing_is_a_mistake_before_any_run(tmp_path):
    workers = Here(1)
    config = config_for("split-cifar", "van", data=str(tmp_path / "nowhere"))
    with pytest.raises(Mistake, match="cifar100 is not in"):
        list(sweep([config], tmp_path, workers))
    assert workers.started == []


def test_runs_share_the_graphics_cards_of_a_machine_out(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 7")
    workers = Processes(tmp_path, device="cuda")
    assert workers.slots == 2
    assert Processes(tmp_path, 6, device="cuda").slots == 6
    seen = []
    for number in range(4):
        seen.append(workers._free_card())
        workers.running[number] = _Run(None, None, seen[-1])
    assert seen == ["4", "7", "4", "7"]
    del workers.running[1]
    assert workers._free_card() == "7"
    # A card that was named stays it.
    assert Processes(tmp_path, 2, device="cuda:4")._free_card() is None
    assert Processes(tmp_path, 2)._free_card() is None
    assert process_count("auto", cards=3) == 3


def test_a_run_sees_the_card_it_was_given(tmp_path, monkeypatch):
    given = []

    class Recorded:
        def Pipe(self, duplex):
            return Half(), Half()

        def Process(self, target, args, daemon):
            given.append(args[-1]["CUDA_VISIBLE_DEVICES"])
            return Half()

    class Half:
        def close(self):
            pass

        start = close

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr("mdmt.experiments.workers.start_fork_server", lambda: None)
    workers = Processes(tmp_path, device="cuda")
    workers.context = Recorded()
    for seed in range(3):
        workers.start(config_for("permuted-digits", "van", seed=seed))
    assert given == ["0", "1", "0"]
