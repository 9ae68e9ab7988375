"""Files of numbers from anybody: what a header claims is not what is allocated."""

import io
import tracemalloc
import zipfile

import numpy as np
import pytest

import mdmt.inputs.files as files
from mdmt.errors import Mistake
from mdmt.inputs.files import read_csv, read_npy, read_npz
from support.helpers import mistake


def header(shape, kind="<f4", version=1):
    """The beginning of an .npy file."""
    text = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode()
    size = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + text


def packed(path, content, how=zipfile.ZIP_DEFLATED, name="x.npy"):
    with zipfile.ZipFile(path, "w", how) as archive:
        archive.writestr(name, content)
    return path


def peak(call):
    """The most bytes that Python had at a time during a call that is refused."""
    tracemalloc.start()
    try:
        with pytest.raises(Mistake) as raised:
            call()
        assert "\n" not in str(raised.value)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", [(10**12, 4), (10**9, 4), (2**62, 2**62), (-1, 4)])
def test_a_header_that_promises_rows_allocates_none(tmp_path, shape):
    path = tmp_path / "x.npy"
    path.write_bytes(header(shape) + bytes(100))
    assert peak(lambda: read_npy(path)) < 10**6
    for how in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        place = packed(tmp_path / "x.npz", header(shape) + bytes(100), how)
        assert peak(lambda: read_npz(place)["x"].read()) < 10**6  # noqa: B023


def test_a_member_that_claims_its_size_is_not_believed(tmp_path):
    """Header and directory agree on four gigabytes, and the file has a kilobyte."""
    content = header((10**9,)) + bytes(1000)
    path = packed(tmp_path / "x.npz", content, zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    place = data.index(b"PK\x01\x02")
    data[place + 20 : place + 28] = 2 * (4 * 10**9 + 118).to_bytes(4, "little")
    path.write_bytes(data)
    assert peak(lambda: read_npz(path)["x"].read()) < 10**6


def test_more_than_the_machine_has_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "machine_memory", lambda: 10**6)
    path = packed(tmp_path / "x.npz", header((500_000,)) + bytes(2 * 10**6))
    line = mistake(read_npz(path)["x"].read)
    assert line == f"{path} does not fit: it needs 2.0 MB, this machine has 1.0 MB"


def test_arrays_are_read(tmp_path):
    arrays = {
        "x": np.arange(6.0).reshape(2, 3),
        "f": np.asfortranarray(np.arange(6, dtype=np.uint8).reshape(2, 3)),
        "y": np.array(["owl", "kite"]),
        "none": np.empty((0, 4), np.float32),
        "big": np.arange(3, dtype=">i8"),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", **arrays)
        content = read_npz(tmp_path / "a.npz")
        assert list(content) == list(arrays)
        for name, array in arrays.items():
            found = content[name].read()
            assert found.dtype == array.dtype
            np.testing.assert_array_equal(found, array)
    np.save(tmp_path / "x.npy", arrays["x"])
    np.testing.assert_array_equal(read_npy(tmp_path / "x.npy"), arrays["x"])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04",
        b"\x93NUMPY\x09\x00",
        header((2,), "O") + bytes(16),
        header((2,), version=2)[:-1] + b"\x00",
        b"\x93NUMPY\x01\x00\x10\x00" + b"(" * 16,
        b"\x80\x04N.",
    ],
)
def test_what_is_no_array_is_one_line(tmp_path, content):
    (tmp_path / "x.npy").write_bytes(content)
    assert mistake(read_npy, tmp_path / "x.npy").startswith(str(tmp_path / "x.npy"))
    packed(tmp_path / "x.npz", content)
    assert mistake(read_npz(tmp_path / "x.npz")["x"].read).startswith(str(tmp_path / "x.npz"))
    (tmp_path / "x.npz").write_bytes(content)
    assert mistake(read_npz, tmp_path / "x.npz").startswith(str(tmp_path / "x.npz"))


def test_several_arrays_are_no_npy(tmp_path):
    buffer = io.BytesIO()
    np.savez(buffer, x=np.zeros(3))
    (tmp_path / "x.npy").write_bytes(buffer.getvalue())
    assert "x.npy cannot be read: " in mistake(read_npy, tmp_path / "x.npy")


@pytest.mark.parametrize("content", [b"a,b\n\xff\xfe,1\n", b'a\n"' + b"x" * 200_000 + b'"\n'])
def test_tables_that_cannot_be_read_are_one_line(tmp_path, content):
    (tmp_path / "t.csv").write_bytes(content)
    assert mistake(read_csv, tmp_path / "t.csv").startswith(f"{tmp_path}/t.csv cannot be read")
