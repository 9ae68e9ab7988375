"""Foreign pickles: plain values are read, and no code is run."""

import os
import pickle
import tracemalloc
from contextlib import suppress

import numpy as np
import pytest

import mdmt.data.pickles as pickles
from mdmt.data.fetch import fetch
from mdmt.data.pickles import read_pickle
from mdmt.data.verify import verify
from mdmt.errors import Mistake
from support.publisher import cifar, tar


class Runs:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(3, 6))
def test_a_pickle_that_runs_code_does_not(protocol, tmp_path, publish, server):
    (tmp_path / "evil").write_bytes(pickle.dumps({b"data": Runs(tmp_path / "ran")}, protocol))
    with pytest.raises(ValueError, match=r"evil is damaged or unsafe: .*\(posix.mkdir\)"):
        read_pickle(tmp_path / "evil")
    files = cifar() | {"cifar-100-python/train": (tmp_path / "evil").read_bytes()}
    publish("cifar100", tar(files))
    fetch("cifar100", tmp_path, base=server.url)
    with pytest.raises(ValueError, match=r"wrong structure: .*train is damaged or unsafe"):
        verify("cifar100", tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("protocol", range(2, 6))
def test_plain_pickles_are_read(protocol, tmp_path):
    arrays = [np.arange(6, dtype=d).reshape(2, 3) for d in ("u1", "<i8", ">f4")] + [
        np.asfortranarray(np.eye(3, 4))
    ]
    content = {"a": arrays, "t": (1, 2.5, None, True, "text"), "same": arrays[0]}
    if protocol > 2:
        content["b"] = b"bytes"
        (tmp_path / "p").write_bytes(pickle.dumps(content, protocol))
    else:  # as Python 2 wrote it: strings are bytes
        (tmp_path / "p").write_bytes(_python2(arrays[0]))
        content = arrays[0]
    found = read_pickle(tmp_path / "p")
    if protocol == 2:
        assert found.flags.writeable
        np.testing.assert_array_equal(found, content)
        return
    for mine, theirs in zip(found["a"], arrays, strict=True):
        assert type(mine) is np.ndarray
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)
    assert {k: v for k, v in found.items() if k in "tb"} == {
        k: v for k, v in content.items() if k in "tb"
    }
    assert found["same"] is found["a"][0]


def _python2(array):
    return (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01K\x02K\x03\x86"
        b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x06"
        + array.tobytes()
        + b"tb."
    )


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(np.array([Runs("x")], object)), pickle.dumps({1, 2}), pickle.dumps(np.dtype("u1")),
        pickle.dumps(np.ndarray), pickle.dumps(np.float64(1)), pickle.dumps(np.zeros(3))[:-9], b"", b"no pickle",
        pickle.dumps(np.arange(6, dtype="u1"), 3).replace(b"K\x06\x85", b"K\x07\x85"),
        pickle.dumps(np.arange(6, dtype="u1"), 3).replace(b"K\x06\x85", b"J\xff\xff\xff\xff\x85"), b"\x80\x02]q\x00h\x07.",
    ],
    ids=lambda _: "pickle",
)  # fmt: skip
def test_other_pickles_are_refused(content, tmp_path):
    (tmp_path / "p").write_bytes(content)
    with pytest.raises(
        ValueError, match=r"p is damaged or unsafe: only arrays and plain values are read"
    ):
        read_pickle(tmp_path / "p")


def test_a_pickle_that_holds_itself_or_doubles(tmp_path):
    loop = []
    loop.append(loop)
    (tmp_path / "p").write_bytes(pickle.dumps(loop))
    found = read_pickle(tmp_path / "p")
    assert found[0] is found
    for _ in range(60):
        loop = [loop, loop]
    (tmp_path / "p").write_bytes(pickle.dumps(loop))
    assert len(read_pickle(tmp_path / "p")) == 2


def test_the_pickle_of_python_2_and_an_old_numpy(tmp_path):
    """The published file has the byte strings of Python 2 and the old name of numpy's function."""
    kind = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    state = b"(K\x01K\x02\x85" + kind + b"\x89U\x02\x07\x09t"
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        + state
        + b"b"
    )
    (tmp_path / "old").write_bytes(b"\x80\x02}U\x04data" + array + b"s.")
    assert read_pickle(tmp_path / "old")[b"data"].tolist() == [7, 9]


def peak(call, *arguments):
    """The most bytes that Python had at a time during a call, which may be refused."""
    tracemalloc.start()
    try:
        with suppress(Mistake):
            call(*arguments)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02Nr\xff\xff\xff\x0f.",  # LONG_BINPUT: a table of 2^29 entries
        b"\x80\x05\x96" + (2**40).to_bytes(8, "little") + b".",  # BYTEARRAY8
        b"\x80\x04\x8e" + (2**40).to_bytes(8, "little") + b".",  # BINBYTES8
        b"\x80\x04\x95" + (2**40).to_bytes(8, "little") + b"N.",  # FRAME
        b"\x80\x02T\xff\xff\xff\x7f.",  # BINSTRING
    ],
    ids=["memo", "bytearray", "bytes", "frame", "string"],
)
def test_a_pickle_takes_no_more_memory_than_its_file_justifies(content, tmp_path):
    (tmp_path / "p").write_bytes(content)
    assert peak(read_pickle, tmp_path / "p") < 10**6


def test_one_string_of_bytes_does_not_become_many_arrays(tmp_path):
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    kind = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87Rq\x02"
    data = b"T" + (10**5).to_bytes(4, "little") + bytes(10**5) + b"q\x01"
    first = (
        array + b"(K\x01J" + (10**5).to_bytes(4, "little") + b"\x85" + kind + b"\x89" + data + b"tb"
    )
    again = array + b"(K\x01J" + (10**5).to_bytes(4, "little") + b"\x85h\x02\x89h\x01tb"
    (tmp_path / "p").write_bytes(b"\x80\x02](" + first + 1000 * again + b"e.")
    assert peak(read_pickle, tmp_path / "p") < 5 * 10**6


def test_a_pickle_does_not_change_the_stand_ins(tmp_path):
    """A BUILD on the name of a function would set attributes that later pickles see."""
    function = b"cnumpy.core.multiarray\n_reconstruct\n"
    (tmp_path / "p").write_bytes(b"\x80\x02" + function + b"}U\x04nameK\x01sb.")
    with pytest.raises(Mistake, match="a state for something that has none"):
        read_pickle(tmp_path / "p")
    assert not vars(pickles._reconstruct)
