"""`mdmt tune`: settings are chosen on held-out tasks, and on nothing else."""

import importlib.util
import json
import math
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import mdmt.experiments.run
import mdmt.experiments.sweep
from mdmt import benchmarks
from mdmt.benchmarks.permuted_mnist import permuted_mnist
from mdmt.cli.app import main
from mdmt.data.readers import read_mnist
from mdmt.errors import Mistake
from mdmt.experiments import presets
from mdmt.experiments.presets import SPACES
from mdmt.experiments.resolve import check_config, stream_for
from mdmt.experiments.run import run
from mdmt.experiments.tune import choose, points_of
from mdmt.experiments.workers import Outcome
from mdmt.methods import METHODS
from mdmt.runs.config import RunConfig
from mdmt.runs.request import RunRequest
from support.configs import config_for
from support.formats import write_awa, write_cifar, write_cub, write_mnist
from support.helpers import small_stream, some_row

HELD_OUT = [b.name for b in benchmarks.BENCHMARKS.values() if b.held_out]

DATA = {
    "mnist": (write_mnist, "mnist"), "cifar100": (write_cifar, "cifar-100-python"),
    "cub": (write_cub, "CUB_200_2011"), "awa2": (write_awa, "Animals_with_Attributes2"),
}  # fmt: skip


@pytest.fixture
def here(monkeypatch):
    """Runs are done in this process, on a few examples of each task."""

    def sweep(configs, out, *_, **__):
        for config in configs:
            try:
                yield Outcome(config, run(config, out))
            except FloatingPointError as error:
                yield Outcome(config, None, str(error))

    def small(config, **_):
        return small_stream(
            "permuted-digits", tasks=3, seed=config.seed, cross_validation=config.cross_validation
        )

    monkeypatch.setattr(mdmt.experiments.sweep, "sweep", sweep)
    monkeypatch.setattr(mdmt.experiments.run, "stream_for", small)
    monkeypatch.setenv("COLUMNS", "200")


def tune(capsys, out, *more, code=0):
    assert main(["tune", "permuted-digits", "--out", str(out), *more]) == code
    return capsys.readouterr()


@pytest.mark.parametrize("benchmark", HELD_OUT)
def test_held_out_tasks_share_nothing_with_the_others(benchmark, tmp_path, monkeypatch):
    """Neither classes nor orders of pixels, nor names."""
    monkeypatch.setenv("MDMT_CACHE", str(tmp_path / "cache"))
    bench = benchmarks.find(benchmark)
    if bench.data:
        write, folder = DATA[bench.data]
        write(tmp_path / folder)
    options = {"data": str(tmp_path)} if bench.data else {}
    options |= {"image_size": 8} if bench.image_size else {}
    for seed in (1234, 1235):
        apart, measured = (
            stream_for(
                config_for(benchmark, "van", seed=seed, cross_validation=held_out, **options)
            )
            for held_out in (True, False)
        )
        assert (len(apart), len(measured)) == (bench.held_out, bench.tasks)
        assert not {t.name for t in apart} & {t.name for t in measured}
        assert apart.reduced["cross_validation"] is True
        if bench.name.startswith("permuted"):
            orders = [
                {tuple(t.view.order.tolist()) for t in stream} for stream in (apart, measured)
            ]
            assert not orders[0] & orders[1]
        elif not bench.validation:
            classes = [{c for t in stream for c in t.classes} for stream in (apart, measured)]
            assert not classes[0] & classes[1]


def test_permutations_to_choose_settings_on_do_not_run_out(here, tmp_path, capsys):
    """Three tasks forget little; as many as a run is measured on are as hard, and none of them is
    one of these.
    """
    apart, measured = (
        stream_for(config_for("permuted-digits", "van", tasks=10, cross_validation=held_out))
        for held_out in (True, False)
    )
    orders = [[tuple(t.view.order.tolist()) for t in stream] for stream in (apart, measured)]
    assert len({*orders[0], *orders[1]}) == 20
    arguments = ["--method", "van", "--grid", "lr=0.1,0.03", "--tasks", "10", "--subset", "20"]
    assert "A_10 (%)" in tune(capsys, tmp_path, *arguments).out


def rows_of(part):
    return {row.numpy().tobytes() for row in part.inputs[torch.arange(len(part))]}


@pytest.mark.parametrize("benchmark", ["permuted-digits", "split-digits"])
def test_held_out_digits_are_tested_on_images_that_no_run_is_measured_on(benchmark):
    apart, measured = (
        stream_for(config_for(benchmark, "van", cross_validation=held_out))[0]
        for held_out in (True, False)
    )
    classes = len(measured.classes)
    assert torch.bincount(apart.train.labels).tolist() == [350] * classes
    assert torch.bincount(apart.test.labels).tolist() == [50] * classes
    assert rows_of(apart.test).isdisjoint(rows_of(measured.test) | rows_of(apart.train))
    assert rows_of(apart.test) | rows_of(apart.train) == rows_of(measured.train)


@pytest.mark.parametrize(("count", "unused"), [(5300, 5000), (300, 30)])
def test_held_out_mnist_is_tested_on_images_that_are_never_learned(count, unused, tmp_path):
    write_mnist(tmp_path / "mnist", train=count)
    whole = read_mnist(tmp_path / "mnist").train
    apart = permuted_mnist(1234, data=tmp_path, cross_validation=True)
    for task in apart:
        assert torch.equal(task.test.inputs, whole.images[:unused].flatten(1))
        assert torch.equal(task.test.labels, whole.labels[:unused])
        assert torch.equal(task.train.inputs, whole.images[unused:].flatten(1))


def test_points_that_were_scored_on_the_test_images_count_no_more(tmp_path):
    config = config_for("permuted-digits", "van", cross_validation=True)
    content = {key: value for key, value in config.to_json().items() if key != "validation"}
    older = RunConfig.from_json(content)
    assert older.hash != config.hash
    with pytest.raises(Mistake, match="tune again"):
        check_config(older)
    check_config(config)
    measured = config_for("permuted-digits", "van")
    assert measured.validation is None
    cifar = config_for(
        "split-cifar", "van", cross_validation=True
    )  # its held-out classes are others
    assert cifar.validation is None


def test_the_best_point_comes_first_and_can_be_used(here, tmp_path, capsys):
    found = json.loads(
        tune(capsys, tmp_path, "--method", "van", "--grid", "lr=1e-6,0.1,1e30", "--json").out
    )
    assert [row["settings"] for row in found["rows"]] == [{"lr": "0.1"}, {"lr": "1e-6"}]
    assert found["best"] == {"lr": "0.1"}
    accuracies = [row["metrics"]["A_T"]["mean"] for row in found["rows"]]
    assert accuracies == sorted(accuracies, reverse=True)
    assert {(f["label"], f["seed"]) for f in found["failed"]} == {("van[lr=1e30]", 1234)}
    for row in found["rows"]:
        assert row["published"] is None
        for folder in row["runs"]:
            with open(f"{folder}/record.json") as file:
                record = json.load(file)
            assert [task["name"] for task in record["tasks"]] == [
                f"permutation {n}" for n in (11, 12, 13)
            ]
    text = tune(
        capsys, tmp_path, "--method", "van", "--grid", "lr=1e-6,0.1", "--set", "epochs=1", "--quiet"
    ).out
    lines = text.splitlines()
    assert lines[0] == "van on the held-out tasks of permuted-digits, seed 1234"
    assert lines[1].split() == ["lr", "A_3", "(%)", "F_3", "seconds"]
    assert [line.split()[0] for line in lines[2:4]] == ["0.1", "1e-6"]
    assert lines[-1] == "mdmt run permuted-digits --method van --set epochs=1 --set lr=0.1"


def test_the_command_for_the_best_keeps_the_options(here, tmp_path, capsys):
    printed = tune(
        capsys, tmp_path, "--method", "van", "--grid", "lr=0.1", "--threads", "2", "--tasks", "2"
    ).out
    assert printed.endswith("mdmt run permuted-digits --method van --set lr=0.1 --threads 2\n")


def test_the_command_for_the_best_is_one_that_mdmt_takes(here, tmp_path, capsys, monkeypatch):
    more = ["--keep-model", "--subset", "30", "--set", "batch=5"]
    arguments = ["--method", "van", "--grid", "lr=0.1", *more]
    command = shlex.split(tune(capsys, tmp_path, *arguments).out.splitlines()[-1])
    asked = []
    monkeypatch.setattr("mdmt.cli.run._run_on_ranks", lambda options, *_: asked.append(options))
    assert main(command[1:]) == 0
    assert asked[0].keep_model
    assert (asked[0].subset, asked[0].set, asked[0].seeds) == (30, ["batch=5", "lr=0.1"], 1)


def test_the_fingerprint_of_the_data_is_taken_once(tmp_path, capsys, monkeypatch):
    write_awa(tmp_path / "data")
    taken = []

    def take(data):
        taken.append(data)
        return 64 * "a"

    bench = replace(benchmarks.BENCHMARKS["split-awa"], fingerprint=take)
    monkeypatch.setitem(benchmarks.BENCHMARKS, "split-awa", bench)
    asked = []

    def run_nothing(configs, _):
        asked.extend(configs)
        return [None] * len(configs), []

    monkeypatch.setattr("mdmt.cli.tune.run_all_with_progress", run_nothing)
    arguments = ["--data", str(tmp_path / "data"), "--grid", "lr=0.1,0.2,0.3", "--quiet"]
    assert main(["tune", "split-awa", *arguments]) == 2
    assert len(taken) == 1
    assert [config.fingerprint for (config,) in asked] == 3 * [64 * "a"]


def test_points_are_the_product_or_drawn_from_it(here, tmp_path, capsys):
    arguments = ["--method", "ewc", "--grid", "lr=0.01,0.1", "--grid", "strength=1,10", "--json"]
    whole = json.loads(tune(capsys, tmp_path, *arguments).out)["rows"]
    points = {(row["settings"]["lr"], row["settings"]["strength"]) for row in whole}
    assert points == {("0.01", "1"), ("0.01", "10"), ("0.1", "1"), ("0.1", "10")}
    some = json.loads(tune(capsys, tmp_path, *arguments, "--points", "2").out)["rows"]
    assert len(some) == 2
    assert some == json.loads(tune(capsys, tmp_path, *arguments, "--points", "2").out)["rows"]
    alone = json.loads(
        tune(
            capsys, tmp_path, "--method", "ewc", "--grid", "strength", "--points", "1", "--json"
        ).out
    )
    assert {row["settings"]["strength"] for row in alone["rows"]} <= set(
        SPACES["ewc"]["strength"].value
    )


def test_points_are_drawn_evenly():
    grids = {"lr": (0.05, 0.1, 0.2, 0.4), "strength": (1, 3, 10, 30, 100, 300)}
    for seed in range(20):
        points = points_of(grids, 12, seed)
        assert len({tuple(point.values()) for point in points}) == 12
        for key, values in grids.items():
            found = [sum(point[key] == value for point in points) for value in values]
            assert max(found) - min(found) <= 2, (key, found)
    assert points_of(grids, 12, 1) == points_of(grids, 12, 1) != points_of(grids, 12, 2)


def test_a_point_that_lacks_a_seed_is_not_the_best():
    from mdmt.experiments.tune import ranked
    from mdmt.runs.rows import mean_std

    rows = [
        some_row(seeds=[1], metrics={"A_T": mean_std([0.9])}),
        None,
        some_row(seeds=[1, 2], metrics={"A_T": mean_std([0.5, 0.5])}),
    ]
    found = ranked(rows, [{"lr": 1}, {"lr": 2}, {"lr": 3}], seeds=2)
    assert [row.settings["lr"] for row in found] == [3, 1]
    assert list(found[0].to_json())[:2] == ["settings", "benchmark"]


def test_workers_do_the_runs_and_finished_ones_are_read(tmp_path, capsys):
    arguments = ["--method", "van", "--grid", "lr=0.1", "--tasks", "1", "--workers", "1"]
    out, err = tune(capsys, tmp_path, *arguments)
    assert "1 point x 1 seed on 1 held-out task;" in err
    assert "started" in err
    again = tune(capsys, tmp_path, *arguments)
    assert again.out == out
    assert "started" not in again.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["folder", "--data", "x"],
            "folder has no held-out tasks to choose settings on; these have: permuted-digits",
        ),
        (
            ["--method", "van", "--grid", "strength=1"],
            "setting 'strength' is unknown; van on permuted-digits takes answer, augment, average",
        ),
        (
            ["--grid", "nothing"],
            "--grid nothing: write it as key=a,b,c, or one of class_margin, scale alone",
        ),
        (["--grid", "lr="], "--grid lr=: write it as key=a,b,c"),
        (["--grid", "lr=0.1", "--set", "lr=0.2"], "lr is set to one value already"),
        (["--grid", "lr=x"], "lr=x: must be a number"),
        (["--tasks", "991"], "tasks=991: permuted-digits takes 1 to 990 held-out ones"),
        (["split-digits", "--tasks", "6"], "tasks=6: split-digits takes 1 to 5 held-out ones"),
        (["--workers", "0", "--grid", "lr=0.1"], "--workers 0"),
        (
            ["--checkpoint-every", "x", "--grid", "lr=0.1,0.2"],
            "mdmt: checkpoint-every x: must be a number of steps",
        ),
    ],
)
def test_mistakes_are_one_line(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["tune", *arguments, "--quiet"]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_every_method_has_a_grid_of_settings_that_it_takes():
    assert set(SPACES) == set(METHODS)
    for name, cells in SPACES.items():
        for key, cell in cells.items():
            for value in cell.value:
                config_for("permuted-mnist", name, settings={key: value})
            assert cell.source == ("published" if name == "mdmt-r" else "ours")
    published = {key: list(cell.value) for key, cell in SPACES["mdmt-r"].items()}
    assert published["task_margin"] == [0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5]
    assert published["class_margin"] == [0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09, 0.1]
    assert published["scale"] == [12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64]


def test_configs_from_before_keep_their_folder():
    config = config_for("permuted-digits", "van")
    older = RunConfig.from_json(
        {k: v for k, v in config.to_json().items() if k != "cross_validation"}
    )
    assert config.hash == older.hash
    assert (
        config_for("permuted-digits", "van", tasks=3).hash
        != config_for("permuted-digits", "van", cross_validation=True).hash
    )


def load_script():
    """bench/tune_digits.py as a module."""
    path = Path(__file__).parents[2] / "bench" / "tune_digits.py"
    spec = importlib.util.spec_from_file_location("tune_digits", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_the_digits_are_tuned_with_equal_effort_and_the_choices_are_the_presets(
    here, tmp_path, monkeypatch
):
    file = tmp_path / "tuned-permuted-digits.json"
    chosen = tmp_path / "presets.json"
    places = {"--out": tmp_path / "runs", "--records": tmp_path, "--presets": chosen}
    arguments = [str(part) for place in places.items() for part in place]
    arguments += ["--trials", "2", "--seeds", "2"]
    arguments += ["--benchmarks", "permuted-digits", "--methods", "van", "er", "ewc"]
    chosen.write_text('{"split-digits": {"van": {"lr": 7.0}}}')
    load_script().main(arguments)
    record = json.loads(file.read_text())
    assert record["command"] == shlex.join(["python", "bench/tune_digits.py", *arguments])
    assert record["seeds"] == [2001, 2002]
    entries = record["methods"]
    assert list(entries) == ["van", "er", "ewc"]
    for method, entry in entries.items():
        assert len(entry["tried"]) == 2
        best = max(entry["tried"], key=lambda trial: trial["A_T"]["mean"])
        assert entry["chosen"] == best["settings"]
        assert set(entry["chosen"]) == set(entry["space"])
        assert entry["fixed"] == ({"reading": "code"} if method == "er" else {})
    assert set(entries["ewc"]["space"]) == {"lr", "strength"}
    assert set(entries["er"]["space"]) == {"lr", "reference_batch"}
    assert json.loads(chosen.read_text())["split-digits"] == {"van": {"lr": 7.0}}

    runs = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("record.json")}
    assert len(runs) == 3 * 2 * 2  # methods, points, seeds
    content = file.read_bytes()
    file.unlink()
    load_script().main(arguments)
    assert file.read_bytes() == content  # from the finished runs
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("record.json")} == runs

    monkeypatch.setattr(presets, "DIGITS", chosen)
    presets.digits_presets.cache_clear()
    try:
        config = config_for("permuted-digits", "er")
        assert config.arguments["reference_batch"] == entries["er"]["chosen"]["reference_batch"]
        assert config.lr == entries["er"]["chosen"]["lr"]
        assert presets.preset_cells("permuted-digits", "er")["lr"].source == "ours"
        assert config_for("permuted-mnist", "er").arguments["reading"] == "code"
    finally:
        presets.digits_presets.cache_clear()


def record_of(script, benchmark):
    return json.loads((script.RESULTS / f"tuned-{benchmark}.json").read_text())


@pytest.mark.parametrize("benchmark", ["permuted-digits", "split-digits"])
def test_the_presets_of_the_digits_are_the_best_of_their_trials(benchmark):
    script = load_script()
    record = record_of(script, benchmark)
    assert record["seeds"] == list(script.SEEDS)
    assert list(record["methods"]) == list(METHODS)
    for method, entry in record["methods"].items():
        earlier, diverged = record["earlier"].get(method, []), script.DIVERGED.get(method, [])
        trials = [one for one in entry["tried"] + earlier if one["settings"] not in diverged]
        finished = [trial for trial in trials if trial["seeds"] == record["seeds"]]
        best = max(finished, key=lambda trial: trial["A_T"]["mean"])
        config = config_for(benchmark, method)
        for key, value in best["settings"].items():
            assert getattr(config, key, config.arguments.get(key)) == value
        again = script.with_earlier(entry, earlier, diverged)
        assert (entry["chosen"], entry["at_edge"]) == (again["chosen"], again["at_edge"])
    if benchmark == "split-digits":
        betas = [trial["settings"]["beta"] for trial in record["methods"]["mer"]["tried"]]
        assert max(betas) < 1  # with 1 it would be plain replay


def test_the_presets_are_those_of_the_records():
    script = load_script()
    chosen = {name: script.chosen_in(record_of(script, name)) for name in script.BENCHMARKS}
    assert presets.DIGITS.read_text() == script.presets_text(chosen)


@pytest.mark.parametrize("benchmark", ["permuted-digits", "split-digits"])
def test_methods_with_as_many_settings_have_as_many_trials_and_all_rehearse_alike(benchmark):
    script = load_script()
    spaces = {
        method: script.space_of(method, benchmark, benchmarks.find(benchmark).heads[0])
        for method in METHODS
    }
    assert {m: script.trials_of(space) for m, space in spaces.items()} == {
        m: 24 if m in ("mer", "mdmt-r", "der++") else 12 for m in METHODS
    }
    for space in spaces.values():
        assert math.prod(map(len, space.values())) >= script.trials_of(space)
    replay = {
        m: space["reference_batch"] for m, space in spaces.items() if "reference_batch" in space
    }
    assert set(replay) == {"a-gem", "er", "mega", "mdmt-r", "der++", "er-ace"}
    assert len(set(replay.values())) == 1
    assert max(spaces["mer"]["beta"]) < 1  # 1 would be plain replay
    assert not set(script.SEEDS) & set(range(1234, 1334))


def test_trials_of_an_earlier_search_count_too():
    def trial(lr, accuracy, seeds):
        return {"settings": {"lr": lr}, "A_T": {"mean": accuracy}, "seeds": seeds}

    script = load_script()
    entry = {"tried": [trial(0.2, 0.8, [1, 2]), trial(0.4, 0.95, [1])], "chosen": {"lr": 0.2}}
    alone = script.with_earlier(entry, [])
    assert (alone["chosen"], alone["at_edge"]) == ({"lr": 0.2}, ["lr"])
    both = script.with_earlier(entry, [trial(0.3, 0.9, [1, 2]), trial(0.1, 0.7, [1, 2])])
    assert (both["chosen"], both["at_edge"]) == ({"lr": 0.3}, [])
    assert both["tried"] == entry["tried"]
    stable = script.with_earlier(entry, [trial(0.3, 0.9, [1, 2])], [{"lr": 0.3}])
    assert stable["chosen"] == {"lr": 0.2}


def test_a_space_of_fewer_points_than_trials_is_refused():
    with pytest.raises(Mistake, match="its space has 1 points, fewer than 2 trials"):
        choose(RunRequest("permuted-digits", "van"), {}, {"lr": (0.1,)}, trials=2, out="")


def test_settings_can_be_chosen_by_the_answer_without_the_task(tmp_path):
    file = tmp_path / "tuned-split-digits-without-task.json"
    places = ["--out", str(tmp_path / "runs"), "--records", str(tmp_path)]
    before = presets.DIGITS.read_bytes()
    small = ["--methods", "joint", "--trials", "3", "--seeds", "1", "--subset", "40"]
    load_script().main(["--without-task", *places, *small])
    assert presets.DIGITS.read_bytes() == before
    entry = json.loads(file.read_text())["methods"]["joint"]
    assert entry["fixed"] == {"heads": "shared"}
    found = [trial["A_free"]["mean"] for trial in entry["tried"]]
    assert found == sorted(found, reverse=True)
    assert entry["chosen"] == entry["tried"][0]["settings"]


def test_only_the_best_points_of_the_first_seed_are_tried_on_the_others(tmp_path, here):
    request = RunRequest("permuted-digits", "van", tasks=1, subset=20, seeds=2)
    space = {"lr": (1e-6, 0.03, 0.1, 1e30)}
    found = choose(request, {}, space, trials=4, out=str(tmp_path), finalists=2)
    assert [(t["settings"]["lr"], len(t["seeds"])) for t in found.tried[2:]] == [
        (1e-6, 1),
        (1e30, 0),
    ]
    assert {t["settings"]["lr"] for t in found.tried[:2]} == {0.03, 0.1}
    assert all(t["seeds"] == [1234, 1235] for t in found.tried[:2])
    assert found.chosen == found.tried[0]["settings"]


def test_the_best_point_depends_on_the_metric():
    from mdmt.experiments.tune import ranked
    from mdmt.metrics import A_FREE
    from mdmt.runs.rows import mean_std

    rows = [
        some_row(seeds=[1], metrics={"A_T": mean_std([a]), "A_free": mean_std([free])})
        for a, free in ((0.9, 0.2), (0.8, 0.7))
    ]
    points = [{"lr": 1}, {"lr": 2}]
    assert [row.settings["lr"] for row in ranked(rows, points, 1)] == [1, 2]
    assert [row.settings["lr"] for row in ranked(rows, points, 1, A_FREE)] == [2, 1]
