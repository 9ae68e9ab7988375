"""Downloading one file over HTTPS into a `.part` file, going on where an earlier try broke off."""

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

Progress = Callable[[str, int, int | None], None]
TIMEOUT = 60  # seconds without a byte


def check_address(url: str, local: bool) -> None:
    """Only https; http where it is asked for and does not leave this machine."""
    scheme, host = urlsplit(url).scheme, urlsplit(url).hostname
    if scheme == "https" and host:
        return
    if not (local and scheme == "http" and host and _loopback(host)):
        raise Mistake(f"{url} is refused: data is fetched over https only")


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect only to an address that could have been asked for."""

    def __init__(self, local: bool) -> None:
        self.local = local

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        try:
            check_address(newurl, self.local)
        except ValueError:
            fp.close()
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def download(url: str, part: Path, file: File, progress: Progress | None = None, *, local: bool = False) -> None:
    """Bring `part` to the full length of the file; a ValueError says what went wrong and keeps what is of use."""
    check_address(url, local)
    local = local and urlsplit(url).scheme == "http"
    try:
        with open(part, "ab") as out:
            if file.exact and out.tell() > file.size:
                out.truncate(0)
            if not (file.exact and out.tell() == file.size):
                with _answer(url, out, local) as answer:
                    _receive(answer, out, url, file, progress)
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:  # the network's errors are ValueErrors by now
        raise Mistake(f"{part}: {error.strerror}; free some space or choose another folder, and try again") from None
    finally:
        if part.exists() and part.stat().st_size == 0:
            part.unlink()


def _answer(url: str, out: IO[bytes], local: bool) -> http.client.HTTPResponse:
    """The server's answer to a request for what is not there yet; `out` is emptied where it sends all."""
    handlers: list[Any] = [_Redirects(local)]
    if local:
        handlers.append(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, headers={"User-Agent": "mdmt", "Accept-Encoding": "identity"})
    have = os.fstat(out.fileno()).st_size
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        answer: http.client.HTTPResponse = urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and have:  # nothing to send from there on: what is there is of no use
            out.truncate(0)
            return _answer(url, out, local)
        if 300 <= error.code < 400:
            raise Mistake(f"{url} is refused: it redirects to an address that is not https") from None
        said = f"{error.code} {error.reason}"
        raise Unreachable(f"{url}: the server answered {said}; try later, or another address with --from") from None
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "reason", None) or error
        why = getattr(why, "strerror", None) or why
        raise Unreachable(f"{url} cannot be reached ({why}): check the network and try again") from None
    if have:
        start = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
        if answer.status != 206 or start is None or int(start[1]) != have:
            out.truncate(0)
            if answer.status == 206:  # a piece we did not ask for
                answer.close()
                return _answer(url, out, local)
    return answer


def _receive(answer: http.client.HTTPResponse, out: IO[bytes], url: str, file: File, progress: Progress | None) -> None:
    done = os.fstat(out.fileno()).st_size
    announced = answer.headers.get("Content-Length", "")
    total = done + int(announced) if announced.isdecimal() else None
    if file.exact and total is not None and total != file.size:
        raise Mistake(f"{url}: wrong length, the server offers {total} bytes, the published file has {file.size}")
    total = file.size if file.exact else total
    most = file.size if file.exact else 2 * file.size
    while True:
        if progress is not None:
            progress(file.name, done, total)
        try:
            block = answer.read(1 << 18)
        except http.client.IncompleteRead as error:
            block = error.partial
        except (OSError, http.client.HTTPException):
            block = b""
        if not block:
            break
        done += len(block)
        if done > most:
            out.truncate(0)
            raise Mistake(
                f"{url}: wrong length, the server sends more than the {file.size} bytes of the published file"
            )
        out.write(block)
    if done == 0:
        raise Mistake(f"{url}: the server sent nothing; try later, or another address with --from")
    if total is not None and done < total:
        raise Mistake(f"{url}: the connection broke after {done} of {total} bytes; the same command goes on from there")
