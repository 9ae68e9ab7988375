"""Archives that must not be unpacked."""

import tarfile
import zipfile

import pytest

from mdmt.data import archives
from mdmt.data.fetch import ensure_unpacked, fetch
from mdmt.data.verify import verify
from support.publisher import awa2, cub, fails, left, tar, zipped


def member(name, kind=tarfile.REGTYPE, target="", size=0):
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, target, size
    return made


def zip_member(name, mode):
    made = zipfile.ZipInfo(name)
    made.create_system, made.external_attr = 3, mode << 16
    return made


def encrypted(content):
    """A zip whose entries say that they are encrypted, in the list at its end."""
    return content.replace(
        b"PK\x01\x02\x14\x03\x14\x00\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01\x00"
    )


class Nameless(zipfile.ZipInfo):
    """Python does not write a member without a name, but others may."""

    def is_dir(self):
        return False


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("cub", tar(cub(), [member("../out", size=3)]), "its member '../out' would be written outside its folder"),
        ("cub", tar(cub(), [member("CUB_200_2011/../../out", size=3)]), "would be written outside its folder"),
        ("cub", tar(cub(), [member("/tmp/out", size=3)]), "its member '/tmp/out' would be written outside"),
        ("cub", tar(cub(), [member("a\\..\\out", size=3)]), "would be written outside its folder"),
        ("cub", tar(cub(), [member("CUB_200_2011/l", tarfile.SYMTYPE, "/etc")]), "'CUB_200_2011/l' is a link"),
        ("cub", tar(cub(), [member("l", tarfile.LNKTYPE, "attributes.txt")]), "its member 'l' is a link"),
        ("cub", tar(cub(), [member("null", tarfile.CHRTYPE)]), "its member 'null' is a device"),
        ("cub", tar(cub(), [member("pipe", tarfile.FIFOTYPE)]), "its member 'pipe' is a device"),
        ("cub", tar(cub(), [member("attributes.txt", size=3)]), "two of its members are called 'attributes.txt'"),
        ("cub", tar(cub(), [member("attributes.txt/x", size=3)]), "two of its members are called"),
        ("cub", tar(cub(), [member("big", size=200_000)]), "it unpacks to more than the published data set"),
        ("cub", tar(cub(), [member("a/" * 2000 + "b", size=3)]), "a...' is too long"),
        ("cub", tar(cub(), [member("a" * 300, size=3)]), "a...' is too long"),
        ("awa2", zipped(awa2(), [(Nameless(""), b"x")]), "a member has no name"),
        ("awa2", zipped(awa2(), [("a" * 300, b"x")]), "a...' is too long"),
        ("cub", tar({"other/file": b""}), "it holds no CUB_200_2011/images"),
        ("cub", tar(cub())[:-200], "is damaged"),
        ("cub", b"<html>Please log in</html>", "is damaged"),
        ("awa2", zipped(awa2(), [("../out", b"x")]), "its member '../out' would be written outside its folder"),
        ("awa2", zipped(awa2(), [("/out", b"x")]), "its member '/out' would be written outside its folder"),
        ("awa2", zipped(awa2(), [(zip_member("l", 0o120777), b"/etc")]), "its member 'l' is a link"),
        ("awa2", zipped(awa2(), [(zip_member("p", 0o010666), b"")]), "its member 'p' is a device"),
        ("awa2", zipped(awa2(), [("bomb", bytes(10_000_000))]), "it unpacks to more than the published data set"),
        ("awa2", encrypted(zipped(awa2(), [("secret", b"x")])), "is refused: its member"),
        ("awa2", zipped(awa2(), how=zipfile.ZIP_STORED).replace(b"very small", b"very SMALL"), "is damaged: Bad CRC-32"),
    ],
    ids=lambda value: "archive" if isinstance(value, bytes) else None,
)  # fmt: skip
def test_archives_that_are_refused(name, content, message, tmp_path, publish, server):
    inner = tmp_path / "data"
    publish(name, content)
    assert message in fails(name, inner, server)
    assert left(tmp_path) == []
    publish(name)
    fetch(name, inner, base=server.url)
    assert verify(name, inner).comparison.verdict == "published"


def test_a_mistake_of_our_own_is_not_called_a_damaged_archive(tmp_path):
    with pytest.raises(RuntimeError, match="ours"), archives.report_damage(tmp_path):
        raise RuntimeError("ours")


def test_a_refused_archive_that_lies_there_stays_and_is_named(tmp_path, publish):
    publish("cub")
    (tmp_path / "CUB_200_2011.tgz").write_bytes(tar(cub(), [member("../out", size=3)]))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"CUB_200_2011.tgz is refused"):
            ensure_unpacked("cub", tmp_path)
    assert left(tmp_path) == ["CUB_200_2011.tgz"]
