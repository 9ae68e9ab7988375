"""`mdmt data`: list the data sets, fetch them, verify them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from mdmt.cli.options import Json, Quiet
from mdmt.cli.progress import DownloadBar
from mdmt.errors import Mistake

app = typer.Typer(
    help="List, fetch and verify data sets.", no_args_is_help=True, rich_markup_mode=None
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
