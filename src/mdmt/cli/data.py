"""`mdmt data`: list the data sets, fetch them, verify them; list and clear the cache."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mdmt.cli.options import Json, Quiet, Yes, may_remove
from mdmt.cli.progress import DownloadBar
from mdmt.errors import Mistake
from mdmt.words import bytes_text, count, printable

if TYPE_CHECKING:
    from mdmt.data.cache import Entry

app = typer.Typer(
    help="List, fetch and verify data sets. And the cache of decoded images.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(help="Name of a data set: see `mdmt data list`.")]
DataFolder = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Folder of data sets (default: $MDMT_DATA, or your cache folder).",
    ),
]


@app.command("list")
def list_(data: DataFolder = None, json: Json = False) -> None:
    """List the data sets, with their folder, size and licence."""
    from mdmt.data.sources import SOURCES, data_folder

    folder = data_folder(data)
    statuses = {name: status(name, folder) for name in SOURCES}
    rows = {name: _row(name, status) for name, status in statuses.items()}
    if json:
        _print_json({"folder": str(folder), "data": rows})
        return
    print(f"data folder: {folder}")
    for name, row in rows.items():
        text = row | {
            "size": _size(row),
            "where": "\n         or ".join(map(str, statuses[name].places)),
        }
        print(f"\n{name}: {row['state']}")
        for key in ("title", "where", "size", "checksum", "licence"):
            print(f"  {key:9} {text[key]}")


@app.command()
def fetch(
    name: Name,
    data: DataFolder = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="URL", help="Another https address that has the files."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Download a data set, verify it and unpack it.

    After an interruption the same command continues the download.
    """
    from mdmt.data.fetch import fetch as fetch_one
    from mdmt.data.sources import data_folder

    folder = data_folder(data)
    before = status(name, folder).state
    with DownloadBar(quiet or json) as bar:
        try:
            fetch_one(name, folder, bar.step, base=from_)
        except KeyboardInterrupt:
            raise Mistake("interrupted; run the same command again to continue") from None
    row = _row(name, status(name, folder))
    if json:
        _print_json({"name": name, **row})
    else:
        outcomes = {"missing": f"fetched, {row['checksum']}", "present, packed": "unpacked"}
        outcome = outcomes.get(before, "already present")
        print(f"{name}: {outcome}: {row['where']} (licence: {row['licence']})")


@app.command()
def verify(name: Name, data: DataFolder = None, json: Json = False) -> None:
    """Check the structure of a data set, and its bytes.

    The bytes are compared with what the publisher says of them: checksums, or the archive.
    """
    from mdmt.data.verify import verify as verify_one

    report = verify_one(name, data)
    if json:
        _print_json(
            {
                "name": name,
                "folder": str(report.folder),
                "structure": "right",
                "figures": report.figures,
                "bytes": report.comparison.verdict,
                "why": report.comparison.reason,
            }
        )
        return
    print(report.folder)
    for key, value in report.figures.items():
        print(f"  {key:15} {' '.join(map(str, value)) if isinstance(value, list) else value}")
    print(report.line)


@app.command()
def cache(
    name: Annotated[
        str | None,
        typer.Argument(help="The beginning of a name, or a part of the images' folder."),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove them.")] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """List the decoded images that are kept. With their size and last use.

    With --clear, they are removed; they are decoded again when a run needs them.
    """
    from mdmt.data.cache import entries, images_folder, remove

    folder = images_folder()
    chosen = _choose(entries(folder), name)
    if clear:
        texts = [f"{_images_text(one)}, {bytes_text(one.bytes)}" for one in chosen]
        chosen = [
            one
            for one, text in zip(chosen, texts, strict=True)
            if may_remove(one.name[:NAME_LENGTH], text, yes)
        ]
        for one in chosen:
            remove(one)
    rows = [_cache_row(one) for one in chosen]
    if json:
        _print_json({"folder": str(folder), "removed" if clear else "images": rows})
        return
    print(f"cache folder: {folder}")
    for one, row in zip(chosen, rows, strict=True):
        print(f"\n{row['name']}: {_images_text(one)}{', removed' if clear else ''}")
        print(f"  images    {printable(row['images'] or 'unknown')}")
        print(f"  size      {bytes_text(row['bytes'])}")
        print(f"  used      {one.used:%Y-%m-%d %H:%M}")
    total = bytes_text(sum(one.bytes for one in chosen)) if chosen else "nothing"
    print(f"\n{total} {'removed' if clear else 'kept'}")


NAME_LENGTH = 12  # letters of a cache's name that are shown


def _choose(found: list[Entry], name: str | None) -> list[Entry]:
    """The entries that a name stands for; None stands for all."""
    chosen = [
        one
        for one in found
        if name is None or one.name.startswith(name) or (one.about and name in one.about.folder)
    ]
    if name is not None and not chosen:
        raise Mistake(f"nothing in the cache is named {name!r}: see `mdmt data cache`")
    return chosen


def _images_text(entry: Entry) -> str:
    """What an entry holds, in words."""
    if entry.about is None:
        return "unfinished, damaged or of another version of mdmt"
    of_all = count("image", len(entry.about.checksums))
    return f"{entry.decoded:,} of {of_all}, {entry.about.size} x {entry.about.size} pixels"


def _cache_row(entry: Entry) -> dict[str, Any]:
    """A part of the cache as --json prints it."""
    about = entry.about
    return {
        "name": entry.name[:NAME_LENGTH],
        "images": None if about is None else about.folder,
        "decoded": entry.decoded,
        "of": None if about is None else len(about.checksums),
        "image_size": None if about is None else about.size,
        "bytes": entry.bytes,
        "used": entry.used.isoformat(timespec="seconds"),
    }


DataSetRow = dict[str, Any]  # a data set as --json prints it


@dataclass(frozen=True)
class Status:
    """Whether a data set is present, and where it lies or would lie."""

    state: str
    places: list[Path]


def status(name: str, folder: Path) -> Status:
    """Look for a data set."""
    from mdmt.data.sources import find_data_set, locate, substitute_note

    source = find_data_set(name)
    try:
        location = locate(name, folder)
    except Mistake:
        places = [folder / place for place in source.folders]
        if source.archive:
            places.append(folder / source.files[0].name)
        return Status("missing", places)
    state = "present" if location.archive is None else "present, packed"
    if substitute_note(location) is not None:
        state = "substitute images"
    return Status(state, [location.archive or location.folder])


def _row(name: str, status: Status) -> DataSetRow:
    """A data set as --json prints it."""
    from mdmt.data.sources import find_data_set

    source = find_data_set(name)
    return {
        "title": source.title,
        "state": status.state,
        "where": " or ".join(map(str, status.places)),
        "size": sum(file.size for file in source.files),
        "exact": all(file.exact for file in source.files),
        "licence": source.licence,
        "checksum": source.files[0].checksum,
        "urls": [file.urls[0] for file in source.files],
    }


def _size(row: DataSetRow) -> str:
    return ("" if row["exact"] else "about ") + f"{row['size'] / 1e6:,.1f} MB to download"


def _print_json(content: Any) -> None:
    import json

    print(json.dumps(content))
