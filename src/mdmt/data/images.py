"""Images, decoded once into a file of pixels and read from it through a memory map.

`data/cache.py` describes the files.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from mdmt.data.cache import FORMAT, PixelFile, images_folder
from mdmt.errors import Mistake, first_line
from mdmt.inputs.maps import map_file
from mdmt.system.files import lock
from mdmt.words import count

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif")
IMAGES_AT_ONCE = 32  # images that a thread decodes at a time
OnImage = Callable[[int, int], None]  # images done, images in all


@dataclass(frozen=True)
class Images:
    """Pixels of shape (N, 3, size, size), uint8, read through a memory map."""

    pixels: Tensor
    enlarged: int  # the number of images that were smaller than `size`
    broken: dict[int, str]  # the reason why an image cannot be read, by number; its pixels are 0
    notes: tuple[str, ...] = ()  # lines for the user


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
class _Result:
    """An image in the form in which the cache stores it; a broken one is black."""

    row: int
    pixels: bytes
    enlarged: bool = False
    broken: str | None = None


def load_images(
    paths: Sequence[Path],
    size: int,
    *,
    rows: Iterable[int] | None = None,
    cache: str | Path | None = None,
    progress: OnImage | None = None,
    skip_broken: bool = False,
) -> Images:
    """Load images as RGB, resized to size x size (bilinear, ignoring the aspect ratio), in order.

    PIL's bilinear filter is antialiased: each pixel is a mean over all the pixels that it covers.
    The published runs took four neighbours only, so their images were sharper, with aliasing.

    Images are decoded on first use; two processes that load the same images decode them once. With
    `rows`, only these are decoded and may be read. Pixels that were damaged are decoded again,
    with a note. Missing or broken files raise one Mistake, unless `skip_broken` is set.
    """
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise Mistake(f"image_size={size!r}: must be a whole number, 1 or more")
    wanted = sorted(set(range(len(paths)) if rows is None else rows))
    if not wanted:
        raise Mistake("no images were given")
    folder = Path(cache) if cache is not None else images_folder()
    try:
        pixels, damaged = _fill_cache(paths, size, wanted, folder, progress, skip_broken)
    except OSError as error:
        raise Mistake(
            f"{folder}: cannot store {len(wanted) * 3 * size * size / 1e9:.1f} GB of decoded images"
            f" there ({error.strerror}); set $MDMT_CACHE to another folder"
        ) from None
    about = pixels.about
    broken = {row: about.broken[row] for row in wanted if row in about.broken}
    if broken and not skip_broken:
        raise BrokenImages(list(broken.values()))
    # A private map: it shares the pages of the file, but a stray write does not reach the file.
    flat = map_file(pixels.path, pixels.total)
    enlarged = len(set(about.enlarged).intersection(wanted))
    note = f"{pixels.path} was damaged: {count('image', len(damaged))} decoded again"
    return Images(flat.view(-1, 3, size, size), enlarged, broken, (note,) if damaged else ())


def decode(source: Path | IO[bytes], size: int, name: str | None = None) -> Picture:
    """Decode one image, turned upright as its EXIF orientation says; messages call it `name`."""
    path = name or source
    try:
        with Image.open(source) as opened:
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
        raise Mistake(f"{path} is a broken image: {first_line(error)}") from None
    return Picture(np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1)), enlarged)


def as_grey(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """An image of three channels as one of one channel."""
    return np.asarray(Image.fromarray(pixels.transpose(1, 2, 0)).convert("L"))[None]


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


def _fill_cache(
    paths: Sequence[Path],
    size: int,
    wanted: Sequence[int],
    folder: Path,
    progress: OnImage | None,
    skip_broken: bool,
) -> tuple[PixelFile, list[int]]:
    """Decode the images that are missing or damaged in the cache; return also the damaged ones.

    If another process is decoding, wait for it: it may decode the same images.
    """
    place = os.path.commonpath([os.path.abspath(path.parent) for path in paths])
    pixels = PixelFile(folder / f"{_key(paths, size)}.u8", len(paths), size, place)
    damaged = pixels.damaged(wanted)
    if damaged or pixels.missing(wanted):
        folder.mkdir(parents=True, exist_ok=True)
        with lock(pixels.path.with_suffix(".lock"), wait=True):
            pixels.read()
            damaged = pixels.damaged(wanted)
            todo = sorted({*damaged, *pixels.missing(wanted)})
            if todo:
                _decode_into(pixels, paths, todo, progress, skip_broken)
    pixels.mark_used()
    return pixels, damaged


def _decode_into(
    pixels: PixelFile,
    paths: Sequence[Path],
    rows: Sequence[int],
    progress: OnImage | None,
    skip_broken: bool,
) -> None:
    about = pixels.about
    enlarged = set(about.enlarged)
    broken: dict[int, str] = {}
    with pixels.writing() as file:
        for done, result in enumerate(_decode_all(paths, rows, pixels.size), 1):
            pixels.write(file, result.row, result.pixels)
            if result.enlarged:
                enlarged.add(result.row)
            if result.broken is not None:
                broken[result.row] = result.broken
            if progress is not None and (done % IMAGES_AT_ONCE == 0 or done == len(rows)):
                progress(done, len(rows))
        if broken and not skip_broken:
            raise BrokenImages(list(broken.values()))
        about.broken |= broken
        about.enlarged = sorted(enlarged)


def _decode_all(paths: Sequence[Path], rows: Sequence[int], size: int) -> Iterator[_Result]:
    """Decode in threads, since Pillow releases the interpreter; yield the images in order.

    Only twice as many pieces as threads are in memory at a time.
    """
    workers = os.cpu_count() or 1
    pieces = (rows[start : start + IMAGES_AT_ONCE] for start in range(0, len(rows), IMAGES_AT_ONCE))
    with ThreadPoolExecutor(workers, thread_name_prefix="decode") as pool:
        queue: deque[Future[list[_Result]]] = deque()
        try:
            for piece in islice(pieces, 2 * workers):
                queue.append(pool.submit(_decode_piece, paths, piece, size))
            while queue:
                yield from queue.popleft().result()
                if (piece_rows := next(pieces, None)) is not None:
                    queue.append(pool.submit(_decode_piece, paths, piece_rows, size))
        finally:
            for future in queue:
                future.cancel()


def _decode_piece(paths: Sequence[Path], rows: Sequence[int], size: int) -> list[_Result]:
    return [_decode_one(paths[row], row, size) for row in rows]


def _decode_one(path: Path, row: int, size: int) -> _Result:
    try:
        picture = decode(path, size)
    except Mistake as reason:
        return _Result(row, bytes(3 * size * size), broken=str(reason))
    return _Result(row, picture.pixels.tobytes(), picture.enlarged)
