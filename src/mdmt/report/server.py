"""The live report: the page of a folder of runs, served to this machine only."""

from __future__ import annotations

import hashlib
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from mdmt.report.figures import figures_of
from mdmt.report.page import render
from mdmt.report.study import read_studies
from mdmt.runs.folder import CHECKPOINT, CONFIG, FAILED, RECORD, find_runs

HOST = "127.0.0.1"


class LivePage:
    """The page of a folder of runs, rendered again whenever a run has changed."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self._lock = threading.Lock()
        self._version = ""
        self._content = b""

    def version(self) -> str:
        """A digest that changes when a run starts, writes a checkpoint, ends or is removed."""
        parts = []
        for folder in find_runs(self.runs):
            for name in (CONFIG, RECORD, FAILED, f"{CHECKPOINT}/state.json"):
                with suppress(OSError):
                    about = (folder.path / name).stat()
                    parts.append(f"{folder.path / name} {about.st_mtime_ns} {about.st_size}")
            parts.append(str(folder.is_running))
        return hashlib.sha256("\n".join(parts).encode(errors="surrogateescape")).hexdigest()[:16]

    def html(self) -> bytes:
        """The current page. During a run it uses cached t-SNE only, to leave the run its time."""
        with self._lock:
            version = self.version()
            if version != self._version:
                studies, unusable = read_studies(find_runs(self.runs))
                idle = not any(run.is_running for run in unusable)
                figures = figures_of(studies, self.runs / ".tsne", compute=idle)
                text = render(figures, unusable, where=str(self.runs), version=version)
                self._version = version
                self._content = text.encode()
            return self._content


def make_server(runs: Path, port: int) -> ThreadingHTTPServer:
    """A server of the page and its version, reachable from this machine only."""
    page = LivePage(runs)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # Other host names are refused, so that no web page elsewhere can read the runs.
            here = server.server_port
            if self.headers.get("Host") not in (f"{HOST}:{here}", f"localhost:{here}"):
                self.send_error(403)
            elif self.path == "/":
                self._send("text/html; charset=utf-8", page.html())
            elif self.path == "/version":
                self._send("text/plain", page.version().encode())
            else:
                self.send_error(404)

        def _send(self, kind: str, content: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            with suppress(ConnectionError):  # the browser closed the connection
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: the page sends a request every two seconds."""

    server = ThreadingHTTPServer((HOST, port), Handler)
    return server
