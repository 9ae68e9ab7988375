"""The rules of the house: what lies where, and who may know whom. docs/architecture.md says why."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "mdmt"
LONGEST = 40  # lines of a function
LONGER = {  # functions that may be longer, and why
    "learner.Learner.__init__": "a line for each argument of the learner",
    "experiments.resolve.resolve": "a line for each field of a configuration",
}
TOP = {  # the public surface, each named by docs/api.md
    "__init__",
    "__main__",
    "backbones",
    "checks",
    "errors",
    "learner",
    "losses",
    "metrics",
    "ranks",
    "sklearn",
    "tasks",
    "words",
}
WITHOUT_TORCH = (
    "system",
    "runs",
    "report",
    "errors",
    "metrics",
    "published",
    "words",
    "ranks",
    "cli",
)
NOTHING: set[str] = set()
BELOW = {"errors", "words"}
CORE = BELOW | {
    "backbones",
    "inputs",
    "losses",
    "memory",
    "metrics",
    "network",
    "ranks",
    "system",
    "tasks",
}
LEARNING = CORE | {"methods", "learning", "runs"}
ALLOWED = {  # a room, or a file at the top, and whom it may import
    "errors": NOTHING,
    "words": NOTHING,
    "published": NOTHING,
    "metrics": {"errors"},
    "losses": {"errors"},
    "ranks": {"errors"},
    "system": BELOW,
    "inputs": BELOW,
    "tasks": BELOW | {"inputs"},
    "backbones": {"errors", "network.parts"},
    "memory": BELOW | {"inputs", "tasks"},
    "network": BELOW | {"backbones", "inputs", "losses", "ranks", "system", "tasks"},
    "methods": BELOW | {"inputs", "losses", "memory", "network", "ranks", "tasks"},
    "runs": BELOW | {"metrics", "published", "system"},
    "learning": LEARNING,
    "learner": LEARNING,
    "checks": LEARNING | {"learner"},
    "data": BELOW | {"inputs", "system", "tasks"},
    "benchmarks": BELOW | {"data", "inputs", "system", "tasks"},
    "experiments": LEARNING | {"learner", "benchmarks", "data", "published"},
    "living": LEARNING | {"learner", "benchmarks", "data"},
    "sklearn": {"living"},
    "report": BELOW | {"metrics", "runs", "system.files", "system.own_code", "system.packages"},
    "cli": LEARNING
    | {"learner", "benchmarks", "data", "experiments", "living", "published", "report"},
    "": (
        NOTHING
        | {
            "backbones",
            "benchmarks",
            "checks",
            "cli.notebook",  # mdmt.compare
            "learner",
            "living",
            "losses",
            "memory",
            "methods",
            "metrics",
            "ranks",
            "report.comparison",
            "tasks",
        }
    ),
    "__main__": {"cli", "system"},
}


@cache
def modules():
    """The modules of the package by name, without the package's own."""
    names = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        names[".".join(part for part in parts if part != "__init__")] = path
    return names


@cache
def imports(name):
    """The modules of the package that a module imports, wherever the import stands."""
    found = set()
    for node in ast.walk(ast.parse(modules()[name].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name}: write imports in full"
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    inside = {one.removeprefix("mdmt").lstrip(".") for one in found if one.split(".")[0] == "mdmt"}
    deepest = {one for one in inside if one in modules() and one}
    packages = {one for one in deepest if any(other.startswith(f"{one}.") for other in deepest)}
    return deepest - packages - {name}


def room(name):
    return name.split(".")[0]


def edges():
    return {
        (name, other) for name in modules() for other in imports(name) if room(other) != room(name)
    }


def is_allowed(name, other):
    allowed = ALLOWED[room(name)]
    return room(other) in allowed or other in allowed


def test_the_top_level_is_the_public_surface():
    files = {path.stem for path in SOURCE.glob("*.py")}
    assert files == TOP
    assert len(files) <= 13
    api = (ROOT / "docs" / "api.md").read_text()
    assert not [name for name in files if not name.startswith("__") and f"mdmt.{name}" not in api]


def test_a_room_imports_only_what_it_may():
    found = {(name, other) for name, other in edges() if not is_allowed(name, other)}
    assert found == set()


def test_no_module_imports_itself_in_a_circle():
    finished: set[str] = set()

    def visit(name, trail):
        assert name not in trail, " -> ".join([*trail[trail.index(name) :], name])
        if name not in finished:
            for other in sorted(imports(name)):
                visit(other, [*trail, name])
            finished.add(name)

    for name in modules():
        visit(name, [])


@pytest.mark.parametrize("name", WITHOUT_TORCH)
def test_torch_is_a_floor(name):
    inside = [f"mdmt.{one}" for one in modules() if room(one) == name]
    code = (
        f"import importlib, sys\nfor name in {inside}: importlib.import_module(name)\nassert"
        " 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_function_is_long():
    long = {}
    for name, path in modules().items():
        for function, lines in functions(ast.parse(path.read_text()), name):
            if lines > LONGEST:
                long[function] = lines
    assert set(long) == set(LONGER), long


def functions(node, prefix):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            full = f"{prefix}.{child.name}"
            if not isinstance(child, ast.ClassDef):
                yield full, child.end_lineno - child.lineno + 1
            yield from functions(child, full)


def test_a_method_has_few_names():
    """What a stranger has to know to write a method: its hooks, and what it may call."""
    tree = ast.parse((SOURCE / "methods" / "base.py").read_text())
    (method,) = [node for node in tree.body if getattr(node, "name", "") == "Method"]
    names = {node.name for node in method.body if isinstance(node, ast.FunctionDef)}
    names |= {
        node.target.id for node in method.body if isinstance(node, ast.AnnAssign) and node.value
    }
    assert len({name for name in names if not name.startswith("_")}) <= 16
    assert method.end_lineno - method.lineno < 150


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_files_that_the_docs_name_exist(page):
    named = set(re.findall(r"`((?:[\w-]+/)*\w+\.py)`", page.read_text()))
    places = (ROOT, SOURCE, ROOT / "bench", ROOT / "tests", ROOT / "docs")
    missing = {name for name in named if not any((place / name).exists() for place in places)}
    assert missing <= {"mymodule.py"}  # the reader's own
