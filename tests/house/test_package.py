"""The package as others get it: bounds, versions, licences, and advice that fits whoever reads it."""

import json
import re
import tomllib
from email.message import Message
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import oldest
import supply
from mdmt.system import packages

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LINES = [
    line for line in (ROOT / "constraints.txt").read_text().split("\n") if line[:1] not in ("", "#")
]
PINS = {
    canonicalize_name(name): version
    for name, _, version in (line.partition("==") for line in LINES)
}


def requirements(lists):
    texts = [text for text in chain(*lists) if isinstance(text, str)]
    return [Requirement(text) for text in texts if not text.startswith("mdmt[")]


def test_every_bound_allows_the_version_that_is_tested():
    extras = PROJECT["project"]["optional-dependencies"].values()
    own = requirements([PROJECT["project"]["dependencies"], *extras])
    tools = requirements(PROJECT["dependency-groups"].values())
    for need in own + tools:
        pin = PINS[canonicalize_name(need.name)]
        assert need.specifier.contains(pin), f"{need} does not allow {pin}"
    for need in own:
        assert {one.operator for one in need.specifier} == {">=", "<"}, f"{need} lacks a bound"


def test_the_extra_all_has_all_extras():
    extras = PROJECT["project"]["optional-dependencies"]
    (others,) = [text for text in extras["all"] if text.startswith("mdmt[")]
    assert set(re.findall(r"[\w-]+", others)) - {"mdmt"} == set(extras) - {"all"}


def test_the_oldest_of_a_package_in_two_extras_is_the_newer_one():
    project = {
        "dependencies": ["torch>=2,<3", "numpy>=1.26,<3"],
        "optional-dependencies": {"a": ["x>=1.10,<2"], "b": ["x>=1.9,<2"], "all": ["mdmt[a,b]"]},
    }
    assert oldest.pins(project) == ["numpy==1.26", "x==1.10"]


def test_advice_names_packages_and_no_folder():
    texts = {path: path.read_text() for path in (ROOT / "src").rglob("*.py")}
    assert not [
        path for path, text in texts.items() if re.search(r"pip install '(\.|mdmt)\[", text)
    ]
    assert packages.install("serve").startswith("pip install fastapi ")
    assert packages.install("no-such-extra") == "pip install no-such-extra"


def test_the_citation_has_the_version_and_the_paper_of_the_package():
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {PROJECT['project']['version']}\n" in citation
    assert f" url: {PROJECT['project']['urls']['Paper of MDMT-R']}\n" in citation


def installed(name, licence="MIT", version="1.0", requires=()):
    about = Message()
    about["License-Expression"] = licence
    return SimpleNamespace(name=name, version=version, requires=list(requires), metadata=about)


def test_the_audit_refuses_licences_and_versions():
    found = supply.problems(
        {
            "a": installed("a", requires=["b>=2", "c; extra == 'other'", "d<1; extra == 'all'"]),
            "b": installed("b", "LGPL-3.0-only OR MIT", version="1.9"),
            "c": installed("c", ""),
            "d": installed("d", "BSD-3-Clause"),
        }
    )
    assert found == [
        "a needs b>=2: 1.9 is here",
        "a needs d<1: 1.0 is here",
        "b: its licence is not permissive, or unknown: LGPL-3.0-only OR MIT",
        "c: its licence is not permissive, or unknown: -",
    ]


def test_what_is_installed_passes_and_is_listed():
    found, _ = supply.closure()
    assert supply.problems(found) == []
    bom = supply.sbom()
    names = [one["name"] for one in bom["components"]]
    assert {"torch", "numpy", "ray", "onnx", "jinja2", "pandas"} <= set(names)
    assert len(names) == len(set(names))
    assert not {"pytest", "ruff", "sphinx"} & set(names)  # tools do not come along
    places = {one["bom-ref"] for one in [*bom["components"], bom["metadata"]["component"]]}
    assert {one["ref"] for one in bom["dependencies"]} == places
    assert {below for one in bom["dependencies"] for below in one["dependsOn"]} <= places
    assert json.dumps(supply.sbom()) == json.dumps(bom)
