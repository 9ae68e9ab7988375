"""Test mdmt with the oldest packages that pyproject.toml allows, in an environment of its own.

    python tests/oldest.py [FOLDER] [PYTEST ARGUMENTS]

Torch is the exception: it is that of constraints.txt, since old builds fill a disk. Ray and what
the tests themselves need have their usual versions too.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import venv
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[1]
USUAL = ("torch", "ray")
TOOLS = ("pytest", "pytest-xdist", "httpx", "hypothesis", "nbclient", "ipykernel")
# What meets the packages: the terminal, images, arrays, the report, tables, ONNX, the server.
TESTS = (
    "tests/cli",
    "tests/data",
    "tests/inputs",
    "tests/report/test_report.py",
    "tests/runs",
    "tests/system",
    "tests/living/test_estimator.py",
    "tests/living/test_module.py",
    "tests/living/test_onnx.py",
    "tests/living/test_serving.py",
    "tests/experiments/test_runs.py",
)


def oldest(requirement: str) -> str:
    """The oldest version that a requirement allows.

    >>> oldest("numpy>=1.26,<3")
    'numpy==1.26'
    """
    name, version = re.match(r"([\w.-]+)>=([\w.]+)", requirement).groups()
    return f"{name}=={version}"


def pins(project: dict) -> list[str]:
    """The oldest version of each dependency; of a package in two extras the newer one."""
    extras = project["optional-dependencies"].values()
    found: dict[str, str] = {}
    for requirement in chain(project["dependencies"], *extras):
        if requirement.startswith(("mdmt[", *USUAL)):
            continue
        name, _, version = oldest(requirement).partition("==")
        found[name] = max(found.get(name, version), version, key=_parts)
    return [f"{name}=={version}" for name, version in found.items()]


def _parts(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]


def main(folder: Path, more: list[str]) -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chosen = pins(project)
    print("oldest:", *chosen, flush=True)
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    limits = {
        line.partition("==")[0]: line for line in (ROOT / "constraints.txt").read_text().split("\n")
    }
    wanted = [limits["torch"], limits["ray"], *(limits.get(name, name) for name in TOOLS)]
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, *chosen, *wanted], check=True)
    subprocess.run([*install, "--no-deps", "--editable", str(ROOT)], check=True)
    # Old packages may warn of what newer ones change.
    command = [python, "-m", "pytest", "-W", "default", "-m", "not long", *(more or TESTS)]
    return subprocess.run(command, cwd=ROOT).returncode


if __name__ == "__main__":
    place, *rest = sys.argv[1:] or [str(ROOT / "build" / "oldest")]
    sys.exit(main(Path(place).resolve(), rest))
