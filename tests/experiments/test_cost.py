"""`mdmt cost` and `mdmt reproduce`: bytes against counts by hand, and what they print."""

import csv
import io
import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

import mdmt
import mdmt.experiments.resolve as resolve_module
from mdmt.cli import compare
from mdmt.cli.app import main
from mdmt.experiments.cost import (
    AllocationPeak,
    AutogradPeak,
    PeakBytes,
    measure,
    published_cost,
    quick_before,
)
from mdmt.published import table
from mdmt.report import text
from mdmt.report.tables import cost_blocks
from support.configs import config_for
from support.elsewhere import DEVICE, TO_PROCESSOR, Elsewhere
from support.formats import write_cifar
from support.helpers import small_stream

FLOAT, PIXELS, WIDTH, CLASSES = 4, 784, 16, 10
PARAMETERS = FLOAT * (PIXELS * WIDTH + WIDTH + WIDTH * WIDTH + WIDTH + CLASSES * (WIDTH + 1))


class Short(mdmt.methods.base.Rehearsal):
    """Rehearsal whose loss keeps nothing but the features."""

    def gradient(self, batch):
        reference = self.memory.sample(self.reference_batch)
        return self.grad(*([] if reference is None else [reference]), batch)[1]

    def loss(self, features, batch):
        return features.square().sum(1)


def cost_of(method, tasks=3, **settings):
    """A method's cost on small tasks of the digits, with a narrow network."""
    arguments = {"memory": 2, **settings}
    config = config_for("permuted-digits", method, tasks=tasks, settings=arguments)
    config = replace(
        config, backbone={"name": "mlp", "arguments": {"inputs": PIXELS, "width": WIDTH}}
    )
    return measure(config, small_stream("permuted-digits", tasks=tasks, train=60, test=10), steps=2)


def kept(samples):
    """What a pass keeps for its way back: the inputs as floats and the two hidden layers."""
    return FLOAT * samples * (PIXELS + WIDTH + WIDTH)


def test_parameters_and_activations_of_an_mlp():
    found = cost_of("experiments.test_cost:Short", tasks=1, reference_batch=7)
    assert found["training"]["parameters"] == PARAMETERS
    assert found["training"]["activations"] == kept(10)
    assert found["training"]["vectors"] == PARAMETERS  # one gradient
    pixels = 10 * PIXELS  # what is read; then these as floats, and both sides of a ReLU
    assert found["inference"]["activations"] == pixels + FLOAT * 10 * (PIXELS + 2 * WIDTH)
    assert found["step_ms"] > 0
    assert found["inference_ms"] > 0


@pytest.mark.parametrize("reference", [7, 20])
def test_activations_grow_with_the_reference_batch(reference):
    found = cost_of("experiments.test_cost:Short", reference_batch=reference)
    assert found["training"]["activations"] == kept(10) + kept(reference)


def test_passes_that_follow_each_other_are_not_added_up():
    one, two = (cost_of("a-gem", reference_batch=n)["training"]["activations"] for n in (20, 40))
    both = cost_of("mdmt-r", reference_batch=20)["training"]["activations"]
    assert two > 1.8 * one  # the larger pass decides
    assert both > one + kept(9)  # one graph of the two


@pytest.mark.parametrize("name", ["ewc", "mas", "pi", "rwalk", "van", "er"])
def test_buffers_are_those_a_method_declares(name):
    found = cost_of(name)["training"]
    declared = mdmt.methods.METHODS[name]().used_buffers().values()
    along = sum(b.like == "params" for b in declared)
    assert found["buffers"] == along * PARAMETERS + FLOAT * (len(declared) - along)
    assert found["vectors"] >= PARAMETERS


def test_an_optimiser_remembers_too():
    # And its count of steps.
    assert cost_of("van", optimiser="Adam")["training"]["buffers"] == 2 * PARAMETERS + FLOAT


def test_the_memory_is_full_and_representations_are_counted():
    per_class, tasks = 2, 3
    examples = per_class * CLASSES * tasks
    found = cost_of("mdmt-r")["training"]
    assert found["representations"] == examples * WIDTH * FLOAT
    assert found["memory"] == examples * (PIXELS + 8 + 8)  # pixels, label, task
    assert cost_of("er")["training"]["memory"] == found["memory"]
    assert cost_of("mdmt-r[distance=none]")["training"]["representations"] == 0
    total = sum(count for kind, count in found.items() if kind != "total")
    assert found["total"] == total


def test_gem_holds_a_gradient_for_each_past_task():
    few, many = (cost_of("gem", tasks=tasks)["training"]["vectors"] for tasks in (2, 5))
    assert few >= 2 * PARAMETERS
    assert many - few >= 3 * PARAMETERS
    assert cost_of("a-gem", tasks=5)["training"]["vectors"] < many


def test_measuring_leaves_a_method_its_own_steps():
    found = [cost_of("mer", replay=n, batch=1)["training"] for n in (0, 3)]
    # Two copies of the weights and a gradient.
    assert [f["vectors"] // PARAMETERS for f in found] == [
        3,
        3,
    ]


def test_joint_is_measured_on_all_tasks_at_once():
    found = cost_of("joint")
    assert found["training"]["memory"] == 0
    assert found["published"] is None


def test_peak_bytes_forget_what_is_gone():
    weights = torch.zeros(10, requires_grad=True)
    tracker = PeakBytes(weights)
    for _ in range(3):
        tracker.track(torch.zeros(1000))  # each is gone before the next
    assert tracker.peak == 4000
    first, view = torch.zeros(5), weights[2:4]
    for tensor in (first, first[1:], view):
        tracker.track(tensor)
    assert list(tracker.sizes.values()) == [20]
    saved, results = AutogradPeak(weights), AllocationPeak(weights)
    with saved, results:
        (weights.exp() * 2).sum().backward()
    assert saved.peak == 40  # exp saves its result; a product with a number saves nothing
    assert results.peak >= 80
    assert torch.equal(weights.grad, torch.full((10,), 2.0))


@pytest.mark.parametrize("method", table("cost")["rows"])
def test_formulas_and_milliseconds_of_the_paper(method):
    row = table("cost")["rows"][method]
    found = published_cost(config_for("split-cifar", method))
    assert found == {
        "memory_training": row["memory_training"],
        "memory_testing": row["memory_testing"],
        "inference_ms": row["inference_ms"]["split-cifar"],
    }
    assert (
        published_cost(config_for("split-cifar", method, settings={"batch": 20}))["inference_ms"]
        is None
    )
    assert published_cost(config_for("split-cifar", method), is_reduced=True) == {
        **found,
        "inference_ms": None,
    }
    assert published_cost(config_for("split-awa", method, image_size=96))["inference_ms"] is None
    assert (
        published_cost(config_for("permuted-digits", method))["memory_training"]
        == row["memory_training"]
    )


SMALL = [
    "permuted-digits",
    "--methods",
    "van,er,mdmt-r[distance=none]",
    "--tasks",
    "2",
    "--steps",
    "2",
]
REHEARSE = ["--set", "reference_batch=8", "--set", "memory=1"]


def shown(capsys, *more):
    assert main(["cost", *SMALL, *REHEARSE, *more]) == 0
    return capsys.readouterr()


def test_json(capsys):
    out, err = shown(capsys, "--json")
    assert err == ""
    found = json.loads(out)
    assert {key: value for key, value in found.items() if key != "rows"} == {
        "benchmark": "permuted-digits", "task": 2, "steps": 2, "threads": 1,
        "reduced": {"tasks": 2, "reference_batch": 8},
    }  # fmt: skip
    assert [row["method"] for row in found["rows"]] == ["van", "er", "mdmt-r"]
    kinds = {
        "parameters",
        "buffers",
        "vectors",
        "memory",
        "representations",
        "activations",
        "total",
    }
    for row in found["rows"]:
        assert set(row["training"]) == kinds
        assert set(row["inference"]) == {"parameters", "activations", "total"}
        assert {"label", "batch", "step_ms", "inference_ms", "published"} <= set(row)
    assert found["rows"][0]["published"]["memory_training"] == "P+B*H"
    assert found["rows"][1]["published"] is None


def test_the_table_says_where_it_was_measured_and_fits_a_narrow_screen(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    out, err = shown(capsys)
    lines = out.splitlines()
    assert err.splitlines()[0] == "van[memory=1]: 1 of 3"
    assert lines[0] == "permuted-digits, cost of a mini-batch at task 2"
    assert lines[1] == "median of 2 after warming up, 1 thread"
    assert lines[2].startswith("reduced, not the published protocol: tasks 2")
    assert all(len(line) <= 60 for line in lines)
    assert "published" not in lines[4]  # no milliseconds of the digits were
    assert "MB of training" in lines
    assert "MB of inference" in lines


@pytest.mark.parametrize("whole", [False, True])
def test_published_milliseconds_stand_beside_the_whole_protocol_and_whose_they_are(
    whole, tmp_path, capsys, monkeypatch
):
    write_cifar(tmp_path / "cifar-100-python")
    if whole:
        monkeypatch.setattr(resolve_module, "reduced", lambda *_: None)
    arguments = [
        "cost",
        "split-cifar",
        "--methods",
        "mega",
        "--tasks",
        "1",
        "--steps",
        "1",
        "--quiet",
    ]
    assert main([*arguments, "--data", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert ("reduced, not the published protocol" in out) == (not whole)
    assert out.count("26.38") == whole
    assert out.count("the authors' machine") == whole
    assert "2*P+(B+M)*H" in out


def test_other_formats(capsys):
    found = json.loads(shown(capsys, "--json").out)
    assert "| P+B\\*H |" in text.as_markdown(cost_blocks(found))
    latex = text.as_latex(cost_blocks(found))
    assert latex.count(r"\begin{tabular}") == 3
    assert "$P+B*H$" in latex
    lines = list(csv.DictReader(io.StringIO(shown(capsys, "--format", "csv", "--quiet").out)))
    assert [line["label"] for line in lines][:2] == [
        "van[memory=1]",
        "er[memory=1,reference_batch=8]",
    ]
    assert int(lines[0]["training_parameters"]) == FLOAT * (
        784 * 256 + 256 + 256 * 256 + 256 + 10 * 257
    )
    assert lines[1]["published_memory_training"] == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cost", "--methods", "van,no-such"], "method 'no-such' is not one of joint, van"),
        (["cost", "no-such"], "benchmark 'no-such' is not one of"),
        (
            ["cost", "split-cifar", "--data", "nowhere"],
            "cifar100 is not in nowhere: run `mdmt data fetch cifar100`",
        ),
        (["cost", "--format", "pdf"], "--format pdf: must be one of table, markdown, latex, csv"),
        (["cost", "--steps", "0"], "Invalid value for '--steps'"),
        (
            ["reproduce", "table3"],
            "No such command 'table3'; the commands are table1, table2, cost, fig3",
        ),
        (["reproduce", "table1", "--data", "nowhere"], "cifar100 is not in nowhere"),
        (["reproduce", "table2", "--data", "nowhere"], "cifar100 is not in nowhere"),
        (["reproduce", "cost", "--data", "nowhere"], "cifar100 is not in nowhere"),
        (["reproduce", "table1", "no-such"], "benchmark 'no-such' is not one of"),
        (["reproduce", "cost", "--no-such"], "No such option"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_reproduce_is_the_command_of_that_name(capsys):
    assert main(["reproduce", "cost", *SMALL, *REHEARSE, "--json"]) == 0
    assert [row["method"] for row in json.loads(capsys.readouterr().out)["rows"]] == [
        "van",
        "er",
        "mdmt-r",
    ]


def test_reproduce_asks_for_what_was_published(monkeypatch):
    asked = {}

    def note(options, variants, *_, ablation=False):
        seeds = list(options.all_seeds)
        asked.update(
            benchmark=options.benchmark, variants=len(variants), seeds=seeds, ablation=ablation
        )

    monkeypatch.setattr(compare, "_compare", note)
    for name, rows in (("table1", 12), ("table2", 10)):
        assert main(["reproduce", name]) == 0
        seeds = [1234, 1235, 1236, 1237, 1238]
        assert asked == {
            "benchmark": "split-cifar",
            "variants": rows,
            "seeds": seeds,
            "ablation": name == "table2",
        }
    assert main(["compare"]) == 0
    assert asked["benchmark"] == "permuted-digits"


def test_help_loads_no_torch():
    script = (
        "import sys; from mdmt.cli.app import main; main(['reproduce', 'cost', '--help']);"
        " sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "split-cifar" in done.stdout


def test_a_step_on_an_accelerator_is_timed_until_it_is_over(monkeypatch):
    monkeypatch.setattr("mdmt.inputs.device.free_bytes", lambda _: 2**40)
    with Elsewhere() as elsewhere:
        learner = mdmt.Learner(
            mdmt.backbones.mlp(784, 4), quick_before(0, mdmt.VAN)(), device=str(DEVICE)
        )
        usual = learner.method.step
        waits = []

        def step(batch):
            before = len(elsewhere.waits)
            usual(batch)
            waits.append(elsewhere.waits[before:])

        learner.method.step = step
        learner.learn(small_stream(tasks=1, train=30)[0])
    assert waits == [[TO_PROCESSOR]] * 3
