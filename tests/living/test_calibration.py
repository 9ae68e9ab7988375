"""The temperature: what it is for given scores."""

import numpy as np
import pytest

from mdmt.living.calibration import calibration_error, fit_temperature, softmax


def test_it_finds_the_temperature_that_made_the_labels():
    random = np.random.default_rng(0)
    scores = random.normal(size=(20_000, 4)) * 2
    shares = softmax(scores / 3.0)
    labels = (shares.cumsum(1) > random.random(len(scores))[:, None]).argmax(1)
    assert fit_temperature(scores, labels) == pytest.approx(3.0, rel=0.05)


def test_a_few_right_answers_are_no_certainty():
    scores = np.array([[5.0, 0.0], [0.0, 5.0]] * 10)
    labels = np.array([0, 1] * 10)
    shares = softmax(scores / fit_temperature(scores, labels))
    assert 0.9 < shares.max(1).mean() < 0.99  # 20 of 20 right: 21 of 22


def test_classes_that_do_not_compete_do_not_count():
    scores = np.array([[2.0, 1.0, -np.inf], [-np.inf, 1.0, 2.0]] * 5)
    labels = np.array([0, 2] * 5)
    temperature = fit_temperature(scores, labels)
    assert np.isfinite(temperature)
    assert calibration_error(softmax(scores / temperature), labels) < 0.2


def test_without_examples_it_is_one():
    assert fit_temperature(np.empty((0, 3)), np.empty(0, np.int64)) == 1.0
    assert fit_temperature(np.ones((2, 1)), np.zeros(2, np.int64)) == 1.0
