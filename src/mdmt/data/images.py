"""Images, decoded once into a file of pixels and read from it through a memory map.

A cache is two files: `<key>.u8`, the pixels, and `<key>.json`, which describes them. The second is
written last, so a cache without it is incomplete and gets decoded again. The key is a hash of the
image size and of the image files: their paths, sizes and times.
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
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from mdmt.data.sources import cache_folder
from mdmt.errors import Mistake
from mdmt.inputs.maps import map_file
from mdmt.system.files import lock, new_file, remove_leftovers, write_json

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif")
CACHE_FORMAT = 1
IMAGES_AT_ONCE = 32  # images that a thread decodes at a time
OnImage = Callable[[int, int], None]  # images done, images in all


@dataclass(frozen=True)
class Images:
    """Pixels of shape (N, 3, size, size), uint8, read through a memory map."""

    pixels: Tensor
    enlarged: int  # the number of images that were smaller than `size`
    broken: dict[int, str]  # the reason why an image cannot be read, by number; its pixels are 0


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
    """The pixels of one image, (3, size, size), and whether it was smaller than `size`."""

    pixels: NDArray[np.uint8]
    enlarged: bool


@dataclass(frozen=True)
class _Piece:
    """Consecutive images in the form in which the cache stores them."""

    data: bytes
    images: int
    enlarged: int
    broken: dict[int, str]


class _Facts(TypedDict):
    """The content of `<key>.json`."""

    images: int
    size: int
    enlarged: int
    broken: dict[str, str]
    sha256: str


def load_images(
    paths: Sequence[Path],
    size: int,
    *,
    cache: str | Path | None = None,
    progress: OnImage | None = None,
    skip_broken: bool = False,
) -> Images:
    """Load images as RGB, resized to size x size (bilinear, ignoring the aspect ratio), in order.

    PIL's bilinear filter is antialiased: each pixel is a mean over all the pixels that it covers.
    The published runs took four neighbours only, so their images were sharper, with aliasing.

    Images are decoded on first use; two processes that load the same images decode them once.
    Missing or broken files raise one Mistake that names them all and leave no cache, unless
    `skip_broken` is set.
    """
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise Mistake(f"image_size={size!r}: must be a whole number, 1 or more")
    if not paths:
        raise Mistake("no images were given")
    folder = Path(cache) if cache is not None else cache_folder() / "images"
    pixels = folder / f"{_key(paths, size)}.u8"
    total = len(paths) * 3 * size * size
    try:
        facts = _read_facts(pixels, total)
        if facts is None:
            facts = _decode_once(paths, size, pixels, progress, skip_broken)
    except OSError as error:
        raise Mistake(
            f"{folder}: cannot store {total / 1e9:.1f} GB of decoded images there "
            f"({error.strerror}); set $MDMT_CACHE to another folder"
        ) from None
    broken = {int(number): reason for number, reason in facts["broken"].items()}
    if broken and not skip_broken:
        raise BrokenImages(list(broken.values()))
    # A private map: it shares the pages of the file, but a stray write does not reach the file.
    flat = map_file(pixels, total)
    return Images(flat.view(-1, 3, size, size), facts["enlarged"], broken)


def decode(path: Path, size: int) -> Picture:
    """Decode one image, turned upright as its EXIF orientation says."""
    try:
        with Image.open(path) as opened:
            enlarged = opened.width < size and opened.height < size
            if opened.mode in ("F", "I"):
                raise Mistake(
                    f"{path} has floating-point, signed or 32-bit pixels, whose range is unknown:"
                    " save it with 8 or 16 bits a pixel, without a sign"
                )
            image = ImageOps.exif_transpose(opened)
            if image.mode.startswith("I;16"):  # 16 bits: a plain conversion would clip them
                image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            if "transparency" in image.info:
                image = image.convert("RGBA")
            image = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    except Mistake:
        raise
    except FileNotFoundError:
        raise Mistake(f"{path} is missing") from None
    except UnidentifiedImageError:
        raise Mistake(f"{path} is not an image") from None
    except Exception as error:  # a broken file can raise almost anything
        raise Mistake(f"{path} is a broken image: {error}".splitlines()[0]) from None
    return Picture(np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1)), enlarged)


def _key(paths: Sequence[Path], size: int) -> str:
    digest = hashlib.sha256(f"{CACHE_FORMAT} {size}\n".encode())
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


def _read_facts(pixels: Path, total: int) -> _Facts | None:
    """Read the description of a complete cache; None if the cache is missing or incomplete."""
    try:
        content: Any = {"broken": {}, **json.loads(_description(pixels).read_text())}
        content["enlarged"] = int(content["enlarged"])
        facts: _Facts = content
        return facts if pixels.stat().st_size == total else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _description(pixels: Path) -> Path:
    return pixels.with_suffix(".json")


def _decode_once(
    paths: Sequence[Path], size: int, pixels: Path, progress: OnImage | None, skip_broken: bool
) -> _Facts:
    """Decode the images into a cache, unless another process does it meanwhile."""
    pixels.parent.mkdir(parents=True, exist_ok=True)
    with lock(pixels.with_suffix(".lock"), wait=True):
        facts = _read_facts(pixels, len(paths) * 3 * size * size)
        if facts is None:
            _description(pixels).unlink(missing_ok=True)
            facts = _build(paths, size, pixels, progress, skip_broken)
            write_json(_description(pixels), {"format": CACHE_FORMAT, **facts})
    return facts


def _build(
    paths: Sequence[Path], size: int, target: Path, progress: OnImage | None, skip_broken: bool
) -> _Facts:
    """Write the pixels and return their description."""
    remove_leftovers(target)
    digest = hashlib.sha256()
    images = 0
    enlarged = 0
    broken: dict[str, str] = {}
    with new_file(target) as file:
        for piece in _decode_all(paths, size):
            file.write(piece.data)
            digest.update(piece.data)
            broken |= {str(images + place): reason for place, reason in piece.broken.items()}
            images += piece.images
            enlarged += piece.enlarged
            if progress is not None:
                progress(images, len(paths))
        if broken and not skip_broken:
            raise BrokenImages(list(broken.values()))
    return {
        "images": images,
        "size": size,
        "enlarged": enlarged,
        "broken": broken,
        "sha256": digest.hexdigest(),
    }


def _decode_all(paths: Sequence[Path], size: int) -> Iterator[_Piece]:
    """Decode in threads, since Pillow releases the interpreter; yield the pieces in order.

    Only twice as many pieces as threads are in memory at a time.
    """
    workers = os.cpu_count() or 1
    pieces = (
        paths[start : start + IMAGES_AT_ONCE] for start in range(0, len(paths), IMAGES_AT_ONCE)
    )
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
    """Decode some images; a broken one is black."""
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
