"""The page of a run while it goes on, for browsers on this machine alone."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from .errors import ExploreError
from .page import explore_page
from .study import Study

LOOPBACK = "127.0.0.1"

LAST_LOOK_SECONDS = 5.0
"""How long the end of a run waits for a browser that follows it to fetch the last state."""


class LivePage:
    """Serves the latest state of a study at :attr:`url`; ``port`` 0 takes any that is free.

    It listens on the loopback address only, and answers only requests that name it, so that no other site's page can
    read it through a name of its own. Raises ExploreError where the port is taken.
    """

    def __init__(self, port: int) -> None:
        self._lock = threading.Lock()
        self._study: Study | None = None
        self._version = 0
        self._asked = 0.0  # when a browser asked last for the version
        self.fetched = 0
        """The state that a browser has, counted by :meth:`update`."""
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page._answer(self)

            def log_message(self, *_: object) -> None:
                """Nothing: the terminal shows the run."""

        try:
            self._server = ThreadingHTTPServer((LOOPBACK, port), Handler)
        except OSError as error:
            raise ExploreError(f"port {port} cannot be served: {error.strerror or error}",
                               hint="give another one, or 0 for any that is free") from error  # fmt: skip
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}/"

    def update(self, study: Study) -> None:
        """Show this state from now on; the study may change afterwards."""
        with self._lock:
            self._study = replace(study, outcomes=dict(study.outcomes))
            self._version += 1

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        if request.headers.get("Host") not in (f"{LOOPBACK}:{self.port}", f"localhost:{self.port}"):
            request.send_error(HTTPStatus.FORBIDDEN, "Not the name of this server")
            return
        with self._lock:
            study, version = self._study, self._version
        if request.path == "/version":
            self._asked = time.monotonic()
            self._send(request, "text/plain", str(version))
        elif request.path == "/" and study is not None:
            self._send(request, "text/html; charset=utf-8", explore_page(study, version))
            self.fetched = version
        else:
            request.send_error(HTTPStatus.NOT_FOUND)

    def _send(self, request: BaseHTTPRequestHandler, kind: str, text: str) -> None:
        content = text.encode()
        request.send_response(HTTPStatus.OK)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(content))),
            ("Cache-Control", "no-store"),
        ):
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(content)

    def close(self) -> None:
        """End. A browser that follows the run gets its last state before."""
        end = time.monotonic() + LAST_LOOK_SECONDS
        while self.fetched < self._version and time.monotonic() < min(end, self._asked + LAST_LOOK_SECONDS):
            time.sleep(0.05)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> LivePage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
