"""Fetching a data set from its publisher: download, verify and unpack it, then move it into place.

Until then all files lie in a hidden folder beside that place, and the next try continues with them.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mdmt.data.archives import rename_into, unpack
from mdmt.data.download import OnBytes, check_address, download
from mdmt.data.sources import (
    IMAGENET_RESNET18,
    DataSet,
    File,
    Location,
    data_folder,
    find_data_set,
    locate,
)
from mdmt.errors import Mistake, Unreachable
from mdmt.system.files import lock


def fetch(
    name: str,
    folder: str | Path | None = None,
    progress: OnBytes | None = None,
    *,
    base: str | None = None,
) -> Location:
    """Fetch a data set, unless it is on this machine already.

    `base` replaces the publisher's address: https, or http on this machine, with the files under
    their own names.
    """
    source = find_data_set(name)
    folder = data_folder(folder)
    if base is not None:
        check_address(base, local=True)
    try:
        return ensure_unpacked(name, folder)
    except Mistake:
        if source.archive and (folder / source.files[0].name).exists():
            raise  # the archive is there, but damaged
    place = folder / source.folders[0]
    if source.archive and place.exists():
        raise Mistake(f"{place} is in the way and not complete: move it away and try again")
    try:
        _download_and_install(source, folder, progress, base)
    except Unreachable as error:
        files = "it" if source.archive else ", ".join(file.name for file in source.files)
        target = folder if source.archive else place
        raise Mistake(f"{error}, or put {files} into {target} by hand") from None
    return locate(name, folder)


def _download_and_install(
    source: DataSet, folder: Path, progress: OnBytes | None, base: str | None
) -> None:
    staging = folder / f".{source.name}.fetch"
    with _disk_errors(folder):
        staging.mkdir(parents=True, exist_ok=True)
    with _exclusive(staging, wait=False):
        try:
            for file in source.files:
                _fetch_file(file, staging, progress, base)
            with _disk_errors(folder):
                install = _install_archive if source.archive else _install_files
                install(source, staging, folder)
        finally:
            if not any(staging.iterdir()):
                staging.rmdir()


def fetch_weights(
    folder: str | Path | None = None, progress: OnBytes | None = None, *, base: str | None = None
) -> Path:
    """Fetch torchvision's ImageNet weights of ResNet-18, unless they are there already."""
    place = data_folder(folder) / "weights"
    path = place / IMAGENET_RESNET18.name
    if path.exists() and difference(path, IMAGENET_RESNET18) is None:
        return path
    with _disk_errors(place):
        place.mkdir(parents=True, exist_ok=True)
    with _exclusive(place, wait=False):
        try:
            _fetch_file(IMAGENET_RESNET18, place, progress, base)
        except Unreachable as error:
            raise Mistake(f"{error}, or put it into {place} by hand") from None
    return path


def ensure_unpacked(name: str, folder: str | Path | None = None) -> Location:
    """Locate a data set, and unpack its archive if that is all there is."""
    source = find_data_set(name)
    folder = data_folder(folder)
    location = locate(name, folder)
    if location.archive is None:
        return location
    temporary = folder / f".{source.name}.unpack"
    with _disk_errors(folder), _exclusive(location.archive, wait=True):
        # Another process may have unpacked it while this one waited.
        if locate(name, folder).archive is not None:
            try:
                _unpack(source, location.archive, temporary, folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    return locate(name, folder)


def _fetch_file(file: File, staging: Path, progress: OnBytes | None, base: str | None) -> None:
    """Download one file into the staging folder and verify it, trying its addresses in turn."""
    target = staging / file.name
    part = staging / f"{file.name}.part"
    if target.exists() and difference(target, file) is None:
        return
    urls = file.urls if base is None else (f"{base.rstrip('/')}/{file.name}",)
    for number, url in enumerate(urls, 1):
        try:
            download(url, part, file, progress, local=base is not None)
            break
        except Mistake:
            if number == len(urls):
                raise
    if (problem := difference(part, file)) is not None:
        part.unlink()
        raise Mistake(
            f"{file.name} from {url} is not the published file ({problem}); it was deleted, try"
            " again"
        )
    os.replace(part, target)


def difference(path: Path, file: File) -> str | None:
    """How a file differs from the published one; None if it does not."""
    size = path.stat().st_size
    if file.exact and size != file.size:
        return f"{size} bytes instead of {file.size}"
    for kind, expected in (("md5", file.md5), ("sha256", file.sha256)):
        if expected is not None and (digest := checksum(path, kind)) != expected:
            return f"{kind} {digest} instead of {expected}"
    return None


def checksum(path: Path, kind: str = "md5", opener: Callable[..., Any] = open) -> str:
    """Compute the checksum of a file, or with `opener=gzip.open` of its unpacked content."""
    digest = hashlib.new(kind, usedforsecurity=False)
    with opener(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _install_archive(source: DataSet, staging: Path, folder: Path) -> None:
    archive = staging / source.files[0].name
    try:
        _unpack(source, archive, staging / "unpacked", folder)
    except Mistake:
        archive.unlink()
        raise
    finally:
        shutil.rmtree(staging / "unpacked", ignore_errors=True)
    os.replace(archive, folder / archive.name)


def _install_files(source: DataSet, staging: Path, folder: Path) -> None:
    place = folder / source.folders[0]
    place.mkdir(parents=True, exist_ok=True)
    for file in source.files:
        os.replace(staging / file.name, place / file.name)


def _unpack(source: DataSet, archive: Path, temporary: Path, folder: Path) -> None:
    unpack(archive, temporary, source.max_bytes)
    inner = source.folders[0]
    for part in source.parts:
        if not (temporary / inner / part).exists():
            raise Mistake(f"{archive} is not the {source.title}: it holds no {inner}/{part}")
    rename_into(temporary / inner, folder / inner)


@contextmanager
def _exclusive(path: Path, wait: bool) -> Iterator[None]:
    """Let in one process at a time; another one waits or gets a Mistake."""
    try:
        with lock(path, wait=wait):
            yield
    except BlockingIOError:
        raise Mistake(f"{path} is in use: another process is fetching this data set") from None


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    """Turn an error of the disk into a Mistake."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            reason = "the disk is full: free some space and try again"
        raise Mistake(f"{error.filename or folder}: {reason}") from None
