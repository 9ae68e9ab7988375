"""Fetching a data set from its publisher: downloaded, verified, unpacked, and only then in its place.

Until then everything lies in a hidden folder beside; what was downloaded before a break is used by the next try.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mdmt.data.archives import rename_into, unpack
from mdmt.data.download import Progress, check_address, download
from mdmt.data.sources import IMAGENET_RESNET18, DataSet, File, data_folder, find, locate
from mdmt.errors import Mistake, Unreachable
from mdmt.files import lock


def fetch(
    name: str, folder: str | Path | None = None, progress: Progress | None = None, *, base: str | None = None
) -> dict[str, Path]:
    """Download, verify and unpack a data set that is not there yet, and say where its parts are, as `locate` does.

    `base` is an address that holds the files under their names, to take them from there instead of from the publisher:
    https, or http on this machine. `progress(file, done, total)` is called with bytes. What fails is one ValueError.
    """
    source, folder = find(name), data_folder(folder)
    if base is not None:
        check_address(base, local=True)
    try:
        return unpacked(name, folder)
    except ValueError:
        if source.archive and (folder / source.files[0].name).exists():
            raise  # there, but damaged
    place, staging = folder / source.folders[0], folder / f".{source.name}.fetch"
    if source.archive and place.exists():
        raise Mistake(f"{place} is in the way and not complete: move it away and try again")
    with _disk(folder):
        staging.mkdir(parents=True, exist_ok=True)
    with _alone(staging, wait=False):
        try:
            for file in source.files:
                _one(file, staging, progress, base)
            with _disk(folder):
                (_settle_archive if source.archive else _settle_files)(source, staging, folder)
        except Unreachable as error:
            what = "it" if source.archive else ", ".join(file.name for file in source.files)
            raise Mistake(f"{error}, or put {what} into {folder if source.archive else place} by hand") from None
        finally:
            if not any(staging.iterdir()):
                staging.rmdir()
    return locate(name, folder)


def fetch_weights(
    folder: str | Path | None = None, progress: Progress | None = None, *, base: str | None = None
) -> Path:
    """The ImageNet weights of ResNet-18 as torchvision publishes them, downloaded and verified unless they are there."""
    place = data_folder(folder) / "weights"
    path = place / IMAGENET_RESNET18.name
    if path.exists() and wrong(path, IMAGENET_RESNET18) is None:
        return path
    with _disk(place):
        place.mkdir(parents=True, exist_ok=True)
    with _alone(place, wait=False):
        try:
            _one(IMAGENET_RESNET18, place, progress, base)
        except Unreachable as error:
            raise Mistake(f"{error}, or put it into {place} by hand") from None
    return path


def unpacked(name: str, folder: str | Path | None = None) -> dict[str, Path]:
    """The parts of a data set, as `locate` gives them; a packed archive that lies there is unpacked first."""
    source, folder = find(name), data_folder(folder)
    parts = locate(name, folder)
    if "archive" not in parts:
        return parts
    archive, temporary = parts["archive"], folder / f".{source.name}.unpack"
    with _disk(folder), _alone(archive, wait=True):
        if "archive" in locate(name, folder):  # nobody else unpacked it meanwhile
            try:
                _unpack(source, archive, temporary, folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    return locate(name, folder)


def _one(file: File, staging: Path, progress: Progress | None, base: str | None) -> None:
    """Bring one file into the staging folder, verified; from the next address where one does not work."""
    done, part = staging / file.name, staging / f"{file.name}.part"
    if done.exists() and wrong(done, file) is None:
        return
    urls = file.urls if base is None else (f"{base.rstrip('/')}/{file.name}",)
    for number, url in enumerate(urls, 1):
        try:
            download(url, part, file, progress, local=base is not None)
            break
        except ValueError:
            if number == len(urls):
                raise
    if (problem := wrong(part, file)) is not None:
        part.unlink()
        raise Mistake(f"{file.name} from {url} is not the published file ({problem}); it was removed, try again")
    os.replace(part, done)


def wrong(path: Path, file: File) -> str | None:
    """What tells a file from the published one; None when nothing does."""
    size = path.stat().st_size
    if file.exact and size != file.size:
        return f"{size} bytes instead of {file.size}"
    for kind, expected in (("md5", file.md5), ("sha256", file.sha256)):
        if expected is not None and (found := checksum(path, kind)) != expected:
            return f"{kind} {found} instead of {expected}"
    return None


def checksum(path: Path, kind: str = "md5", opener: Callable[..., object] = open) -> str:
    """The checksum of a file, or with `opener=gzip.open` of what it unpacks to."""
    digest = hashlib.new(kind, usedforsecurity=False)
    with opener(path, "rb") as file:  # type: ignore[attr-defined]
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _settle_archive(source: DataSet, staging: Path, folder: Path) -> None:
    archive = staging / source.files[0].name
    try:
        _unpack(source, archive, staging / "unpacked", folder)
    except ValueError:
        archive.unlink()
        raise
    finally:
        shutil.rmtree(staging / "unpacked", ignore_errors=True)
    os.replace(archive, folder / archive.name)


def _settle_files(source: DataSet, staging: Path, folder: Path) -> None:
    place = folder / source.folders[0]
    place.mkdir(parents=True, exist_ok=True)
    for file in source.files:
        os.replace(staging / file.name, place / file.name)


def _unpack(source: DataSet, archive: Path, temporary: Path, folder: Path) -> None:
    inner = source.folders[0]
    unpack(archive, temporary, source.room)
    if absent := [part for part in source.parts if not (temporary / inner / part).exists()]:
        raise Mistake(f"{archive} is not the {source.title}: it holds no {inner}/{absent[0]}")
    rename_into(temporary / inner, folder / inner)


@contextmanager
def _alone(path: Path, wait: bool) -> Iterator[None]:
    """One process at a time; another one waits, or says that it is not the first."""
    try:
        with lock(path, wait=wait):
            yield
    except BlockingIOError:
        raise Mistake(f"{path} is in use: another process is fetching this data set") from None


class _disk:
    """Says in one line what the disk refused."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, OSError):
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            why = "the disk is full: free some space and try again" if full else error.strerror or str(error)
            raise Mistake(f"{error.filename or self.folder}: {why}") from None
