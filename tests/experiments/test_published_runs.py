"""The published benchmarks through the command line, on small files in their publishers' formats,
and ImageNet weights.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from mdmt import backbones, benchmarks
from mdmt.cli.app import main
from mdmt.data.sources import IMAGENET_RESNET18
from mdmt.experiments.resolve import check_config, reduced, stream_for
from mdmt.experiments.run import learner_for, run
from mdmt.network.first_weights import load_imagenet
from support.configs import config_for
from support.formats import write_awa, write_cifar, write_cub, write_mnist
from support.helpers import mistake


def ran(capsys, *arguments):
    assert main(["run", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def imagenet(path, width=64):
    """A file like torchvision's resnet18, of random numbers."""
    generator, state = torch.Generator().manual_seed(4), {}

    def draw(name, *shape):
        state[name] = torch.randn(*shape, generator=generator)

    draw("conv1.weight", width, 3, 7, 7)
    norms = [("bn1", width)]
    inputs = width
    for stage in range(4):
        outputs = width * 2**stage
        for block in range(2):
            name = f"layer{stage + 1}.{block}"
            draw(f"{name}.conv1.weight", outputs, inputs, 3, 3)
            draw(f"{name}.conv2.weight", outputs, outputs, 3, 3)
            norms += [(f"{name}.bn1", outputs), (f"{name}.bn2", outputs)]
            if inputs != outputs:
                draw(f"{name}.downsample.0.weight", outputs, inputs, 1, 1)
                norms.append((f"{name}.downsample.1", outputs))
            inputs = outputs
    for name, size in norms:
        for part in ("weight", "bias", "running_mean", "running_var"):
            draw(f"{name}.{part}", size)
        state[f"{name}.running_var"] = state[f"{name}.running_var"].abs() + 0.5
    draw("fc.weight", 1000, inputs)
    torch.save(state, path)
    return state


def test_permuted_mnist_and_split_cifar_run(tmp_path, capsys):
    write_mnist(tmp_path / "mnist", 5040, 30)
    write_cifar(tmp_path / "cifar-100-python")
    common = [
        "--tasks",
        "2",
        "--data",
        str(tmp_path),
        "--out",
        str(tmp_path / "runs"),
        "--set",
        "reference_batch=8",
    ]
    result = ran(capsys, "permuted-mnist", *common)
    assert result["reduced"] == {"tasks": 2, "images": "substitute images", "reference_batch": 8}
    assert result["published"] is None
    result = ran(capsys, "split-cifar", "--subset", "5", *common)
    assert result["reduced"]["subset"] == 5


class Interrupted(Exception):
    """Ends a run in the middle of a task."""


def test_the_published_stream_is_that_of_seed_1234_with_every_seed(tmp_path):
    write_mnist(tmp_path / "mnist", 5040, 30)
    options = {"tasks": 2, "data": str(tmp_path)}

    def done(method, seed, **more):
        return run(config_for("permuted-mnist", method, seed=seed, **options), tmp_path, **more)

    def batches(method, seed):
        """The inputs of all mini-batches."""
        seen = []
        config = config_for("permuted-mnist", method, seed=seed, **options)
        learner = learner_for(config)
        step = learner.step
        learner.step = lambda batch: (seen.append(batch), step(batch))
        stream = stream_for(config)
        learner.run(stream)
        return torch.stack([batch.inputs for batch in seen]), stream

    theirs = "mdmt-r[reference_batch=8,stream=published]"
    own = "mdmt-r[reference_batch=8]"
    first, stream = batches(theirs, 1235)
    assert torch.equal(first, batches(theirs, 1234)[0])
    assert not torch.equal(first, batches(own, 1234)[0])
    weights = {done(method, 1235).weights_sha256 for method in (theirs, own)}
    assert len(weights | {done(theirs, 1234).weights_sha256}) == 3

    # As the programs draw them: 17 permutations, then the order of each task's 40 examples.
    generator = np.random.RandomState(1234)
    permutations = [np.arange(784) for _ in range(17)]
    for permutation in permutations:
        generator.shuffle(permutation)
    images = stream[0].train.inputs[:]
    for number in range(2):
        order = np.arange(40)
        generator.shuffle(order)
        expected = images[order][:, permutations[number]].view(4, 10, 784)
        assert torch.equal(first[4 * number : 4 * number + 4], expected.to(first.dtype))

    def stop(learner):
        if learner.current == 1 and learner.step_in_task == 2:
            raise Interrupted

    whole = done(theirs, 1235)
    with pytest.raises(Interrupted):
        done(theirs, 1235, fresh=True, every=1, on_step=stop)
    assert done(theirs, 1235).weights_sha256 == whole.weights_sha256


def test_only_permuted_mnist_has_one_published_stream():
    line = "stream=published is for permuted-mnist, whose published runs all had one stream; "
    other = config_for("permuted-digits", "van", tasks=2)
    for refused in (
        lambda: config_for("permuted-digits", "van[stream=published]"),
        lambda: check_config(replace(other, stream="published")),
    ):
        assert mistake(refused) == f"{line}permuted-digits has a stream for each seed"
    theirs = config_for("permuted-mnist", "van", settings={"stream": "published"})
    assert theirs.label == "van[stream=published]"
    assert mistake(config_for, "permuted-mnist", "van[stream=mine]") == (
        "stream=mine: must be own or published"
    )


@pytest.mark.parametrize("benchmark", ["split-cub", "split-awa"])
def test_image_benchmarks_run_and_say_how_they_are_reduced(
    benchmark, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("MDMT_CACHE", str(tmp_path / "cache"))
    write_cub(tmp_path / "CUB_200_2011")
    write_awa(tmp_path / "Animals_with_Attributes2")
    common = [
        "--tasks",
        "1",
        "--data",
        str(tmp_path),
        "--out",
        str(tmp_path / "runs"),
        "--image-size",
        "8",
    ]
    result = ran(capsys, benchmark, "--method", "van", "--subset", "10", *common)
    assert result["reduced"]["image_size"] == 8
    assert result["reduced"]["images"] == "substitute images"
    assert ("weights" in result["reduced"]) == (benchmark == "split-cub")


def test_imagenet_weights_are_kernels_and_batch_norm_weights_only(tmp_path):
    state = imagenet(tmp_path / "resnet18.pth")
    net = backbones.resnet18()
    load_imagenet(net, tmp_path / "resnet18.pth", seed=1)
    assert torch.equal(net.conv.weight, state["conv1.weight"])
    assert torch.equal(net.stages[7].norm2.bias, state["layer4.1.bn2.bias"])
    assert net.norm.running_var.abs().max() == 0
    assert net.drawn


@pytest.mark.parametrize("layer", [2, 3, 4])
def test_the_batch_norm_of_imagenets_shortcuts_is_folded_in(layer, tmp_path):
    """With torchvision's statistics in its other batch norms, the block computes what torchvision's
    does.
    """
    state = imagenet(tmp_path / "resnet18.pth")
    net = backbones.resnet18()
    load_imagenet(net, tmp_path / "resnet18.pth", seed=1)
    name = f"layer{layer}.0"
    block = net.stages[2 * layer - 2].eval()
    for norm, theirs in ((block.norm1, "bn1"), (block.norm2, "bn2")):
        norm.eps = 1e-5
        norm.running_mean.copy_(state[f"{name}.{theirs}.running_mean"])
        norm.running_var.copy_(state[f"{name}.{theirs}.running_var"])

    def norm(x, part):
        mean, var, weight, bias = (
            state[f"{name}.{part}.{which}"]
            for which in ("running_mean", "running_var", "weight", "bias")
        )
        return functional.batch_norm(x, mean, var, weight, bias, eps=1e-5)

    x = torch.randn(2, 32 * 2 ** (layer - 1), 9, 9, generator=torch.Generator().manual_seed(7))
    out = functional.conv2d(x, state[f"{name}.conv1.weight"], stride=2, padding=1)
    out = functional.conv2d(norm(out, "bn1").relu(), state[f"{name}.conv2.weight"], padding=1)
    shortcut = functional.conv2d(x, state[f"{name}.downsample.0.weight"], stride=2)
    expected = (norm(out, "bn2") + norm(shortcut, "downsample.1")).relu()
    with torch.no_grad():
        assert torch.allclose(block(x), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("benchmark", "protocol"),
    [("split-cub", "the published checkpoint"), ("split-awa", "from scratch")],
)
def test_weights_from_a_file_are_not_the_protocol(benchmark, protocol):
    """Whatever the file, the published value does not stand beside."""
    stream = benchmarks.make("split-digits")
    config = config_for(benchmark, "van")
    from_file = reduced(replace(config, weights="ab" * 32), stream)
    assert from_file["weights"] == f"file abababababab, not {protocol}"
    torchvisions = reduced(replace(config, weights=IMAGENET_RESNET18.sha256), stream)
    assert torchvisions["weights"] == f"torchvision's, not {protocol}"
    assert ("weights" in reduced(config, stream)) == (benchmark == "split-cub")


def test_files_that_are_no_weights_are_named(tmp_path, capsys):
    imagenet(tmp_path / "narrow.pth", width=8)
    (tmp_path / "text.pth").write_text("hello")
    state = imagenet(tmp_path / "bare.pth")
    torch.save(
        {name: t for name, t in state.items() if "3.0.downsample.1" not in name},
        tmp_path / "bare.pth",
    )
    torch.save({"conv1.weight": torch.zeros(64, 3, 7, 7)}, tmp_path / "part.pth")
    for name, message in (
        ("narrow.pth", "has no 'conv1.weight' of shape (64, 3, 7, 7)"),
        ("part.pth", "has no 'bn1.weight'"),
        ("bare.pth", "has no 'layer3.0.downsample.1' with its statistics"),
        ("text.pth", "is not a state dict of tensors"),
    ):
        with pytest.raises(ValueError) as raised:
            load_imagenet(backbones.resnet18(), tmp_path / name, seed=1)
        assert message in str(raised.value)
    assert main(["run", "split-cub", "--weights", str(tmp_path / "none.pth")]) == 2
    assert "none.pth" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["folder"], "folder needs --data DIR"),
        (
            ["permuted-digits", "--data", "x"],
            "permuted-digits comes with the package: it takes no --data",
        ),
        (["split-cifar", "--image-size", "16"], "image_size=16: split-cifar"),
        (["split-cub", "--image-size", "2"], "split-cub needs 8 or more"),
        (["permuted-mnist", "--weights", "x.pth"], "--weights is for the ResNet-18"),
        (["split-cub", "--tasks", "18"], "tasks=18: split-cub takes 1 to 17"),
        (
            ["split-awa", "--data", "nowhere"],
            "awa2 is not in nowhere: run `mdmt data fetch awa2`, or download https://",
        ),
    ],
)
def test_mistakes_are_one_line(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["run", *arguments]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_a_path_decides_nothing_and_a_subset_does():
    plain = config_for("split-cifar", "er", data="a")
    assert plain.hash == config_for("split-cifar", "er", data="b").hash
    assert plain.hash != config_for("split-cifar", "er", data="a", subset=5).hash


def test_a_folder_of_images_in_one_command(tmp_path, capsys, monkeypatch):
    from PIL import Image

    monkeypatch.setenv("MDMT_CACHE", str(tmp_path / "cache"))
    for task in ("garden", "sea"):
        for number, colour in enumerate(("red", "green", "blue")):
            place = tmp_path / "images" / task / colour
            place.mkdir(parents=True)
            for i in range(10):
                pixel = [0, 0, 0]
                pixel[number] = 200 + 5 * i
                Image.new("RGB", (20, 16), tuple(pixel)).save(place / f"{i}.png")
    result = ran(
        capsys,
        "folder",
        "--data",
        str(tmp_path / "images"),
        "--image-size",
        "8",
        "--out",
        str(tmp_path / "runs"),
        "--set",
        "epochs=8",
    )
    assert result["reduced"] is None
    assert result["metrics"]["A_T"]["mean"] > 0.6


def test_broken_images_of_ones_own_are_named_or_passed_over(tmp_path, capsys, monkeypatch):
    from PIL import Image

    monkeypatch.setenv("MDMT_CACHE", str(tmp_path / "cache"))
    place = tmp_path / "images" / "garden"
    for colour in ("red", "blue"):
        (place / colour).mkdir(parents=True)
        for i in range(6):
            Image.new("RGB", (9, 9), colour).save(place / colour / f"{i}.png")
        (place / colour / "0.png").write_text("hello")
    command = [
        "run",
        "folder",
        "--data",
        str(tmp_path / "images"),
        "--image-size",
        "8",
        "--method",
        "van",
    ]
    command += ["--out", str(tmp_path / "runs"), "--set", "epochs=1", "--quiet"]
    assert main(command) == 2
    err = capsys.readouterr().err
    assert err.startswith("mdmt: 2 images cannot be read: ")
    assert err.count("\n") == 1
    assert main([*command, "--skip-broken"]) == 0
    assert f"2 broken images skipped: {place / 'blue' / '0.png'}, " in capsys.readouterr().err
    assert main(["run", "split-cifar", "--skip-broken"]) == 2
    assert "--skip-broken is for your own images" in capsys.readouterr().err


def test_the_header_does_not_call_a_pretrained_network_untrained():
    config = config_for("split-cub")
    stream = benchmarks.make("permuted-digits", seed=1, tasks=2)
    assert reduced(config, stream)["weights"] == "from scratch, not from ImageNet"
    own = replace(config, backbone={"name": "./net.py:Net", "arguments": {}})
    assert reduced(own, stream)["weights"] == "those that your network brings"
    assert reduced(own, stream)["backbone"] == "./net.py:Net"
