"""Build mdmt as a wheel and an sdist, and use the wheel in an empty environment and folder.

    python tests/package.py

The environment gets torch as constraints.txt has it, the wheel and the digits, nothing of this
project's folder. Each command below must end with the exit code that stands beside it, and print
the text.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
IN_SDIST = (
    ".ci/run", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "RESULTS.md",
    "SECURITY.md", "bench/results.py", "constraints.txt", "docs/api.md", "examples/first-steps.ipynb",
    "results/notes.json", "src/mdmt/learner.py", "tests/package.py",
)  # fmt: skip
IN_WHEEL = ("mdmt/py.typed", "mdmt/report/page.html", "mdmt/experiments/presets_digits.json")
DELIVERY = """
import numpy as np
random = np.random.default_rng(0)
x = random.normal(size=(80, 6)).astype("float32")
np.savez("delivery.npz", x=x, y=np.where(x[:, 0] > 0, "high", "low"))
"""
COMPARE = """
import mdmt
print(mdmt.compare("permuted-digits", ["van"], seeds=1, tasks=2, subset=60))
"""
COMMANDS: list[tuple[list[str], int, str]] = [
    (["mdmt", "--version"], 0, "mdmt 0"),
    (["mdmt", "run", "--method", "er", "--tasks", "2", "--subset", "60"], 0, "A_T"),
    (["python", "-c", COMPARE], 0, "A_T"),
    (["python", "-c", DELIVERY], 0, ""),
    (["mdmt", "learn", "model", "delivery.npz", "--epochs", "2"], 0, "version 1"),
    (["mdmt", "info", "model"], 0, "high"),
    (["mdmt", "serve", "--help"], 0, "--learn"),
    # Without its extra, each says in one line what to install.
    (["mdmt", "serve", "model"], 2, "pip install fastapi"),
    (["mdmt", "export", "model", "--onnx", "model.onnx"], 2, "pip install onnx"),
    (["mdmt", "run", "--cluster", "auto"], 2, "pip install ray"),
]


def build(folder: Path) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from it."""
    command = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def check_content(sdist: Path, wheel: Path) -> None:
    with tarfile.open(sdist) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    missing = [name for name in IN_SDIST if name not in names]
    assert not missing, f"{sdist.name} lacks {missing}"
    with zipfile.ZipFile(wheel) as file:
        missing = [name for name in IN_WHEEL if name not in file.namelist()]
        foreign = [name for name in file.namelist() if not name.startswith("mdmt")]
    assert not missing, f"{wheel.name} lacks {missing}"
    assert not foreign, f"{wheel.name} has {foreign}"


def install(wheel: Path, place: Path) -> Path:
    """The programs of a new environment with the wheel."""
    venv.create(place, with_pip=True)
    bin_ = place / "bin"
    pip = [str(bin_ / "python"), "-m", "pip"]
    limits = ["-c", str(ROOT / "constraints.txt")]
    quiet = ["--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", *quiet, *limits, "torch", f"{wheel}[digits]"], check=True)
    subprocess.run([*pip, "check"], check=True)
    return bin_


def use(bin_: Path, folder: Path) -> None:
    """Run the commands in an empty folder."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MDMT"))
    }
    environment |= {"PATH": f"{bin_}:{environment['PATH']}", "COLUMNS": "200"}
    for (program, *arguments), code, text in COMMANDS:
        command = [str(bin_ / program), *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        shown = " ".join([program, *arguments[:3]]).strip().splitlines()[0]
        said = done.stdout + done.stderr
        assert done.returncode == code, f"{shown}: exit code {done.returncode}\n{said}"
        assert text in said, f"{shown}: no {text!r} in\n{said}"
        print("ok:", shown, flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        sdist, wheel = build(place / "dist")
        check_content(sdist, wheel)
        sizes = ", ".join(f"{one.name} {one.stat().st_size / 1e6:.1f} MB" for one in (sdist, wheel))
        print(f"built: {sizes}", flush=True)
        bin_ = install(wheel, place / "environment")
        (place / "elsewhere").mkdir()
        use(bin_, place / "elsewhere")


if __name__ == "__main__":
    main()
