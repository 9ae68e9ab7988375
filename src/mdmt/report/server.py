"""The live report: the page of a folder of runs, served to this machine only."""

from __future__ import annotations

import hashlib
import socket
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from mdmt.report.figures import figures_of
from mdmt.report.page import render
from mdmt.report.study import read_studies
from mdmt.runs.folder import CHECKPOINT, CONFIG, FAILED, RECORD, find_runs

HOST = "127.0.0.1"
CONNECTIONS = 64  # at a time
SECONDS = 10.0  # that a client may take to send its request, and to read its answer


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


class Server(ThreadingHTTPServer):
    """A server that refuses too many connections, and ends those whose request does not arrive.

    Each connection has a thread, and clients that open one and send nothing would hold them all.
    """

    connections = CONNECTIONS
    seconds = SECONDS

    def __init__(self, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        self._deadlines: dict[Any, float] = {}  # by open connection: when its request must be here
        super().__init__((HOST, port), handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is room for a new connection."""
        if len(self._deadlines) >= self.connections:
            return False
        self._deadlines[request] = time.monotonic() + self.seconds
        return True

    def arrived(self, request: Any) -> None:
        """The request of a connection is here; its answer may take as long as it takes."""
        self._deadlines[request] = float("inf")
        request.settimeout(self.seconds)  # to read the answer

    def service_actions(self) -> None:
        """End connections that are too slow; the server calls this twice a second."""
        now = time.monotonic()
        for request, deadline in list(self._deadlines.items()):
            if deadline < now:
                with suppress(OSError):  # it ended meanwhile
                    request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, for whatever reason."""
        self._deadlines.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the traceback of an error, except of a client that went away."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


def make_server(runs: Path, port: int) -> Server:
    """A server of the page and its version, reachable from this machine only."""
    page = LivePage(runs)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.arrived(self.connection)
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
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: the page sends a request every two seconds."""

    server = Server(port, Handler)
    return server
