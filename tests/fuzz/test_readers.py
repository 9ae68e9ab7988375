"""No reader crashes on changed files: it reads them, or says in one line what is wrong.

`run.py` does the same by hand, and as often as one likes.
"""

import gc
import io
import tarfile
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fuzz.changes as changes
import fuzz.readers as readers

NUMBERS = st.integers(0, 2**24 - 1)
CHANGES = st.lists(st.tuples(st.sampled_from(changes.KINDS), NUMBERS, NUMBERS), max_size=8)
EXAMPLES = 500  # of a fast reader; all of them together take about a minute
SLOW_EXAMPLES = 40


def tar_with_a_long_number():
    """The length of an entry in an extended header has more digits than any file."""
    data = b"9" * 25 + b" path=a\n"
    header = tarfile.TarInfo("header")
    header.type, header.size = tarfile.XHDTYPE, len(data)
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(header, io.BytesIO(data))
        archive.addfile(tarfile.TarInfo("a.txt"))
    return file.getvalue()


def zip_with_two_names():
    """The name in front of a file is not UTF-8, which the list at the end says that it is."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("é.txt", b"x")
    return file.getvalue().replace("é".encode(), b"\xbb\xbb", 1)


# What once crashed a reader: bytes, or a change to one of its examples.
CASES = {
    "cache": [b"[" * 3000, b'{"broken": {}, "enlarged": [1e999]}'],
    "csv": [b"x,c\n1,\xff\n", b'"x\nz",c\n1,2\n', (1, ("replace", 5, 27))],
    "npz": [(0, ("token", 500, 0)), (1, ("token", 400, 0))],
    "request": [b"Infinity", b'{"inputs": "\\ud800"}'],
    "snapshots": [(0, ("flip", 856, 1))],
    "tar": [tar_with_a_long_number()],
    "zip": [
        zip_with_two_names(),
        (1, ("token", 205, 0)),
        (2, ("flip", 112, 7)),
        (2, ("flip", 98, 3)),
    ],
}


@pytest.fixture(scope="module", autouse=True)
def cleaned():
    yield
    readers.clean()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize("name", readers.READERS)
def test_whole_examples_are_read(name, place):
    for example in readers.READERS[name].examples():
        assert readers.attempt(name, example, place)
        gc.collect()  # a file that stays open is a warning, which is an error here


@pytest.mark.parametrize("name", CASES)
def test_what_crashed_once(name, place):
    examples = readers.READERS[name].examples()
    for case in CASES[name]:
        data = case if isinstance(case, bytes) else changes.apply(examples[case[0]], [case[1]])
        readers.attempt(name, data, place)


@pytest.mark.long
@pytest.mark.parametrize("name", readers.READERS)
def test_changed_examples_are_read_or_refused(name, place):
    examples = readers.READERS[name].examples()
    many = SLOW_EXAMPLES if readers.READERS[name].slow else EXAMPLES

    @settings(
        max_examples=many,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from(examples), CHANGES)
    def attempt(example, made):
        readers.attempt(name, changes.apply(example, made), place)

    attempt()
