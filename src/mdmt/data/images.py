"""Images decoded once into a file of pixels, from which batches are gathered through a memory map.

A cache is two files: `<key>.u8`, the pixels, and `<key>.json`, which says what they are and comes last: a cache without it
does not exist. The key is a hash of the list of sources, with their sizes and times, and of the image size.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from mdmt.errors import Mistake
from mdmt.files import lock, write_json

FORMAT = 1
PIECE = 32  # images that one thread decodes before it hands them over
Progress = Callable[[int, int], None]  # images done, images in all


@dataclass(frozen=True)
class Images:
    """Pixels, (N, 3, size, size) uint8, read through the map; and how many were smaller than that at their source."""

    pixels: Tensor
    enlarged: int


def cache_folder() -> Path:
    """Where caches are kept: $MDMT_CACHE, or a folder `mdmt` where the user's caches are."""
    given = os.environ.get("MDMT_CACHE")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "mdmt")


def load_images(
    paths: Sequence[Path],
    size: int,
    *,
    cache: str | Path | None = None,
    progress: Progress | None = None,
    workers: int | None = None,
) -> Images:
    """The images as RGB, brought to size x size (bilinear, aspect not kept), in the order given.

    They are decoded the first time they are asked for. A file that is missing, broken or not an image is a ValueError
    with its path, and leaves nothing behind. Two processes that want the same images do the work once.
    """
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise Mistake(f"image_size={size!r}: must be a whole number, 1 or more")
    if not paths:
        raise Mistake("no images were given")
    folder, key = Path(cache) if cache is not None else cache_folder() / "images", _key(paths, size)
    pixels, about = folder / f"{key}.u8", folder / f"{key}.json"
    total = len(paths) * 3 * size * size
    if (enlarged := _finished(pixels, about, total)) is None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with lock(folder / f"{key}.lock", wait=True):
                if (enlarged := _finished(pixels, about, total)) is None:
                    about.unlink(missing_ok=True)
                    enlarged, digest = _build(paths, size, pixels, progress, workers)
                    facts = {"images": len(paths), "size": size, "enlarged": enlarged, "sha256": digest}
                    write_json(about, {"format": FORMAT, **facts})
        except OSError as error:
            raise Mistake(
                f"{folder}: {total / 1e9:.1f} GB of decoded images cannot be kept there ({error.strerror}); "
                "$MDMT_CACHE names another folder"
            ) from None
    # A private map: the pages are those of the file, and a stray write would not reach it.
    flat = torch.from_file(str(pixels), shared=False, size=total, dtype=torch.uint8)
    return Images(flat.view(-1, 3, size, size), enlarged)


def decode(path: Path, size: int) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.uint8]], bool]:
    """One image as (3, size, size), turned upright as its camera says; and whether it had to be enlarged."""
    try:
        with Image.open(path) as opened:
            small = opened.width < size and opened.height < size
            image = ImageOps.exif_transpose(opened)
            if image.mode.startswith("I;16"):  # 16 bits: a plain conversion would cut them off
                image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            if "transparency" in image.info:
                image = image.convert("RGBA")
            image = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    except FileNotFoundError:
        raise Mistake(f"{path} is missing") from None
    except Exception as error:  # a broken file can raise almost anything
        reason = "not an image" if isinstance(error, UnidentifiedImageError) else f"a broken image: {error}"
        raise Mistake(f"{path} is {reason}".splitlines()[0]) from None
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1)), small


def _key(paths: Sequence[Path], size: int) -> str:
    digest = hashlib.sha256(f"{FORMAT} {size}\n".encode())
    for path in paths:
        try:
            about = os.stat(path)
        except OSError:
            raise Mistake(f"{path} is missing") from None
        digest.update(os.fsencode(f"{os.path.abspath(path)}\0{about.st_size}\0{about.st_mtime_ns}\n"))
    return digest.hexdigest()[:32]


def _finished(pixels: Path, about: Path, total: int) -> int | None:
    """How many images of a finished cache were enlarged; None when there is no such cache."""
    try:
        facts = json.loads(about.read_text())
        return int(facts["enlarged"]) if pixels.stat().st_size == total else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _build(
    paths: Sequence[Path], size: int, target: Path, progress: Progress | None, workers: int | None
) -> tuple[int, str]:
    """Write the pixels whole or not at all; give how many were enlarged, and the checksum."""
    for left in target.parent.glob(f".{target.name}.*.tmp"):  # by one that was killed
        left.unlink(missing_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    enlarged, done, digest = 0, 0, hashlib.sha256()
    try:
        with open(temporary, "wb") as file:
            for data, small, count in _decoded(paths, size, workers or os.cpu_count() or 1):
                file.write(data)
                digest.update(data)
                enlarged, done = enlarged + small, done + count
                if progress is not None:
                    progress(done, len(paths))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    return enlarged, digest.hexdigest()


def _decoded(paths: Sequence[Path], size: int, workers: int) -> Iterator[tuple[bytes, int, int]]:
    """Pieces in order, decoded by threads (Pillow lets others run meanwhile); few are in memory at a time."""

    def piece(some: Sequence[Path]) -> tuple[bytes, int, int]:
        images = [decode(path, size) for path in some]
        return b"".join(pixels.tobytes() for pixels, _ in images), sum(small for _, small in images), len(some)

    pieces = (paths[start : start + PIECE] for start in range(0, len(paths), PIECE))
    with ThreadPoolExecutor(workers, thread_name_prefix="decode") as pool:
        waiting: deque[Future[tuple[bytes, int, int]]] = deque()
        try:
            for some in islice(pieces, 2 * workers):
                waiting.append(pool.submit(piece, some))
            while waiting:
                yield waiting.popleft().result()
                if (some_more := next(pieces, None)) is not None:
                    waiting.append(pool.submit(piece, some_more))
        finally:
            for future in waiting:
                future.cancel()
