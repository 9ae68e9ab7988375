"""The first Python of the README runs, and prints about what the README shows."""

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def numbers(text):
    return [float(number) for number in re.findall(r"\d+\.\d+", text)]


def test_the_first_python_of_the_readme(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = README.read_text()
    program = re.search(r"```python\n(.*?)```", text, re.S)[1]
    shown = re.search(r"```text\n(.*?)```", text, re.S)[1]
    space = {}
    exec(compile(program, README.name, "exec"), space)
    printed = capsys.readouterr().out
    assert re.sub(r"\d[\d.]*", "#", printed) == re.sub(r"\d[\d.]*", "#", shown)
    # Other processors round differently.
    for real, wanted in zip(numbers(printed), numbers(shown), strict=True):
        assert abs(real - wanted) < 0.06
    assert space["model"].classes == list(range(8))
