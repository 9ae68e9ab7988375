"""The time from a stream's files to the first step, and the memory for decoding many images.

    python bench/data.py [--data DIR] [--images 100000]

The first part needs MNIST and CIFAR-100 in DIR (or $MDMT_DATA). Each measurement has a process of
its own, and its second run counts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FIRST_STEP = """
import time
start = time.perf_counter()
import torch
torch.set_num_threads(1)
import mdmt
from mdmt.benchmarks.{module} import {module} as make
imported = time.perf_counter()
stream = make(1234, data={data!r})
loaded = time.perf_counter()
def stop(learner):
    now = time.perf_counter()
    print(f"{{now - imported:5.2f}} s to the first step (stream {{loaded - imported:.2f}} s), "
          f"{{now - start:.2f}} s with the imports")
    raise SystemExit
learner = mdmt.Learner(mdmt.backbones.{backbone}, mdmt.VAN(), lr=0.03)
learner.run(stream, on_step=stop)
"""
CACHE = """
import resource, sys, time
from pathlib import Path
from mdmt.data.images import load_images
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
paths = sorted(Path(sys.argv[1]).iterdir())[: int(sys.argv[2])]
before, start = peak(), time.perf_counter()
load_images(paths, 32, cache=sys.argv[3])
took = time.perf_counter() - start
print(f"{len(paths):7,} images in {took:5.1f} s, {len(paths) / took:6.0f} a second; "
      f"peak memory {peak():.0f} MiB, {before:.0f} before")
"""


def run(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def first_steps(data: str) -> None:
    for module, backbone in (("permuted_mnist", "mlp(784)"), ("split_cifar", "reduced_resnet18()")):
        code = FIRST_STEP.format(module=module, backbone=backbone, data=data)
        run(code)
        print(f"{module:16}", run(code))


def many_images(count: int) -> None:
    import numpy as np
    from PIL import Image

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "images")
        folder.mkdir()
        random = np.random.default_rng(0)
        for number in range(count):
            pixels = random.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).resize((48, 48)).save(folder / f"{number:07d}.jpg")
        for some in (count // 10, count):
            print(run(CACHE, str(folder), str(some), str(Path(place, "cache"))))


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--data", default=os.environ.get("MDMT_DATA"))
    asked.add_argument("--images", type=int, default=20_000)
    given = asked.parse_args()
    if given.data:
        first_steps(given.data)
    many_images(given.images)
