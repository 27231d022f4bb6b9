"""What a page measures of itself in a browser, in the browser's own time."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def browser() -> str:
    """The program; ends where there is none."""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        sys.exit("no browser: apt-get install chromium")
    return found


def probed(page: str, probe: str) -> Any:
    """What ``probe``, the body of an async function, returns in the page."""
    script = f"""<script>(async () => {{ {probe} }})().then(
      found => console.log("measured " + JSON.stringify(found) + " measured"),
      error => console.log("measured " + JSON.stringify(String(error)) + " measured"));</script></html>"""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        path.write_text(page.rpartition("</html>")[0] + script)
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000", "--enable-logging=stderr"]
        # The port keeps the browser running: the page is measured in its own time.
        command = [browser(), *options, "--remote-debugging-port=0", f"--user-data-dir={folder}/profile", path.as_uri()]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
            assert running.stderr is not None  # a pipe
            try:
                lines = (re.search("measured (.*) measured", line) for line in running.stderr)
                found = next(filter(None, lines), None)
            finally:
                running.kill()
    if found is None:
        sys.exit("the browser ended before the page was measured")
    return json.loads(found[1].replace('\\"', '"'))
