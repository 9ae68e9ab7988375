"""Files that are replaced as a whole or not at all."""

import os

import pytest

from mdmt.errors import Mistake
from mdmt.system.files import new_file, remove_leftovers, write_file


def test_an_error_inside_the_block_keeps_the_previous_file(tmp_path):
    path = tmp_path / "pixels"
    write_file(path, b"old")

    def stop_halfway():
        with new_file(path) as file:
            file.write(b"new, but not com")
            raise KeyError

    with pytest.raises(KeyError):
        stop_halfway()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_reader_sees_the_old_file_until_the_block_ends(tmp_path):
    path = tmp_path / "pixels"
    write_file(path, b"old")
    with new_file(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_leftovers_of_other_files_stay(tmp_path):
    own = tmp_path / ".pixels.12.tmp"
    other = tmp_path / ".labels.12.tmp"
    for path in (own, other):
        path.write_bytes(b"half")
    remove_leftovers(tmp_path / "pixels")
    assert list(tmp_path.iterdir()) == [other]


def test_a_pipe_or_a_device_is_not_replaced(tmp_path):
    """As in --out /dev/null, which would be an ordinary file afterwards."""
    place = tmp_path / "pipe"
    os.mkfifo(place)
    (tmp_path / "link").symlink_to(place)
    for path in (place, tmp_path / "link"):
        with pytest.raises(Mistake, match="is no ordinary file"):
            write_file(path, b"x")
    assert place.is_fifo()
    assert (tmp_path / "link").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe"]
