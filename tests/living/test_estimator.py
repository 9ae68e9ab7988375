"""scikit-learn's interface: its own battery of checks, and what lifelong learning adds to it."""

import importlib
import io
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import mdmt.sklearn
from mdmt import backbones
from mdmt.errors import Mistake
from mdmt.learner import Learner
from mdmt.sklearn import LifelongClassifier

CENTRES = np.random.default_rng(7).normal(size=(6, 8)) * 2


def months(classes, count=20, seed=0):
    """Examples of some of six classes that a small network can tell apart."""
    random = np.random.default_rng(seed)
    x = np.concatenate([CENTRES[c] + random.normal(size=(count, 8)) * 0.3 for c in classes])
    return x, np.repeat(classes, count)


def small(**more):
    return LifelongClassifier(**{"epochs": 3, "lr": 0.1, "random_state": 0, **more})


@parametrize_with_checks([LifelongClassifier(), LifelongClassifier("mdmt-r")])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_new_classes_come_without_a_list_of_them_and_old_ones_stay():
    model = small()
    model.partial_fit(*months([4, 2]))
    model.partial_fit(*months([0], seed=1))
    model.partial_fit(*months([2, 1], seed=2))
    assert model.classes_.tolist() == [0, 1, 2, 4]
    x, y = months([0, 1, 2, 4], seed=9)
    assert model.score(x, y) > 0.95
    shares = model.predict_proba(x)
    assert shares.shape == (80, 4)
    np.testing.assert_array_equal(model.classes_[shares.argmax(1)], model.predict(x))


def test_without_a_memory_the_old_classes_are_forgotten():
    model = small(method="van")
    for classes in ([4, 2], [0], [1]):
        model.partial_fit(*months(classes))
    assert model.score(*months([4, 2], seed=9)) < 0.5


def test_many_calls_with_known_classes_make_no_new_tasks():
    model = small().fit(*months([0, 1]))
    for seed in range(5):
        model.partial_fit(*months([seed % 2], count=3, seed=seed))
    assert len(model.learner_.tasks) == 1
    assert model.score(*months([0, 1], seed=9)) == 1.0


def test_names_may_be_classes():
    x, y = months([0, 1])
    model = small().partial_fit(x, np.array(["owl", "kite"])[y])
    x, y = months([2, 3])
    model.partial_fit(x, np.array(["wren", "a much longer name"], object)[y - 2])
    assert model.classes_.tolist() == ["a much longer name", "kite", "owl", "wren"]
    assert model.predict(months([2], count=1)[0]).tolist() == ["wren"]


def test_names_and_numbers_do_not_mix():
    model = small().partial_fit(*months([0, 1]))
    before = model.predict_proba(months([0])[0])
    with pytest.raises(Mistake, match="names or numbers"):
        model.partial_fit(np.ones((2, 8)), ["owl", "kite"])
    assert model.classes_.tolist() == [0, 1]
    np.testing.assert_array_equal(model.predict_proba(months([0])[0]), before)


def test_classes_that_are_given_must_hold_those_of_y():
    with pytest.raises(Mistake, match="does not have all classes"):
        small().partial_fit(*months([0, 1]), classes=[0, 2])
    model = small().partial_fit(*months([0, 1]), classes=[0, 1, 2])
    assert model.classes_.tolist() == [0, 1]


@pytest.mark.parametrize("method", ["er", "mdmt-r"])
def test_the_same_random_state_gives_the_same_bits(method):
    one, two = (
        small(method=method).fit(*months([0, 1])).partial_fit(*months([2])) for _ in range(2)
    )
    x, _ = months([0, 1, 2], seed=9)
    assert one.predict_proba(x).tobytes() == two.predict_proba(x).tobytes()
    other = small(method=method, random_state=1).fit(*months([0, 1])).partial_fit(*months([2]))
    assert one.predict_proba(x).tobytes() != other.predict_proba(x).tobytes()


class Own(nn.Module):
    """A network that is not one of mdmt's."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 16)

    def forward(self, x):
        return self.layer(x).relu()


@pytest.mark.parametrize("backbone", [None, backbones.mlp(8, width=16), Own()])
def test_a_pickled_one_learns_on_as_if_nothing_had_happened(backbone):
    model = small(method="mdmt-r", backbone=backbone).fit(*months([0, 1]))
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    again = joblib.load(file)
    for one in (model, again):
        one.partial_fit(*months([2], seed=1))
    x, _ = months([0, 1, 2], seed=9)
    assert again.predict_proba(x).tobytes() == model.predict_proba(x).tobytes()


def test_a_network_that_is_given_is_copied():
    network = backbones.mlp(8, width=16)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    model = small(backbone=network)
    clone(model).fit(*months([0, 1]))
    model.fit(*months([0, 1])).fit(*months([0, 2]))
    assert all((before[name] == value).all() for name, value in network.state_dict().items())
    assert model.classes_.tolist() == [0, 2]


def test_in_a_pipeline_and_a_grid_search():
    x, y = months([0, 1, 2])
    scaled = make_pipeline(StandardScaler(), small())
    search = GridSearchCV(scaled, {"lifelongclassifier__lr": [1e-6, 0.1]}, cv=2)
    search.fit(x * 1000, y)
    assert search.best_params_ == {"lifelongclassifier__lr": 0.1}
    assert search.score(x * 1000, y) > 0.95


def test_images_are_learned_by_a_convolutional_network():
    random = np.random.default_rng(0)
    x = random.integers(0, 120, (20, 3, 8, 8), dtype=np.uint8)
    x[::2] += 120
    model = small(batch=5).fit(x, ["light", "dark"] * 10)
    assert type(model.learner_.backbone).__name__ == "ResNet"
    assert model.score(x, ["light", "dark"] * 10) > 0.9
    with pytest.raises(Mistake, match="shape"):
        model.predict(x[:, :, :4])


def test_a_memory_that_is_too_small_is_refused():
    with pytest.raises(Mistake, match="cannot hold an example of each of 3 classes"):
        small(memory=100).fit(*months([0, 1, 2]))


def test_an_interrupted_call_changes_nothing(monkeypatch):
    model = small().fit(*months([0, 1]))
    x, _ = months([0, 1, 2], seed=9)
    before = model.predict_proba(x)
    steps = []

    def stop(self, gradient):
        if len(steps) == 3:
            raise KeyboardInterrupt
        steps.append(apply(self, gradient))

    apply = Learner.apply
    with monkeypatch.context() as patch:
        patch.setattr(Learner, "apply", stop)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(*months([2]))
    assert model.predict_proba(x).tobytes() == before.tobytes()
    again = small().fit(*months([0, 1])).partial_fit(*months([2]))
    model.partial_fit(*months([2]))
    assert model.predict_proba(x).tobytes() == again.predict_proba(x).tobytes()


def test_the_example_of_the_docs(capsys):
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    block = page.split("## With scikit-learn")[1].split("```python")[1].split("```")[0]
    scope = {}
    exec(compile(block, "api.md", "exec"), scope)
    assert capsys.readouterr().out.startswith("[0 1 2 3 4 5 6 7 8 9] 0.9")


def test_it_is_reached_from_mdmt_and_does_not_hide_scikit_learn():
    code = (
        "import mdmt, sklearn; sklearn.base; assert sklearn is not mdmt.sklearn;"
        "print(mdmt.sklearn.LifelongClassifier())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "LifelongClassifier()\n", done.stderr


def test_without_scikit_learn_the_import_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "sklearn"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "mdmt.living.estimator")
    with pytest.raises(ImportError, match="pip install scikit-learn"):
        importlib.reload(mdmt.sklearn)
