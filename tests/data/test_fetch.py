"""Data sets fetched from a local server that misbehaves; no partial data set remains."""

import hashlib
import resource
import threading
from dataclasses import replace

import pytest

from mdmt.cli.app import main
from mdmt.data import archives
from mdmt.data import fetch as fetch_module
from mdmt.data.fetch import ensure_unpacked, fetch
from mdmt.data.sources import SOURCES, Location, locate
from mdmt.data.verify import verify
from mdmt.errors import Mistake
from support.publisher import SMALL, fails, left


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
    assert (
        f"the connection broke after {half} of {len(data)} bytes; run the same command again to"
        " continue" in line
    )
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


def test_where_the_size_is_not_known_a_full_part_starts_anew(
    tmp_path, publish, server, monkeypatch
):
    publish("awa2")
    source = SOURCES["awa2"]
    monkeypatch.setitem(
        SOURCES, "awa2", replace(source, files=(replace(source.files[0], exact=False),))
    )
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
        (
            ("to", "http://example.org/x"),
            "http://example.org/x is refused: data is fetched over https only",
        ),
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
    "base",
    ["http://example.org/", "ftp://127.0.0.1/", "file:///tmp", "http://127.0.0.1.example.org"],
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
    assert "File too large; free some disk space or choose another folder" in line
    fetch("mnist", tmp_path, base=server.url)
    assert {p.name: p.read_bytes() for p in (tmp_path / "mnist").iterdir()} == given


def test_a_full_disk_while_unpacking_keeps_the_download(tmp_path, publish, server, monkeypatch):
    publish("cub")
    real = archives._write

    def full(*_):
        raise OSError(28, "No space left on device", "somewhere")

    monkeypatch.setattr(archives, "_write", full)
    assert "somewhere: the disk is full: free some space and try again" in fails(
        "cub", tmp_path, server
    )
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
    threads = [
        threading.Thread(target=lambda: found.append(ensure_unpacked("cub", tmp_path)))
        for _ in range(4)
    ]
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


def test_imagenet_weights_are_fetched_once_and_verified(server, tmp_path, monkeypatch):
    content = b"weights" * 100
    file = replace(
        fetch_module.IMAGENET_RESNET18,
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )
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
