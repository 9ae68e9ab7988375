"""A model gets new digits every month, and never sees the old ones again.

python examples/months_of_deliveries.py [FOLDER OF THE MODEL]
"""

import sys
import tempfile

import torch

import mdmt
from mdmt.benchmarks.digits import digits

MONTHS = {
    "january": [0, 1, 2],  # new classes
    "february": [3, 4],
    "march": [0, 1, 5],  # more of known ones, and a new one
    "april": [6, 7],
    "may": [8],
    "june": [9],
}
PER_CLASS = 100

data = digits()
used = dict.fromkeys(range(10), 0)
model = mdmt.LivingModel(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
for month, classes in MONTHS.items():
    places = []
    for c in classes:
        places.append((data.train.labels == c).nonzero()[used[c] : used[c] + PER_CLASS, 0])
        used[c] += PER_CLASS
    rows = torch.cat(places)
    delivery = (data.train.images[rows], data.train.labels[rows])
    lesson = model.learn(delivery, name=month, memory="400kB", max_forgetting=0.5)
    print(f"{month}: version {lesson.version}, largest loss {lesson.forgot or 0:.3f}")
right = sum(a == b for a, b in zip(model.predict(data.test.images), data.test.labels, strict=True))
print(
    f"accuracy on {len(data.test)} new digits, all classes competing: {right / len(data.test):.3f}"
)
