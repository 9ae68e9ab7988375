"""`mdmt doctor`: a description of the machine for a bug report, and a test of each network.

Torch is loaded in child processes only, so that the report can name a signal that kills them.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from mdmt.cli.options import Json
from mdmt.system.packages import extras, install
from mdmt.system.processes import ending

NETWORKS = ("mlp", "reduced_resnet18", "resnet18")
PACKAGES = ("torch", "numpy", "safetensors", "pillow", "scipy", "typer", "rich")
EXTRAS = ("digits", "report", "tensorboard", "export", "serve")  # of the commands
ENVIRONMENT_VARIABLES = (
    "ONEDNN_MAX_CPU_ISA",
    "ATEN_CPU_CAPABILITY",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "MDMT_DATA",
    "MDMT_CACHE",
)
Facts = dict[str, Any]  # as --json prints them
CHECK_TIMEOUT = 120.0  # seconds; a self-test takes about two


@dataclass(frozen=True)
class CheckResult:
    """The result of a self-test, and its output."""

    right: bool
    answer: str
    output: str = ""


def doctor(json: Json = False) -> None:
    """Describe this machine and test each network. Paste it into a bug report."""
    about: Facts = {"versions": package_versions(), "machine": machine(), **places()}
    if not json:
        _print_about(about)
    checks: dict[str, CheckResult] = {}
    for network in NETWORKS:
        checks[network] = run_check(network)
        if not json:
            print(f"{network}: {checks[network].answer}", flush=True)
    right = all(one.right for one in checks.values())
    if json:
        networks = {
            name: {"right": one.right, "answer": one.answer} for name, one in checks.items()
        }
        _print_json({**about, "networks": networks, "right": right})
    if not right:
        raise typer.Exit(1)


def command_for(subject: str) -> list[str]:
    """The command that tests a network or describes torch."""
    return [sys.executable, "-m", "mdmt.cli.selftest", subject]


def run_check(subject: str) -> CheckResult:
    """Run a self-test; the answer is right, a signal, or the error in one line."""
    start = time.monotonic()
    try:
        done = subprocess.run(  # noqa: S603 (the command is our own)
            command_for(subject), capture_output=True, text=True, check=False, timeout=CHECK_TIMEOUT
        )
    except subprocess.TimeoutExpired:
        return CheckResult(False, f"not done after {CHECK_TIMEOUT:.0f} s")
    if done.returncode == 0:
        return CheckResult(True, f"right ({time.monotonic() - start:.1f} s)", done.stdout)
    last_lines = done.stderr.strip().splitlines()[-1:]
    if done.returncode < 0 or not last_lines:
        return CheckResult(False, ending(done.returncode).removeprefix("was "), done.stdout)
    return CheckResult(False, last_lines[0], done.stdout)


def package_versions() -> dict[str, str | None]:
    """The versions of mdmt, Python, the system and the packages; None if one is missing."""
    optional = [name for extra in EXTRAS for name in extras()[extra]]
    return {
        "mdmt": importlib.metadata.version("mdmt"),
        "python": platform.python_version(),
        "system": platform.platform(),
        **{name: _version(name) for name in (*PACKAGES, *optional)},
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def machine() -> Facts:
    """The processor, and the features of it that torch and oneDNN use."""
    from mdmt.runs.record import processor

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    variables = {name: os.environ[name] for name in ENVIRONMENT_VARIABLES if name in os.environ}
    about = {"processor": processor(), "cores": cores, "variables": variables}
    torch = run_check("torch")
    if not torch.right:
        return {**about, "torch": torch.answer}
    said = json.loads(next(line for line in torch.output.splitlines() if line.startswith("{")))
    onednn = re.search(r"oneDNN v([\d.]+).*?cpu,isa:([^\n]*)", torch.output, re.DOTALL)
    return {
        **about,
        "torch": said["capability"],
        "threads": said["threads"],
        "onednn": {"version": onednn[1], "instructions": onednn[2]} if onednn else None,
    }


def places() -> Facts:
    """The folders that mdmt writes to, with their free space, and the data sets."""
    from mdmt.cli.data import status
    from mdmt.data.sources import SOURCES, cache_folder, data_folder

    folders = {"data": data_folder(), "cache": cache_folder(), "current": Path.cwd()}
    return {
        "folders": {
            name: {"path": str(path), "free_bytes": _free_bytes(path)}
            for name, path in folders.items()
        },
        "data": {name: status(name, folders["data"]).state for name in SOURCES},
    }


def _free_bytes(folder: Path) -> int:
    """Free space on the disk of a folder, which need not exist yet."""
    above = (folder.absolute(), *folder.absolute().parents)
    return shutil.disk_usage(next(place for place in above if place.exists())).free


def _print_about(about: Facts) -> None:
    machine = about["machine"]
    lines: Facts = dict(about["versions"])
    for extra in EXTRAS:
        missing = [name for name in extras()[extra] if about["versions"][name] is None]
        if missing:
            lines[f"no {', '.join(missing)}"] = install(extra)
    lines |= {"processor": machine["processor"], "torch uses": machine["torch"]}
    if onednn := machine.get("onednn"):
        lines[f"oneDNN {onednn['version']} uses"] = onednn["instructions"]
    lines |= {
        "cores": machine["cores"],
        "threads of torch": machine.get("threads"),
        **machine["variables"],
    }
    for name, folder in about["folders"].items():
        lines[f"{name} folder"] = f"{folder['path']} ({folder['free_bytes'] / 1e9:,.1f} GB free)"
    for state in dict.fromkeys(about["data"].values()):
        lines[f"data {state}"] = ", ".join(
            name for name in about["data"] if about["data"][name] == state
        )
    for name, value in lines.items():
        if value is not None:
            print(_fill(f"{name:19} {value}"))
    sys.stdout.flush()


def _fill(line: str) -> str:
    return textwrap.fill(
        line, 80, subsequent_indent=20 * " ", break_long_words=False, break_on_hyphens=False
    )


def _print_json(content: Facts) -> None:
    print(json.dumps(content))
