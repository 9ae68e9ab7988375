"""`mdmt doctor`: what it says of this machine, and of a network that does not work on it."""

import json
import subprocess
import sys

import pytest

from mdmt.cli import doctor, selftest
from mdmt.cli.app import main
from mdmt.learner import Learner
from support.processes import MDMT

DIES = "import os, signal; os.kill(os.getpid(), signal.{})"


@pytest.fixture
def scripts(monkeypatch):
    """What takes the place of the self-tests, by subject; nothing happens where there is
    nothing.
    """
    given = {"torch": """print('{"capability": "AVX2", "threads": 1}')"""}
    monkeypatch.setattr(
        doctor, "command_for", lambda subject: [sys.executable, "-c", given.get(subject, "")]
    )
    return given


def test_every_network_works_here(tmp_path):
    done = subprocess.run(
        [*MDMT, "doctor"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split(" (")[0] for line in lines[-3:]] == [
        "mlp: right",
        "reduced_resnet18: right",
        "resnet18: right",
    ]
    about = {line[:19].strip(): line[20:] for line in lines[:-3]}
    assert {
        "mdmt",
        "python",
        "torch",
        "numpy",
        "safetensors",
        "processor",
        "cores",
        "threads of torch",
    } <= set(about)
    assert about["torch uses"].isupper() or about["torch uses"] == "DEFAULT"
    assert str(tmp_path) in done.stdout
    assert done.stdout.count("GB free") == 3
    assert all(len(line) <= 80 for line in lines if str(tmp_path) not in line)


def test_json_is_one_object(scripts, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    monkeypatch.setenv("MDMT_DATA", str(tmp_path / "not" / "there"))
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"versions", "machine", "folders", "data", "networks", "right"}
    assert found["right"]
    assert found["machine"]["variables"]["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    assert found["folders"]["data"]["path"] == str(tmp_path / "not" / "there")
    assert found["folders"]["data"]["free_bytes"] > 0
    assert found["data"]["cifar100"] == "missing"
    assert list(found["networks"]) == ["mlp", "reduced_resnet18", "resnet18"]


def test_what_is_wrong_is_one_line_each_and_exit_code_1(scripts, capsys):
    scripts["mlp"] = "raise RuntimeError('the loaded weights are not the saved ones')"
    scripts["reduced_resnet18"] = DIES.format("SIGSEGV")
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3] == "mlp: RuntimeError: the loaded weights are not the saved ones"
    assert lines[-2] == "reduced_resnet18: ended by SIGSEGV"
    assert lines[-1].startswith("resnet18: right (")


def test_a_test_that_never_ends_is_ended(scripts, capsys, monkeypatch):
    monkeypatch.setattr(doctor, "CHECK_TIMEOUT", 1.0)
    scripts["resnet18"] = "import time; time.sleep(60)"
    assert main(["doctor"]) == 1
    assert "\nresnet18: not done after 1 s\n" in capsys.readouterr().out


def test_where_torch_cannot_be_loaded_the_rest_is_told(scripts, capsys):
    scripts.update(dict.fromkeys(("torch", *doctor.NETWORKS), DIES.format("SIGILL")))
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "torch uses          ended by SIGILL\n" in out
    assert "cores               " in out
    assert out.count(": ended by SIGILL\n") == 3


def test_missing_packages_are_named_with_what_to_install(scripts, capsys, monkeypatch):
    found = doctor.extras()
    monkeypatch.setattr(doctor, "extras", lambda: {**found, "tensorboard": ["no-such-package"]})
    assert main(["doctor"]) == 0
    assert "no no-such-package  pip install tensorboard\n" in capsys.readouterr().out


def test_the_doctor_itself_loads_no_torch():
    script = (
        "import sys; from mdmt.cli import doctor; from mdmt.cli.app import main; doctor.NETWORKS ="
        " ();main(['doctor', '--json']); sys.exit('torch' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).returncode
        == 0
    )


def test_the_self_test_sees_a_load_that_changes_weights(monkeypatch):
    selftest.self_test("mlp")
    load = Learner.load

    def changed(folder):
        learner = load(folder)
        learner.model.flat.data[0] += 1
        return learner

    monkeypatch.setattr(Learner, "load", changed)
    with pytest.raises(RuntimeError, match="loaded weights"):
        selftest.self_test("mlp")
