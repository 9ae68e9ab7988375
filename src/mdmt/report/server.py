"""The page served on this machine alone while runs are going on; it shows what is there when it is asked for."""

from __future__ import annotations

import hashlib
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from mdmt.experiments.store import CHECKPOINT, CONFIG, FAILED, RECORD, find_runs
from mdmt.report import page, study

HOST = "127.0.0.1"


class Watched:
    """The page of a folder, made anew when something in it has changed."""

    def __init__(self, runs: Path) -> None:
        self.runs, self.lock = runs, threading.Lock()
        self.made: tuple[str, bytes] = ("", b"")

    def version(self) -> str:
        """A word that changes when a run begins, writes a checkpoint, ends or is removed."""
        parts = []
        for folder in find_runs(self.runs):
            for name in (CONFIG, RECORD, FAILED, f"{CHECKPOINT}/state.json"):
                try:
                    found = (folder.path / name).stat()
                except OSError:
                    continue
                parts.append(f"{folder.path / name} {found.st_mtime_ns} {found.st_size}")
            parts.append(str(folder.is_running))
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    def html(self) -> bytes:
        """The page as it should be now. While runs go on, t-SNE is shown where it is known, and not computed."""
        with self.lock:
            version = self.version()
            if self.made[0] != version:
                studies, absent = study.read(find_runs(self.runs))
                idle = not any(one.running for one in absent)
                drawn = page.drawings(studies, self.runs / ".tsne", compute=idle)
                text = page.render(drawn, absent, where=str(self.runs), watched=version)
                self.made = version, text.encode()
            return self.made[1]


def server(runs: Path, port: int) -> ThreadingHTTPServer:
    """A server of two addresses, the page and its version, that this machine alone can reach."""
    watched = Watched(runs)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answer; a name other than this machine's is refused, so that no web page elsewhere can read the runs."""
            here = serving.server_port
            if self.headers.get("Host") not in (f"{HOST}:{here}", f"localhost:{here}"):
                self.send_error(403)
            elif self.path == "/":
                self._send("text/html; charset=utf-8", watched.html())
            elif self.path == "/version":
                self._send("text/plain", watched.version().encode())
            else:
                self.send_error(404)

        def _send(self, kind: str, content: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            with suppress(ConnectionError):  # the reader has gone
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: a line every two seconds helps nobody."""

    serving = ThreadingHTTPServer((HOST, port), Handler)
    return serving
