"""README and docs: short, with links that lead somewhere, and with code that runs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [
    README,
    ROOT / "RESULTS.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


def text_of(page):
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.S | re.M)


def anchors(page):
    """The anchors of a page's headings, as code hosts and the site make them."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in headings}


def run_blocks(page):
    """Run the Python of a page from its first to its last block."""
    space = {"__name__": "page"}
    for block in re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.S | re.M):
        exec(compile(block, page.name, "exec"), space)
    return space


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings_of_the_repository(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if not target.startswith("http"):
            name, _, anchor = target.partition("#")
            place = page.parent / name if name else page
            assert place.is_file(), f"{page.name} links to {target}"
            assert not anchor or anchor in anchors(place), f"{page.name} links to {target}"


def test_every_page_is_on_the_site():
    index = ROOT / "docs" / "index.md"
    trees = "".join(re.findall(r"^```\{toctree\}\n(.*?)^```$", index.read_text(), re.S | re.M))
    listed = [line for line in trees.splitlines() if line and not line.startswith(":")]
    names = [re.sub(r".* <(.*)>", r"\1", line) for line in listed]
    pages = {page for name in names for page in index.parent.glob(f"{name}.md")}
    assert pages | {index} == set(index.parent.glob("*.md"))


def test_every_fault_names_a_test_that_exists():
    rows = re.findall(r"^\|.*\|$", (ROOT / "docs" / "reliability.md").read_text(), re.M)
    rows = [row for row in rows if not row.startswith(("| fault |", "|---"))]
    assert len(rows) > 40
    for row in rows:
        named = re.search(r"\| `(tests/[\w/]+\.py)`, `(test_\w+)` \|$", row)
        assert named, row
        assert f"\ndef {named[2]}(" in (ROOT / named[1]).read_text(), row


def test_the_readme_is_short():
    assert len(README.read_text().splitlines()) <= 120


def test_first_steps(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    learner = run_blocks(ROOT / "docs" / "start.md")["learner"]
    assert [task.name for task in learner.tasks] == ["low", "high"]
    answers, accuracies = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\[[0-4], [0-4], [0-4]\]", answers)
    for with_task, _ in eval(accuracies).values():
        assert with_task > 0.8


def test_coming_from_another_library(capsys):
    space = run_blocks(ROOT / "docs" / "coming-from.md")
    accuracy, forgotten = map(float, capsys.readouterr().out.splitlines()[0].split())
    assert accuracy > 0.9
    assert abs(forgotten) < 0.1
    stream, replay, near = space["stream"], space["replay"], space["near"]
    assert len(replay.memory) > 0
    near.run(stream)
    assert near.method.anchor.abs().sum() > 0
