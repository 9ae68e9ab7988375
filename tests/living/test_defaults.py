"""What `learn` uses unless told otherwise is what was measured as best."""

import numpy as np
import pytest

import living_methods
import mdmt
from mdmt.living import defaults
from support.deliveries import delivery

RUNS = living_methods.read_runs(living_methods.MEASURED)


def accuracy(method):
    """The mean over both studies."""
    return np.mean(
        [
            np.mean([r["accuracy"] for r in RUNS if (r["study"], r["method"]) == (study, method)])
            for study in living_methods.STUDIES
        ]
    )


def test_the_default_method_answers_best_without_the_task():
    assert max(living_methods.METHODS, key=accuracy) == defaults.METHOD
    for study in living_methods.STUDIES:
        for method in living_methods.METHODS:
            seeds = [r["seed"] for r in RUNS if (r["study"], r["method"]) == (study, method)]
            assert sorted(seeds) == [1234, 1235, 1236]


@pytest.mark.parametrize("method", living_methods.METHODS)
def test_the_settings_of_a_method_are_those_of_its_best_trial(method):
    trial = living_methods.best_trial(method)
    assert all(run["trial"] == trial for run in RUNS if run["method"] == method)
    kind = type(defaults.memory_for(defaults.method_for(method), 1000)).__name__
    rates = {"lr": defaults.learning_for(method, pixels=True)["lr"]}
    ours = {**defaults.settings_for(method), **rates, "memory": kind}
    assert {"memory": "Balanced", **trial}.items() <= ours.items()


def test_tuned_rates_are_for_pixels_alone(tmp_path):
    x, y = delivery(["owl", "kite"])
    for name, inputs, rate in (
        ("pixels", (16 * abs(x)).astype(np.uint8), 0.2),
        ("features", x, 0.1),
    ):
        model = mdmt.LivingModel(tmp_path / name)
        model.learn((inputs, y), "january", epochs=1)
        assert model.learner().optimiser.lr == rate


def test_the_page_shows_what_was_measured():
    assert living_methods.tables(RUNS) in living_methods.PAGE.read_text()
