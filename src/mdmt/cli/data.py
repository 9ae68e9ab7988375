"""`mdmt data`: which data sets there are, fetching them, and checking them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mdmt.errors import Mistake

if TYPE_CHECKING:
    from mdmt.data.download import Progress

app = typer.Typer(help="Data sets: list, fetch, verify.", no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(help="A data set: see `mdmt data list`.")]
Data = Annotated[
    str | None, typer.Option("--data", help="Where data sets lie; else $MDMT_DATA, else the user's cache folder.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command("list")
def list_(data: Data = None, json: Json = False) -> None:
    """Each data set: where it is looked for, whether it is there, its size and its licence."""
    from mdmt.data.sources import SOURCES, data_folder

    folder = data_folder(data)
    rows = {name: _row(name, folder) for name in SOURCES}
    if json:
        _print_json({"folder": str(folder), "data": rows})
        return
    print(f"data folder: {folder}")
    for name, row in rows.items():
        print(f"\n{name}: {row['state']}")
        for key in ("title", "where", "size", "checksum", "licence"):
            print(f"  {key:9} {_size(row) if key == 'size' else row[key]}")


@app.command()
def fetch(
    name: Name,
    data: Data = None,
    from_: Annotated[
        str | None, typer.Option("--from", help="An https address that holds the files, instead of the publisher's.")
    ] = None,
    json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Download a data set, verify it and unpack it; a broken download goes on where it broke."""
    from mdmt.data.fetch import fetch as fetch_one
    from mdmt.data.sources import data_folder

    folder = data_folder(data)
    before = _row(name, folder)["state"]
    with _progress(quiet or json) as progress:
        try:
            fetch_one(name, folder, progress, base=from_)
        except KeyboardInterrupt:
            raise Mistake("interrupted; the same command goes on from there") from None
    row = _row(name, folder)
    if json:
        _print_json({"name": name, **row})
    else:
        told = {"missing": f"fetched, {row['checksum']}", "present, packed": "unpacked"}.get(before, "there already")
        print(f"{name}: {told}: {row['where']} (licence: {row['licence']})")


@app.command()
def verify(name: Name, data: Data = None, json: Json = False) -> None:
    """Check the structure of a data set and, separately, whether its bytes are the published ones."""
    from mdmt.data.verify import verify as verify_one

    report = verify_one(name, data)
    if json:
        _print_json({
            "name": name, "folder": str(report.folder), "structure": "right", "figures": report.structure,
            "bytes": report.bytes, "why": report.why,
        })  # fmt: skip
        return
    print(report.folder)
    for key, value in report.structure.items():
        print(f"  {key:15} {' '.join(map(str, value)) if isinstance(value, list) else value}")
    print(report.line)


def _row(name: str, folder: Any) -> dict[str, Any]:
    """What `list` says of a data set."""
    from mdmt.data.sources import find, locate, substitute

    source = find(name)
    try:
        parts = locate(name, folder)
        place = parts.get("archive") or next(iter(parts.values())).parent
        state = "present, packed" if "archive" in parts else "present"
        if substitute(name, folder) is not None:
            state = "substitute images"
        where = str(place)
    except ValueError:
        state, places = "missing", [folder / place for place in source.folders]
        if source.archive:
            places.append(folder / source.files[0].name)
        where = " or ".join(map(str, places))
    return {
        "title": source.title, "state": state, "where": where,
        "size": sum(file.size for file in source.files), "exact": all(file.exact for file in source.files),
        "licence": source.licence, "checksum": source.files[0].checksum,
        "urls": [file.urls[0] for file in source.files],
    }  # fmt: skip


def _size(row: dict[str, Any]) -> str:
    return ("" if row["exact"] else "about ") + f"{row['size'] / 1e6:,.1f} MB to download"


class _progress:
    """Bytes of each file and the time left, on stderr; a plain line a file where that is no terminal."""

    def __init__(self, quiet: bool) -> None:
        self.quiet, self.rows = quiet, {}  # type: tuple[bool, dict[str, Any]]

    def __enter__(self) -> Progress | None:
        if self.quiet:
            return None
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.bar.start()
        return self._step

    def _step(self, file: str, done: int, total: int | None) -> None:
        if file not in self.rows:
            self.rows[file] = self.bar.add_task(file, total=total)
            if self.bar.disable:
                size = "" if total is None else f", {total / 1e6:,.1f} MB"
                print(f"{file}{size}" + (f", going on at {done / 1e6:,.1f} MB" if done else ""), file=sys.stderr)
        self.bar.update(self.rows[file], completed=done, total=total)

    def __exit__(self, *_: object) -> None:
        if not self.quiet:
            self.bar.stop()


def _print_json(content: Any) -> None:
    import json

    print(json.dumps(content))
