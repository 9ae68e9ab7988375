"""Downloads over HTTPS into a `.part` file, which the next try continues after a failure."""

from __future__ import annotations

import http.client
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from mdmt.data.sources import File
from mdmt.errors import Mistake, Unreachable

OnBytes = Callable[[str, int, int | None], None]  # file name, bytes so far, bytes in all if known
READ_TIMEOUT = 60  # seconds without a byte


def check_address(url: str, local: bool) -> None:
    """Allow only https, and with `local` also http to this machine."""
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return
    if local and parts.scheme == "http" and parts.hostname and _is_loopback(parts.hostname):
        return
    raise Mistake(f"{url} is refused: data is fetched over https only")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follow a redirect only to an address that `check_address` allows."""

    def __init__(self, local: bool) -> None:
        self.local = local

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        try:
            check_address(newurl, self.local)
        except Mistake:
            fp.close()
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def download(
    url: str, part: Path, file: File, progress: OnBytes | None = None, *, local: bool = False
) -> None:
    """Complete the `.part` file; after a failure the next try continues it."""
    check_address(url, local)
    local = local and urlsplit(url).scheme == "http"
    try:
        with open(part, "ab") as out:
            if file.exact and out.tell() > file.size:
                out.truncate(0)
            if not (file.exact and out.tell() == file.size):
                with _request(url, out, local) as response:
                    _receive(response, out, url, file, progress)
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:  # of the disk; network errors are Mistakes already
        advice = "free some disk space or choose another folder, and try again"
        raise Mistake(f"{part}: {error.strerror}; {advice}") from None
    finally:
        if part.exists() and part.stat().st_size == 0:
            part.unlink()


def _request(url: str, out: IO[bytes], local: bool) -> http.client.HTTPResponse:
    """Ask for the bytes that `out` does not have yet; empty it if the server sends all of them."""
    offset = os.fstat(out.fileno()).st_size
    try:
        response = _open(url, offset, local)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and offset:  # the server has no bytes from there on: start again
            out.truncate(0)
            return _request(url, out, local)
        if 300 <= error.code < 400:
            raise Mistake(
                f"{url} is refused: it redirects to an address that is not https"
            ) from None
        raise Unreachable(
            f"{url}: the server answered {error.code} {error.reason}; try later, or another address"
            " with --from"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        reason = getattr(reason, "strerror", None) or reason
        raise Unreachable(
            f"{url} cannot be reached ({reason}): check the network and try again"
        ) from None
    if offset:
        start = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
        if response.status != 206 or start is None or int(start[1]) != offset:
            out.truncate(0)
            if response.status == 206:  # another range than the one we asked for
                response.close()
                return _request(url, out, local)
    return response


def _open(url: str, offset: int, local: bool) -> http.client.HTTPResponse:
    handlers: list[Any] = [_Redirects(local)]
    if local:
        handlers.append(urllib.request.ProxyHandler({}))
    headers = {"User-Agent": "mdmt", "Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    # `_request` and `_Redirects` refuse what is not https, or http on this machine.
    request = urllib.request.Request(url, headers=headers)  # noqa: S310
    response: http.client.HTTPResponse
    response = urllib.request.build_opener(*handlers).open(request, timeout=READ_TIMEOUT)
    return response


def _receive(
    response: http.client.HTTPResponse,
    out: IO[bytes],
    url: str,
    file: File,
    progress: OnBytes | None,
) -> None:
    done = os.fstat(out.fileno()).st_size
    length = response.headers.get("Content-Length", "")
    total = done + int(length) if length.isdecimal() else None
    limit = 2 * file.size
    if file.exact:
        if total not in (None, file.size):
            raise Mistake(
                f"{url}: wrong length, the server offers {total} bytes, the published file has"
                f" {file.size}"
            )
        total = limit = file.size
    while True:
        if progress is not None:
            progress(file.name, done, total)
        block = _read_block(response)
        if not block:
            break
        done += len(block)
        if done > limit:
            out.truncate(0)
            raise Mistake(
                f"{url}: wrong length, the server sends more than the {file.size} bytes of the"
                " published file"
            )
        out.write(block)
    if done == 0:
        raise Mistake(f"{url}: the server sent nothing; try later, or another address with --from")
    if total is not None and done < total:
        raise Mistake(
            f"{url}: the connection broke after {done} of {total} bytes; run the same command again"
            " to continue"
        )


def _read_block(response: http.client.HTTPResponse) -> bytes:
    """Read the next bytes; none at the end, or if the connection breaks."""
    try:
        return response.read(1 << 18)
    except http.client.IncompleteRead as error:
        return error.partial
    except (OSError, http.client.HTTPException):
        return b""
