"""Images decoded once into a file of pixels, from which batches are gathered through a memory map.

A cache is two files: `<key>.u8`, the pixels, and `<key>.json`, which describes them and is written
last: without it the cache does not exist. The key is a hash of the image size and of the list of
image files, with their sizes and times.
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
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from mdmt.data.sources import cache_folder
from mdmt.errors import Mistake
from mdmt.inputs.maps import map_file
from mdmt.system.files import lock, write_json

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif")
FORMAT = 1
PIECE = 32  # images that one thread decodes before it hands them over
Progress = Callable[[int, int], None]  # images done, images in all


@dataclass(frozen=True)
class Images:
    """Pixels, (N, 3, size, size) uint8, read through the memory map."""

    pixels: Tensor
    enlarged: int  # how many images were smaller than that
    broken: dict[int, str]  # why some cannot be read, by number; their pixels are 0


class BrokenImages(Mistake):
    """Images that cannot be read, each with the reason."""

    def __init__(self, reasons: Sequence[str], advice: str = "") -> None:
        self.reasons = list(reasons)
        text = "; ".join(self.reasons)
        if len(self.reasons) > 1:
            text = f"{len(self.reasons)} images cannot be read: {text}"
        super().__init__(text + advice)


@dataclass(frozen=True)
class Picture:
    """The pixels of one image, (3, size, size), and whether it was smaller than that."""

    pixels: NDArray[np.uint8]
    enlarged: bool


@dataclass(frozen=True)
class _Piece:
    """A few images as they are written to the cache."""

    data: bytes
    images: int
    enlarged: int
    broken: dict[int, str]


def load_images(
    paths: Sequence[Path],
    size: int,
    *,
    cache: str | Path | None = None,
    progress: Progress | None = None,
    workers: int | None = None,
    skip_broken: bool = False,
) -> Images:
    """Load images as RGB, resized to size x size (bilinear, ignoring the aspect ratio), in order.

    PIL's bilinear filter is antialiased: a pixel of a smaller image is a mean over all that it
    covers. The published runs took four neighbours of each pixel, so theirs were sharper, with
    aliases.

    They are decoded on first use. Files that are missing, broken or no images are one Mistake with
    their paths, and leave no cache, unless `skip_broken`. Two processes that want the same images
    decode them once.
    """
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise Mistake(f"image_size={size!r}: must be a whole number, 1 or more")
    if not paths:
        raise Mistake("no images were given")
    folder = Path(cache) if cache is not None else cache_folder() / "images"
    key = _key(paths, size)
    pixels = folder / f"{key}.u8"
    about = folder / f"{key}.json"
    total = len(paths) * 3 * size * size
    facts = _read_facts(pixels, about, total)
    if facts is None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with lock(folder / f"{key}.lock", wait=True):
                facts = _read_facts(pixels, about, total)  # another process may be done
                if facts is None:
                    about.unlink(missing_ok=True)
                    facts = _build(paths, size, pixels, progress, workers, skip_broken)
                    write_json(about, {"format": FORMAT, **facts})
        except OSError as error:
            raise Mistake(
                f"{folder}: cannot store {total / 1e9:.1f} GB of decoded images there "
                f"({error.strerror}); set $MDMT_CACHE to another folder"
            ) from None
    broken = {int(number): reason for number, reason in facts["broken"].items()}
    if broken and not skip_broken:
        raise BrokenImages(list(broken.values()))
    # A private map: the pages are those of the file, and a stray write does not reach it.
    flat = map_file(pixels, total)
    return Images(flat.view(-1, 3, size, size), int(facts["enlarged"]), broken)


def decode(path: Path, size: int) -> Picture:
    """Decode one image, turned upright as its camera says."""
    try:
        with Image.open(path) as opened:
            enlarged = opened.width < size and opened.height < size
            image = ImageOps.exif_transpose(opened)
            if image.mode.startswith("I;16"):  # 16 bits: a plain conversion would clip them
                image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            if "transparency" in image.info:
                image = image.convert("RGBA")
            image = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    except FileNotFoundError:
        raise Mistake(f"{path} is missing") from None
    except UnidentifiedImageError:
        raise Mistake(f"{path} is not an image") from None
    except Exception as error:  # a broken file can raise almost anything
        raise Mistake(f"{path} is a broken image: {error}".splitlines()[0]) from None
    return Picture(np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1)), enlarged)


def _key(paths: Sequence[Path], size: int) -> str:
    digest = hashlib.sha256(f"{FORMAT} {size}\n".encode())
    missing: list[str] = []
    for path in paths:
        try:
            about = os.stat(path)
        except OSError:
            missing.append(f"{path} is missing")
            continue
        line = f"{os.path.abspath(path)}\0{about.st_size}\0{about.st_mtime_ns}\n"
        digest.update(os.fsencode(line))
    if missing:
        raise BrokenImages(missing)
    return digest.hexdigest()[:32]


def _read_facts(pixels: Path, about: Path, total: int) -> dict[str, Any] | None:
    """Read what a complete cache says of itself; None if there is no such cache."""
    try:
        facts = {"broken": {}, **json.loads(about.read_text())}
        _ = int(facts["enlarged"])
        return facts if pixels.stat().st_size == total else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _build(
    paths: Sequence[Path],
    size: int,
    target: Path,
    progress: Progress | None,
    workers: int | None,
    skip_broken: bool,
) -> dict[str, Any]:
    """Write the pixels completely or not at all, and return what to say about them."""
    for leftover in target.parent.glob(f".{target.name}.*.tmp"):  # of a process that was killed
        leftover.unlink(missing_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    digest = hashlib.sha256()
    images = 0
    enlarged = 0
    broken: dict[str, str] = {}
    try:
        with open(temporary, "wb") as file:
            for piece in _decode_all(paths, size, workers or os.cpu_count() or 1):
                file.write(piece.data)
                digest.update(piece.data)
                broken |= {str(images + place): reason for place, reason in piece.broken.items()}
                images += piece.images
                enlarged += piece.enlarged
                if progress is not None:
                    progress(images, len(paths))
            if broken and not skip_broken:
                raise BrokenImages(list(broken.values()))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    return {
        "images": images,
        "size": size,
        "enlarged": enlarged,
        "broken": broken,
        "sha256": digest.hexdigest(),
    }


def _decode_all(paths: Sequence[Path], size: int, workers: int) -> Iterator[_Piece]:
    """Decode in threads (Pillow releases the interpreter), in order; few pieces are in memory."""
    pieces = (paths[start : start + PIECE] for start in range(0, len(paths), PIECE))
    with ThreadPoolExecutor(workers, thread_name_prefix="decode") as pool:
        queue: deque[Future[_Piece]] = deque()
        try:
            for piece in islice(pieces, 2 * workers):
                queue.append(pool.submit(_decode_piece, piece, size))
            while queue:
                yield queue.popleft().result()
                if (piece_paths := next(pieces, None)) is not None:
                    queue.append(pool.submit(_decode_piece, piece_paths, size))
        finally:
            for future in queue:
                future.cancel()


def _decode_piece(paths: Sequence[Path], size: int) -> _Piece:
    """Decode some images; one that is broken is black."""
    pixels: list[bytes] = []
    enlarged = 0
    broken: dict[int, str] = {}
    for place, path in enumerate(paths):
        try:
            picture = decode(path, size)
        except Mistake as reason:
            broken[place] = str(reason)
            pixels.append(bytes(3 * size * size))
        else:
            pixels.append(picture.pixels.tobytes())
            enlarged += picture.enlarged
    return _Piece(b"".join(pixels), len(paths), enlarged, broken)
