"""What mdmt brings along: a check of the installed packages, and their list as CycloneDX.

    python bench/supply.py audit        # licences, versions and, if possible, vulnerabilities
    python bench/supply.py sbom FILE    # every package that the extra `all` brings

Both follow the dependencies of mdmt through what is installed. The audit fails if a licence is not
permissive, if a version breaks a bound of pyproject.toml, or if pip-audit knows a vulnerability. It
says so if pip-audit is missing or does not reach its database.
"""

from __future__ import annotations

import argparse
import importlib.metadata as metadata
import json
import re
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

EXTRA = "all"
PERMISSIVE = re.compile(
    r"\b(0BSD|Apache|BSD|BSL-1\.0|CC0|CMU|HPND|ISC|MIT|PSF|Python Software Foundation|Unlicense"
    r"|Zlib)",
    re.IGNORECASE,
)
RESTRICTIVE = re.compile(
    r"\b(A?GPL|LGPL|EUPL|MPL|Mozilla|EPL|CDDL|SSPL|General Public|Proprietary)", re.IGNORECASE
)
ACCEPTED = {  # licences that are not permissive, and why they do no harm
    "certifi": "MPL-2.0: a list of certificates, used unchanged by requests, which Ray brings",
}
Packages = dict[str, metadata.Distribution]


def closure(name: str = "mdmt", extra: str = EXTRA) -> tuple[Packages, dict[str, list[str]]]:
    """The package, all that it needs as installed here, and who needs whom."""
    found: Packages = {}
    edges: dict[str, list[str]] = {}
    queue = [(name, extra)]
    seen = set(queue)
    while queue:
        name, extra = queue.pop()
        key = canonicalize_name(name)
        package = found.setdefault(key, metadata.distribution(name))
        below = edges.setdefault(key, [])
        for line in package.requires or []:
            need = Requirement(line)
            if need.marker is not None and not need.marker.evaluate({"extra": extra}):
                continue
            below.append(canonicalize_name(need.name))
            for one in need.extras or {""}:
                if (need.name, one) not in seen:
                    seen.add((need.name, one))
                    queue.append((need.name, one))
    return found, {key: sorted(set(below) - {key}) for key, below in edges.items()}


def licence(package: metadata.Distribution) -> str:
    """The licence that a package declares."""
    about = package.metadata
    classifiers = [
        one.rpartition(" :: ")[2]
        for one in about.get_all("Classifier") or []
        if one.startswith("License ::")
    ]
    text = about.get("License-Expression") or "; ".join(classifiers) or about.get("License") or ""
    return str(text).partition("\n")[0]


def problems(packages: Packages) -> list[str]:
    """What the audit refuses, in words."""
    found = []
    for name, package in sorted(packages.items()):
        text = licence(package)
        permissive = PERMISSIVE.search(text) and not RESTRICTIVE.search(text)
        if not permissive and name not in ACCEPTED:
            found.append(f"{name}: its licence is not permissive, or unknown: {text or '-'}")
        for line in package.requires or []:
            need = Requirement(line)
            other = packages.get(canonicalize_name(need.name))
            if other is None or (need.marker and not need.marker.evaluate({"extra": EXTRA})):
                continue
            if not need.specifier.contains(other.version, prereleases=True):
                found.append(f"{name} needs {need.name}{need.specifier}: {other.version} is here")
    return found


def vulnerabilities(packages: Packages) -> tuple[list[str], str]:
    """Vulnerabilities that pip-audit knows, and a line that says whether it could look."""
    program = shutil.which("pip-audit")
    if program is None:
        return [], "vulnerabilities: not checked, pip-audit is not installed"
    listed = "".join(
        f"{name}=={package.version.partition('+')[0]}\n"
        for name, package in packages.items()
        if name != "mdmt"
    )
    command = [program, "--requirement", "/dev/stdin", "--no-deps", "--disable-pip"]
    command += ["--format", "json", "--progress-spinner", "off"]
    done = subprocess.run(command, input=listed, capture_output=True, text=True)
    try:
        answers = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        return [], "vulnerabilities: not checked, pip-audit does not reach its database"
    checked = [one for one in answers if "vulns" in one]
    known = [
        f"{one['name']} {one['version']}: {vulnerability['id']}"
        for one in checked
        for vulnerability in one["vulns"]
    ]
    return known, f"vulnerabilities: {len(checked)} of {len(answers)} packages checked"


def audit() -> int:
    """Print what is wrong; 1 if anything is."""
    packages, _ = closure()
    wrong = problems(packages)
    known, line = vulnerabilities(packages)
    for problem in [*wrong, *known]:
        print(problem)
    print(f"{len(packages)} packages, {len(wrong) + len(known)} problems; {line}")
    return 1 if wrong or known else 0


def sbom() -> dict[str, Any]:
    """The packages as CycloneDX 1.6; the same packages give the same text."""
    packages, edges = closure()
    place = {
        name: f"pkg:pypi/{name}@{package.version.partition('+')[0]}"
        for name, package in packages.items()
    }
    components = {
        name: {
            "type": "application" if name == "mdmt" else "library",
            "bom-ref": place[name],
            "name": name,
            "version": package.version,
            "purl": place[name],
            "licenses": [{"license": {"name": licence(package) or "unknown"}}],
        }
        for name, package in sorted(packages.items())
    }
    listed = "\n".join(sorted(place.values()))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, listed)}",
        "version": 1,
        "metadata": {"component": components.pop("mdmt")},
        "components": list(components.values()),
        "dependencies": [
            {"ref": place[name], "dependsOn": [place[other] for other in below]}
            for name, below in sorted(edges.items())
        ],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["audit", "sbom"])
    parser.add_argument("file", nargs="?", default="sbom.json")
    arguments = parser.parse_args()
    if arguments.what == "audit":
        return audit()
    Path(arguments.file).write_text(json.dumps(sbom(), indent=1) + "\n")
    print(f"wrote {arguments.file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
