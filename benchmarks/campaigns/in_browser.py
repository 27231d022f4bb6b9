"""What a page says of itself in a browser without a window, in the browser's own time."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

from weft.errors import WeftError

HEADLESS = ("--headless", "--no-sandbox", "--disable-gpu")
LIMIT = 300.0
"""Seconds until a page that says nothing is given up: a browser beside other work needs some to start."""


class NoAnswerError(WeftError):
    """No browser is here, or the page did not answer."""


def browser() -> str:
    """The program."""
    found = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
    if found is None:
        raise NoAnswerError("no browser: apt-get install chromium")
    return found


def probed(page: str, probe: str, *flags: str) -> Any:
    """What ``probe``, the body of an async function, returns in the page (as JSON holds it).

    The browser's clock is the machine's. Its virtual time, with which it prints a document by itself, runs on while
    other threads decompress or compile for the page: on a busy machine a document is printed before it is complete.
    """
    # The console's lines escape some characters and cut at the end of a line: letters of base64 they leave alone.
    report = f"""<script>
      const letters = text => btoa(String.fromCharCode(...new TextEncoder().encode(text)));
      const said = (kind, what) => console.log(kind, letters(JSON.stringify(what) ?? "null"), "said");
      addEventListener("error", event => said("failed", event.message));
      (async () => {{ {probe} }})().then(found => said("measured", found), error => said("failed", String(error)));
    </script></html>"""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # a killed browser's children still write
        path = Path(folder) / "page.html"
        path.write_text(page.rpartition("</html>")[0] + report)
        # The port keeps the browser running.
        ports = ["--enable-logging=stderr", "--remote-debugging-port=0", f"--user-data-dir={folder}/profile"]
        command = [browser(), *HEADLESS, *flags, *ports, path.as_uri()]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
            assert running.stderr is not None  # a pipe
            limit = threading.Timer(LIMIT, running.kill)
            limit.start()
            try:
                said = (re.search(r"(measured|failed) ([A-Za-z0-9+/=]+) said", line) for line in running.stderr)
                first = next(filter(None, said), None)
            finally:
                limit.cancel()
                running.kill()
    if first is None:
        raise NoAnswerError("the browser ended before the page had answered")
    found = json.loads(base64.b64decode(first[2]))
    if first[1] == "failed":
        raise NoAnswerError(f"the page failed: {found}")
    return found
