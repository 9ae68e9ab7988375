"""Data sets fetched from a real server on this machine that misbehaves, unpacked, and checked; nothing half-done remains."""

import gzip
import hashlib
import http.server
import io
import json
import os
import pickle
import re
import resource
import struct
import tarfile
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mdmt.cli.app import main
from mdmt.data import archives, sources
from mdmt.data import fetch as fetch_module
from mdmt.data.fetch import ensure_unpacked, fetch
from mdmt.data.pickles import read_pickle
from mdmt.data.sources import IDX_PARTS, SOURCES, Location, data_folder, locate, substitute_note
from mdmt.data.verify import verify
from mdmt.errors import Mistake

PIXEL = b"\xff\xd8 a very small picture \xff\xd9"


# small data sets in every published format


def idx(train=6, test=4, classes=2):
    files = {}
    for stem, count in (("train", train), ("t10k", test)):
        pixels = np.random.RandomState(count).randint(0, 256, count * 784, np.uint8).tobytes()
        labels = bytes(i % classes for i in range(count))
        files[f"{stem}-images-idx3-ubyte.gz"] = struct.pack(">IIII", 2051, count, 28, 28) + pixels
        files[f"{stem}-labels-idx1-ubyte.gz"] = struct.pack(">II", 2049, count) + labels
    return {name: gzip.compress(data, mtime=0) for name, data in files.items()}


def cifar(train=6, test=4, classes=2):
    files = {"meta": {b"fine_label_names": [b"cat", b"dog"]}}
    for split, count in (("train", train), ("test", test)):
        labels = [i % classes for i in range(count)]
        files[split] = {b"data": np.full((count, 3072), 7, np.uint8), b"fine_labels": labels}
    return {f"cifar-100-python/{name}": pickle.dumps(content, protocol=3) for name, content in files.items()}


def cub():
    names = [f"{c}/bird_{i}.jpg" for c in ("001.Crow", "002.Jay") for i in range(5)]
    lines = {
        "images.txt": names, "image_class_labels.txt": [1 + (i > 4) for i in range(10)],
        "train_test_split.txt": [int(i % 5 < 3) for i in range(10)], "classes.txt": ["001.Crow", "002.Jay"],
    }  # fmt: skip
    files = {name: "".join(f"{i} {v}\n" for i, v in enumerate(rows, 1)).encode() for name, rows in lines.items()}
    files |= {f"images/{name}": PIXEL for name in names}
    return {f"CUB_200_2011/{name}": data for name, data in files.items()} | {"attributes.txt": b"not in the folder"}


def awa2(each=10):
    files = {"classes.txt": b"       1\tbear\n       2\tkiller+whale\n"}
    for c in ("bear", "killer+whale"):
        files |= {f"JPEGImages/{c}/{c}_{10001 + i}.jpg": PIXEL for i in range(each)}
    return {f"Animals_with_Attributes2/{name}": data for name, data in files.items()}


def tar(files, extra=()):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for member in extra:
            archive.addfile(member, io.BytesIO(b"x" * member.size))
    return out.getvalue()


def zipped(files, extra=(), how=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", how) as archive:
        for name, data in [*files.items(), *extra]:
            archive.writestr(name, data)
    return out.getvalue()


SMALL = {
    "mnist": (idx, None, {"train": 6, "test": 4, "classes": 2}),
    "fashion-mnist": (idx, None, {"train": 6, "test": 4, "classes": 2}),
    "cifar100": (cifar, tar, {"train": 6, "test": 4, "classes": 2}),
    "cub": (cub, tar, {"train": 6, "test": 4, "classes": 2}),
    "awa2": (awa2, zipped, {"train": 14, "validation": 4, "test": 2, "classes": 2}),
}


@pytest.fixture
def publish(monkeypatch, server):
    """Put a small data set on the server, and its sizes and checksums into the registry."""

    def publish(name, content=None):
        files, pack, counts = SMALL[name]
        source = SOURCES[name]
        given = files() if pack is None else {source.files[0].name: pack(files())}
        given = given if content is None else {source.files[0].name: content}
        changed = tuple(
            replace(f, size=len(given[f.name]), exact=True, sha256=None, md5=hashlib.md5(given[f.name]).hexdigest())
            for f in source.files
        )
        made = replace(source, files=changed, counts=counts, part_md5={}, max_bytes=100_000, folders=source.folders[:1])
        monkeypatch.setitem(SOURCES, name, made)
        server.files |= given
        return given

    return publish


# a server that does what it is told


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def do_GET(self):
        server = self.server
        name = self.path.lstrip("/")
        server.asked.append((name, self.headers.get("Range")))
        how = server.trouble.pop(0) if server.trouble else None
        if how == "404" or name.removeprefix("moved/") not in server.files:
            self.send_error(404)
        elif isinstance(how, tuple):
            self.send_response(302)
            self.send_header("Location", how[1])
            self.end_headers()
        else:
            self.answer(server.files[name.removeprefix("moved/")], how)

    def answer(self, data, how):
        start = 0
        if (wanted := self.headers.get("Range")) and how != "no ranges":
            start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])
            if start >= len(data):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            self.send_response(200)
        data = bytes(len(data)) if how == "other bytes" else data
        body = data[start:]
        if (how or "").startswith("nothing"):
            body = b""
        if how not in ("no length", "nothing, no length"):
            self.send_header("Content-Length", str(len(body) + (5 if how == "wrong length" else 0)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if how == "break" else body + b"more" * (how == "no length"))

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.files, server.trouble, server.asked = {}, [], []
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def left(folder):
    return sorted(str(p.relative_to(folder)) for p in Path(folder).rglob("*") if p.is_file())


def fails(name, folder, server):
    """The one line of a fetch that fails, after which the data set is not there."""
    with pytest.raises(ValueError) as caught:
        fetch(name, folder, base=server.url)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="is not in"):
        locate(name, folder)
    assert not (folder / SOURCES[name].folders[0]).exists()
    return str(caught.value)


# fetching


@pytest.mark.parametrize("name", SMALL)
def test_fetched_verified_and_found(name, tmp_path, publish, server):
    given = publish(name)
    steps = []
    location = fetch(name, tmp_path, lambda *step: steps.append(step), base=server.url)
    assert location.archive is None
    assert set(location.parts) == set(SOURCES[name].parts)
    assert all(path.exists() and path.parent == location.folder for path in location.parts.values())
    for file, data in given.items():
        seen = [(done, total) for n, done, total in steps if n == file]
        assert seen[0] == (0, len(data))
        assert seen[-1] == (len(data), len(data))
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]
    report = verify(name, tmp_path) if SOURCES[name].archive else None
    if report:
        assert report.comparison.verdict == "published"
    asked = len(server.asked)
    assert fetch(name, tmp_path, base=server.url) == location  # already here
    assert len(server.asked) == asked


@pytest.mark.parametrize("name", ["cifar100", "cub", "awa2"])
def test_a_packed_archive_is_enough(name, tmp_path, publish):
    ((file, data),) = publish(name).items()
    (tmp_path / file).write_bytes(data)
    assert locate(name, tmp_path) == Location(tmp_path, {}, archive=tmp_path / file)
    assert set(ensure_unpacked(name, tmp_path).parts) == set(SOURCES[name].parts)
    assert verify(name, tmp_path).comparison.verdict == "published"


@pytest.mark.parametrize("name", ["mnist", "cifar100"])
def test_a_broken_connection_goes_on_where_it_broke(name, tmp_path, publish, server):
    given = publish(name)
    server.trouble = ["break"]
    first, data = next(iter(given.items()))
    half = len(data) // 2
    line = fails(name, tmp_path, server)
    assert f"the connection broke after {half} of {len(data)} bytes; run the same command again to continue" in line
    assert left(tmp_path) == [f".{name}.fetch/{first}.part"]
    fetch(name, tmp_path, base=server.url)
    assert server.asked[1] == (first, f"bytes={half}-")
    assert not list(tmp_path.rglob("*.part"))


def test_a_server_without_ranges_sends_all_again(tmp_path, publish, server):
    publish("cifar100")
    server.trouble = ["break", "no ranges"]
    fails("cifar100", tmp_path, server)
    fetch("cifar100", tmp_path, base=server.url)
    assert verify("cifar100", tmp_path).comparison.verdict == "published"


def test_a_part_that_cannot_be_continued_is_dropped(tmp_path, publish, server):
    publish("awa2")
    archive = SOURCES["awa2"].files[0]
    old = tmp_path / ".awa2.fetch" / f"{archive.name}.part"
    for junk in (b"j" * (archive.size + 9), b"j" * archive.size):
        old.parent.mkdir()
        old.write_bytes(junk)
        if len(junk) == archive.size:  # the right length, the wrong bytes
            assert "is not the published file (md5" in fails("awa2", tmp_path, server)
            assert left(tmp_path) == []
        fetch("awa2", tmp_path, base=server.url)
        assert verify("awa2", tmp_path).comparison.verdict == "published"
        for path in sorted(tmp_path.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()


def test_where_the_size_is_not_known_a_full_part_starts_anew(tmp_path, publish, server, monkeypatch):
    publish("awa2")
    source = SOURCES["awa2"]
    monkeypatch.setitem(SOURCES, "awa2", replace(source, files=(replace(source.files[0], exact=False),)))
    old = tmp_path / ".awa2.fetch" / f"{source.files[0].name}.part"
    old.parent.mkdir()
    old.write_bytes(b"j" * source.files[0].size)
    fetch("awa2", tmp_path, base=server.url)  # 416, then all of it
    assert [wanted for _, wanted in server.asked] == [f"bytes={source.files[0].size}-", None]


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        ("404", "the server answered 404"),
        ("wrong length", "wrong length, the server offers"),
        ("no length", "wrong length, the server sends more than"),
        ("nothing", "wrong length, the server offers 0 bytes"),
        ("nothing, no length", "the server sent nothing"),
        ("other bytes", "is not the published file (md5"),
        (("to", "ftp://example.org/x"), "is refused: data is fetched over https only"),
        (("to", "http://example.org/x"), "http://example.org/x is refused: data is fetched over https only"),
        (("to", "file:///etc/passwd"), "not https"),
    ],
)
@pytest.mark.parametrize("name", ["mnist", "cub"])
def test_what_a_server_can_do_wrong(name, trouble, message, tmp_path, publish, server):
    publish(name)
    server.trouble = [trouble]
    assert message in fails(name, tmp_path, server)
    assert left(tmp_path) == []
    fetch(name, tmp_path, base=server.url)


def test_a_redirect_is_followed(tmp_path, publish, server):
    publish("cub")
    server.trouble = [("to", "/moved/CUB_200_2011.tgz")]
    fetch("cub", tmp_path, base=server.url)
    assert [name for name, _ in server.asked] == ["CUB_200_2011.tgz", "moved/CUB_200_2011.tgz"]


def test_nobody_answers(tmp_path, publish, server):
    publish("cub")
    server.url = "http://127.0.0.1:9"
    line = fails("cub", tmp_path, server)
    assert "cannot be reached (Connection refused): check the network and try again" in line
    assert line.endswith(f", or put it into {tmp_path} by hand")
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    "base", ["http://example.org/", "ftp://127.0.0.1/", "file:///tmp", "http://127.0.0.1.example.org"]
)
def test_only_https_or_this_machine(base, tmp_path):
    with pytest.raises(ValueError, match="data is fetched over https only"):
        fetch("mnist", tmp_path, base=base)


def test_the_next_address_is_tried(tmp_path, publish, server, monkeypatch):
    publish("cifar100")
    seen = []

    def download(url, part, file, *_, **__):
        seen.append(url)
        if len(seen) == 1:
            raise Mistake("gone")
        part.write_bytes(server.files[file.name])

    monkeypatch.setattr("mdmt.data.fetch.download", download)
    fetch("cifar100", tmp_path)
    assert seen == list(SOURCES["cifar100"].files[0].urls)


def test_a_disk_that_takes_no_more(tmp_path, publish, server):
    given = publish("mnist", None)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        line = fails("mnist", tmp_path, server)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "File too large; free some space or choose another folder" in line
    fetch("mnist", tmp_path, base=server.url)
    assert {p.name: p.read_bytes() for p in (tmp_path / "mnist").iterdir()} == given


def test_a_full_disk_while_unpacking_keeps_the_download(tmp_path, publish, server, monkeypatch):
    publish("cub")
    real = archives._write

    def full(*_):
        raise OSError(28, "No space left on device", "somewhere")

    monkeypatch.setattr(archives, "_write", full)
    assert "somewhere: the disk is full: free some space and try again" in fails("cub", tmp_path, server)
    assert left(tmp_path) == [".cub.fetch/CUB_200_2011.tgz"]
    monkeypatch.setattr(archives, "_write", real)
    fetch("cub", tmp_path, base=server.url)
    assert len(server.asked) == 1


def test_what_is_in_the_way_is_named_before_the_download(tmp_path, publish, server):
    publish("cub")
    (tmp_path / "CUB_200_2011").mkdir()
    with pytest.raises(ValueError, match="CUB_200_2011 is in the way and not complete"):
        fetch("cub", tmp_path, base=server.url)
    assert server.asked == []


def test_one_fetch_at_a_time(tmp_path, publish, server):
    publish("cub")
    busy = []

    def meanwhile(*_):
        if not busy:
            busy.append(None)
            with pytest.raises(ValueError, match="another process is fetching this data set"):
                fetch("cub", tmp_path, base=server.url)

    fetch("cub", tmp_path, meanwhile, base=server.url)
    assert busy


def test_two_that_unpack_at_once(tmp_path, publish):
    ((file, data),) = publish("cub").items()
    (tmp_path / file).write_bytes(data)
    found = []
    threads = [threading.Thread(target=lambda: found.append(ensure_unpacked("cub", tmp_path))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [locate("cub", tmp_path)] * 4


def test_ctrl_c_is_one_line(tmp_path, publish, server, capsys, monkeypatch):
    publish("cub")

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("mdmt.data.fetch.download", interrupted)
    assert main(["data", "fetch", "cub", "--data", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "mdmt: interrupted; run the same command again to continue\n"


# archives that must not be unpacked


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
    return content.replace(b"PK\x01\x02\x14\x03\x14\x00\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01\x00")


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


# pickles


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
    arrays = [np.arange(6, dtype=d).reshape(2, 3) for d in ("u1", "<i8", ">f4")] + [np.asfortranarray(np.eye(3, 4))]
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
    assert {k: v for k, v in found.items() if k in "tb"} == {k: v for k, v in content.items() if k in "tb"}
    assert found["same"] is found["a"][0]


def _python2(array):
    return (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01K\x02K\x03\x86"
        b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x06"
        + array.tobytes() + b"tb."
    )  # fmt: skip


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
    with pytest.raises(ValueError, match=r"p is damaged or unsafe: only arrays and plain values are read"):
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


# where data lies, and what is wrong with it


def test_the_data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("MDMT_DATA", str(tmp_path / "env"))
    assert data_folder("mine") == Path("mine")
    assert data_folder() == tmp_path / "env"
    monkeypatch.delenv("MDMT_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_folder() == tmp_path / "mdmt" / "data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_folder() == Path.home() / ".cache" / "mdmt" / "data"


def test_a_missing_data_set_says_what_to_do(tmp_path):
    for name, source in SOURCES.items():
        if name == "fashion-mnist":
            continue  # Debian may have it
        with pytest.raises(ValueError) as caught:
            locate(name, tmp_path)
        line = str(caught.value)
        assert "\n" not in line
        assert f"mdmt data fetch {name}" in line
        assert source.files[0].name in line
        assert "https://" in line
        assert str(tmp_path / source.folders[0]) in line


def test_debians_fashion_mnist(tmp_path, monkeypatch):
    debian = tmp_path / "usr"
    debian.mkdir()
    places = (*SOURCES["fashion-mnist"].folders[:-1], str(debian))
    assert SOURCES["fashion-mnist"].folders[-1] == "/usr/share/dataset-fashion-mnist"
    monkeypatch.setitem(SOURCES, "fashion-mnist", replace(SOURCES["fashion-mnist"], folders=places))
    for name, data in idx().items():
        (debian / name).write_bytes(data)
    assert locate("fashion-mnist", tmp_path).folder == debian


def test_idx_files_may_be_unpacked(tmp_path, publish):
    (tmp_path / "mnist").mkdir()
    for name, data in publish("mnist").items():
        (tmp_path / "mnist" / name.removesuffix(".gz")).write_bytes(gzip.decompress(data))
    assert locate("mnist", tmp_path).parts[IDX_PARTS[0]].suffix == ""
    assert verify("mnist", tmp_path).figures["train"] == 6


def test_the_registry_is_whole():
    for name, source in SOURCES.items():
        assert name == source.name
        assert source.licence
        for file in source.files:
            assert all(url.startswith("https://") for url in file.urls)
            assert file.md5 is None or re.fullmatch("[0-9a-f]{32}", file.md5)
            assert file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256)
            assert file.size > 0
        assert not source.archive or len(source.files) == 1
        assert not source.archive or source.max_bytes > source.files[0].size
        assert set(source.part_md5) <= set(source.parts)


def break_cub(folder):
    (folder / "CUB_200_2011" / "images" / "001.Crow" / "bird_2.jpg").unlink()


def lengthen_cub(folder):
    with open(folder / "CUB_200_2011" / "images.txt", "a") as file:
        file.write("11 001.Crow/one_more.jpg\n")


def unsplit_cub(folder):
    path = folder / "CUB_200_2011" / "train_test_split.txt"
    path.write_text(path.read_text().replace("1 1\n", "1 0\n", 1))


def empty_awa2(folder):
    for path in (folder / "Animals_with_Attributes2" / "JPEGImages" / "bear").iterdir():
        path.unlink()


def shorten_mnist(folder):
    path = folder / "mnist" / "t10k-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1]))


def swap_mnist(folder):
    images = (folder / "mnist" / "train-images-idx3-ubyte.gz").read_bytes()
    (folder / "mnist" / "train-labels-idx1-ubyte.gz").write_bytes(images)


def cut_mnist(folder):
    path = folder / "mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-30])


def behead_mnist(folder):
    (folder / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(b"\0\0\x08"))


def relabel_cifar(folder):
    content = {b"data": np.zeros((4, 3072), np.uint8), b"fine_labels": [0, 0, 0, 1]}
    (folder / "cifar-100-python" / "test").write_bytes(pickle.dumps(content))


def grey_cifar(folder):
    content = {b"data": np.zeros((4, 1024), np.uint8), b"fine_labels": [0, 0, 1, 1]}
    (folder / "cifar-100-python" / "test").write_bytes(pickle.dumps(content))


def drop_a_bird(folder):
    for name in ("images", "image_class_labels", "train_test_split"):
        path = folder / "CUB_200_2011" / f"{name}.txt"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def drop_a_class_of_birds(folder):
    path = folder / "CUB_200_2011" / "image_class_labels.txt"
    path.write_text("".join(f"{i} 1\n" for i in range(1, 11)))


def empty_a_bird(folder):
    (folder / "CUB_200_2011" / "images" / "001.Crow" / "bird_2.jpg").write_bytes(b"")


def drop_an_animal(folder):
    (folder / "Animals_with_Attributes2" / "JPEGImages" / "bear" / "bear_10008.jpg").unlink()


def empty_an_animal_for_validation(folder):
    (folder / "Animals_with_Attributes2" / "JPEGImages" / "bear" / "bear_10008.jpg").write_bytes(b"")


def name_an_animal_twice(folder):
    (folder / "Animals_with_Attributes2" / "classes.txt").write_text("1\tbear\n2\tbear\n")


def widen_mnist(folder):
    content = struct.pack(">IIII", 2051, 6, 28, 29) + bytes(6 * 28 * 29)
    (folder / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(content))


def relabel_mnist(folder):
    content = struct.pack(">II", 2049, 6) + bytes([0, 2, 0, 2, 0, 2])
    (folder / "mnist" / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(content))


def thin_mnist(folder):
    for stem, size in (("images-idx3", 784), ("labels-idx1", 1)):
        header = struct.pack(">IIII", 2051, 3, 28, 28) if size > 1 else struct.pack(">II", 2049, 3)
        content = gzip.compress(header + bytes(3 * size))
        (folder / "mnist" / f"t10k-{stem}-ubyte.gz").write_bytes(content)


def unname_cifar(folder):
    (folder / "cifar-100-python" / "meta").write_bytes(pickle.dumps({b"fine_label_names": [b"cat", b"cat"]}))


def lose_meta(folder):
    (folder / "cifar-100-python" / "meta").write_bytes(pickle.dumps({}))


def skip_a_class_of_cifar(folder):
    content = {b"data": np.zeros((4, 3072), np.uint8), b"fine_labels": [0, 0, 2, 2]}
    (folder / "cifar-100-python" / "test").write_bytes(pickle.dumps(content))


def thin_cifar(folder):
    content = {b"data": np.zeros((2, 3072), np.uint8), b"fine_labels": [0, 1]}
    (folder / "cifar-100-python" / "test").write_bytes(pickle.dumps(content))


@pytest.mark.parametrize(
    ("name", "harm", "message"),
    [
        ("cub", drop_a_bird, "images.txt: 9 images instead of 10"),
        ("cub", drop_a_class_of_birds, "image_class_labels.txt: 1 class instead of 2"),
        ("cub", empty_a_bird, "images/001.Crow/bird_2.jpg is empty"),
        ("awa2", drop_an_animal, "JPEGImages: 19 images instead of 20"),
        ("awa2", empty_an_animal_for_validation, "JPEGImages/bear/bear_10008.jpg is empty"),
        ("awa2", name_an_animal_twice, "classes.txt: 1 class instead of 2"),
        ("mnist", widen_mnist, "train-images-idx3-ubyte.gz holds images of 28 x 29 pixels; MNIST has 28 x 28"),
        ("mnist", relabel_mnist, "mnist, train: the labels are not 0 to 1, each used"),
        ("mnist", thin_mnist, "mnist, test: 3 images instead of 4"),
        ("cifar100", unname_cifar, "meta: 1 class name instead of 2"),
        ("cifar100", lose_meta, "meta is damaged: it has no list 'fine_label_names'"),
        ("cifar100", skip_a_class_of_cifar, "test: 0 to 2 images a class instead of 2"),
        ("cifar100", thin_cifar, "test: 2 images instead of 4"),
        ("cub", break_cub, "images/001.Crow/bird_2.jpg is missing"),
        (
            "cub",
            lengthen_cub,
            "image_class_labels.txt does not list the images of images.txt: it has 10 lines, images.txt has 11",
        ),
        ("cub", unsplit_cub, "train_test_split.txt: 5 training images instead of 6"),
        ("awa2", empty_awa2, "JPEGImages/bear has no images"),
        ("mnist", shorten_mnist, "t10k-labels-idx1-ubyte.gz is damaged: 4 bytes of data expected, 3 found"),
        (
            "mnist",
            swap_mnist,
            "train-labels-idx1-ubyte.gz is damaged: "
            "an idx file of 1 dimension begins with the number 2049, this one with 2051",
        ),
        ("mnist", behead_mnist, "train-images-idx3-ubyte.gz is damaged: it has no idx header"),
        ("mnist", cut_mnist, "train-images-idx3-ubyte.gz is damaged"),
        ("cifar100", relabel_cifar, "test: 1 to 3 images a class instead of 2"),
        ("cifar100", grey_cifar, "test is damaged: 'data' is 4 x 1024 uint8, not N x 3072 uint8"),
    ],
)
def test_a_wrong_structure_is_named(name, harm, message, tmp_path, publish, server, capsys):
    publish(name)
    fetch(name, tmp_path, base=server.url)
    harm(tmp_path)
    assert main(["data", "verify", name, "--data", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"mdmt: {name}: wrong structure: {tmp_path}")
    assert message in err
    assert err.count("\n") == 1


def test_right_structure_other_bytes(tmp_path, publish, server, capsys):
    publish("awa2")
    fetch("awa2", tmp_path, base=server.url)
    picture = tmp_path / "Animals_with_Attributes2" / "JPEGImages" / "bear" / "bear_10003.jpg"
    picture.write_bytes(b"another")
    assert main(["data", "verify", "awa2", "--data", str(tmp_path)]) == 0
    assert "awa2: structure right, bytes differ (Animals_with_Attributes2/JPEGImages/bear" in capsys.readouterr().out
    (tmp_path / "AwA2-data.zip").unlink()
    assert verify("awa2", tmp_path).comparison.verdict == "not compared"


def test_a_resized_copy(tmp_path, publish, server):
    from PIL import Image

    publish("cub")
    fetch("cub", tmp_path, base=server.url)
    (tmp_path / "CUB_200_2011.tgz").unlink()
    for path in (tmp_path / "CUB_200_2011" / "images").glob("*/*.jpg"):
        Image.new("RGB", (32, 32)).save(path)
    assert verify("cub", tmp_path).line == (
        "cub: structure right, bytes differ (the images are a copy resized to 32x32 pixels)"
    )


def test_mnist_packed_anew(tmp_path, publish, server, monkeypatch):
    given = publish("mnist")
    sums = {name.removesuffix(".gz"): hashlib.md5(gzip.decompress(data)).hexdigest() for name, data in given.items()}
    monkeypatch.setitem(SOURCES, "mnist", replace(SOURCES["mnist"], part_md5=sums))
    fetch("mnist", tmp_path, base=server.url)
    assert verify("mnist", tmp_path).line == (
        "mnist: structure right, bytes are the published ones (by the md5 of each file)"
    )
    path = tmp_path / "mnist" / "train-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), 1, mtime=9))
    assert verify("mnist", tmp_path).comparison.reason.endswith("once unpacked; the .gz files were packed anew")


def test_substitutes_are_named(tmp_path, publish, server, capsys):
    publish("awa2")
    fetch("awa2", tmp_path, base=server.url)
    assert substitute_note(locate("awa2", tmp_path)) is None
    (tmp_path / "Animals_with_Attributes2" / sources.SUBSTITUTE).write_text("These are not\nthe AWA2 images.\n")
    assert substitute_note(locate("awa2", tmp_path)) == "These are not the AWA2 images."
    assert verify("awa2", tmp_path).line == (
        "awa2: structure right, bytes differ (substitute images: These are not the AWA2 images.)"
    )
    empty_awa2(tmp_path)
    assert main(["data", "verify", "awa2", "--data", str(tmp_path)]) == 2
    assert "awa2: substitute images: These are not the AWA2 images. (" in capsys.readouterr().err
    assert main(["data", "list", "--data", str(tmp_path)]) == 0
    assert "awa2: substitute images" in capsys.readouterr().out


# the command line


def test_list(tmp_path, publish, server, capsys, monkeypatch):
    publish("cifar100")
    monkeypatch.setenv("MDMT_DATA", str(tmp_path))
    fetch("cifar100", tmp_path, base=server.url)
    assert main(["data", "list"]) == 0
    out = capsys.readouterr().out
    assert "cifar100: present" in out
    assert "cub: missing" in out
    assert "about 13,500.0 MB" in out
    assert str(tmp_path / "CUB_200_2011.tgz") in out
    assert main(["data", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows["folder"] == str(tmp_path)
    assert set(rows["data"]) == set(SOURCES)
    assert rows["data"]["cifar100"]["state"] == "present"


def test_fetch_and_verify_commands(tmp_path, publish, server, capsys):
    publish("cub")
    data = ["--data", str(tmp_path)]
    assert main(["data", "fetch", "cub", *data, "--from", server.url]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"cub: fetched, md5 as published: {tmp_path / 'CUB_200_2011'} (licence: ")
    assert err == "CUB_200_2011.tgz, 0.0 MB\n"
    assert main(["data", "verify", "cub", *data, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bytes"] == "published"
    assert found["figures"]["images"] == 10
    assert main(["data", "fetch", "cub", *data, "--from", server.url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "present"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fetch", "no-such"], "data set 'no-such' is not one of mnist, fashion-mnist, cifar100, cub, awa2"),
        (["verify", "no-such"], "data set 'no-such' is not one of"),
        (["verify", "cub"], "cub is not in"),
        (["fetch", "cub", "--from", "http://example.org"], "data is fetched over https only"),
    ],
)
def test_mistakes_are_one_line(arguments, message, tmp_path, capsys):
    assert main(["data", *arguments, "--data", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("name", SOURCES)
def test_the_real_data(name):
    folder = os.environ.get("MDMT_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("$MDMT_DATA names no folder with data sets")
    try:
        location = locate(name, folder)
    except ValueError as error:
        pytest.skip(str(error))
    if substitute_note(location) is not None:
        pytest.skip(f"{name} in $MDMT_DATA holds substitute images")
    assert verify(name, folder).figures["train"] == SOURCES[name].counts["train"]


def test_imagenet_weights_are_fetched_once_and_verified(server, tmp_path, monkeypatch):
    content = b"weights" * 100
    file = replace(fetch_module.IMAGENET_RESNET18, size=len(content), sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(fetch_module, "IMAGENET_RESNET18", file)
    server.files[file.name] = b"others!" * 100
    with pytest.raises(ValueError, match="is not the published file"):
        fetch_module.fetch_weights(tmp_path, base=server.url)
    assert not (tmp_path / "weights" / file.name).exists()
    server.files[file.name] = content
    path = fetch_module.fetch_weights(tmp_path, base=server.url)
    assert path.read_bytes() == content
    asked = len(server.asked)
    assert fetch_module.fetch_weights(tmp_path, base=server.url) == path
    assert len(server.asked) == asked
