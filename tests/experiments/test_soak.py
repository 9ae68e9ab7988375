"""`make soak` in small: the script works, and notices what grows."""

import pytest

import soak


def test_a_short_life_grows_with_its_content_alone():
    for kind, points in soak.soak(soak.QUICK).items():
        assert len(points) == soak.QUICK.points
        assert soak.wrong(kind, points) == []


@pytest.fixture
def flat():
    """The looks at a model folder in which nothing grows."""
    names = ("memory, MB", "open files", "ms a delivery", "folder, MB", "manifest, MB")
    return [{"deliveries": 10 * number, **dict.fromkeys(names, 1.0)} for number in range(1, 8)]


@pytest.mark.parametrize(
    ("name", "growth"), [("open files", 1), ("memory, MB", 30), ("folder, MB", 2)]
)
def test_what_grows_is_named(name, growth, flat):
    assert soak.wrong("deliveries", flat) == []
    flat[-1][name] += growth
    (line,) = soak.wrong("deliveries", flat)
    assert line.startswith(f"{name}: from 1 to ")


def test_what_becomes_slower_is_named(flat):
    assert soak.slower(flat) == []
    for point in flat[-2:]:  # 50 deliveries later
        point["ms a delivery"] = 16.0  # .3 for each of these
    assert soak.slower(flat) == []
    for point in flat[-2:]:
        point["ms a delivery"] = 17.0
    assert soak.slower(flat) == ["ms a delivery: 1 at first, 17 at the end"]
