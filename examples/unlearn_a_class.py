"""A class must go: from the memory, from every version, and from the weights.

python examples/unlearn_a_class.py [FOLDER OF THE MODEL]
"""

import sys
import tempfile
from pathlib import Path

import mdmt
from mdmt.benchmarks.digits import digits

folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
data = digits()
model = mdmt.LivingModel(folder)
for name, classes in (("first", [0, 1, 2]), ("second", [3, 4])):
    chosen = sum(data.train.labels == c for c in classes).bool()
    model.learn((data.train.images[chosen], data.train.labels[chosen]), name=name)
threes = data.train.images[data.train.labels == 3]


def traces() -> int:
    """Count the threes of which the folder holds every byte."""
    held = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    return sum(image.numpy().tobytes() in held for image in threes)


print(f"before: classes {model.classes}, {traces()} threes in the folder")
removal = model.forget(classes=[3], rebuild=True)
print(f"removed {removal.examples} examples and the versions {removal.versions}")
print(f"after: classes {model.classes}, {traces()} threes in the folder")
print(f"accuracy on what is held back: {removal.before:.3f} before, {removal.after:.3f} now")
