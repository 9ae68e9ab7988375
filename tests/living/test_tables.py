"""Tables for a living model: their columns are found by their names."""

import json

import pytest

import mdmt
from mdmt.errors import Mistake
from support.commands import content, out_of, refused, run
from support.deliveries import delivery

pytestmark = pytest.mark.usefixtures("own_cache")


def table(path, classes, columns, seed=0, label="bird"):
    """A delivery as a .csv file with the columns in this order, which are letters from a to l."""
    x, y = delivery(classes, seed=seed)
    order = ["abcdefghijkl".index(column) for column in columns]
    rows = [[label, *columns], *([c, *row] for c, row in zip(y, x[:, order].tolist(), strict=True))]
    path.write_text("\n".join(",".join(map(str, row)) for row in rows))
    return path.name


def test_columns_of_tables_are_found_by_their_names(tmp_path, capsys):
    label = ["--label", "bird", "--quiet"]
    january = table(tmp_path / "january.csv", ["owl", "kite"], "abcdefghijkl")
    assert run("learn", "birds", january, *label) == 0
    turned = table(tmp_path / "turned.csv", ["owl", "kite"], "lkjihgfedcba")
    assert "was learned already" in refused(capsys, "learn", "birds", turned, *label)
    february = table(tmp_path / "february.csv", ["robin"], "cbalkjihgfed", seed=1)
    assert run("learn", "birds", february, *label) == 0
    test = table(tmp_path / "test.csv", ["owl", "robin"], "fedcbalkjihg", seed=9)
    capsys.readouterr()
    assert "accuracy 100.0 %" in out_of(capsys, "evaluate", "birds", test, "--label", "bird")
    lines = (tmp_path / "test.csv").read_text().splitlines()
    (tmp_path / "ask.csv").write_text("\n".join(line.partition(",")[2] for line in lines))
    answers = json.loads(out_of(capsys, "predict", "birds", "ask.csv", "--json"))["answers"]
    assert [row["label"] for row in answers] == ["owl"] * 30 + ["robin"] * 30
    assert mdmt.LivingModel("birds").columns == list("abcdefghijkl")
    assert run("forget", "birds", "--task", "january", "--yes") == 0
    assert mdmt.LivingModel("birds").columns == list("abcdefghijkl")


def test_columns_of_frames_are_found_by_their_names(tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    x, y = delivery(["owl", "kite"])
    frame = pandas.DataFrame(x, columns=list("abcdefghijkl")).assign(bird=y)
    model = mdmt.LivingModel("birds")
    model.learn(frame, name="january", label="bird")
    turned = frame.drop(columns="bird")[list("lkjihgfedcba")]
    assert model.predict(turned) == y
    assert model.predict_proba(turned).tobytes() == model.predict_proba(x).tobytes()
    assert [answer.label for answer in model.predict_top(turned)] == y
    with pytest.raises(Mistake, match="'l' is missing"):
        model.predict(turned.drop(columns="l"))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("abcdefghijk", "'l' is missing"),
        ("abcdefghijkk", "two columns are called 'k'"),
    ],
)
def test_tables_with_other_columns_are_refused(tmp_path, capsys, columns, words):
    january = table(tmp_path / "january.csv", ["owl", "kite"], "abcdefghijkl")
    assert run("learn", "birds", january, "--label", "bird", "--quiet") == 0
    before = content(tmp_path / "birds")
    february = table(tmp_path / "february.csv", ["robin"], columns, seed=1)
    for command in ("learn", "evaluate"):
        assert words in refused(capsys, command, "birds", february, "--label", "bird")
    assert "'bird' is not one of them" in refused(capsys, "predict", "birds", january)
    assert "say which column" in refused(capsys, "learn", "birds", january)
    assert "no column 'fish'" in refused(capsys, "learn", "birds", january, "--label", "fish")
    assert content(tmp_path / "birds") == before
