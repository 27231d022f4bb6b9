"""The browser in which tests look at pages."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

HEADLESS = ("--headless", "--no-sandbox", "--disable-gpu")


def browser() -> str:
    """The program. The test is skipped where there is none."""
    found = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
    if found is None:
        pytest.skip("no browser: apt-get install chromium")
    return found


def shown_by_browser(page: str, probe: str, folder: Path, *flags: str) -> Any:
    """What ``probe``, the body of an async function, returns in the page."""
    report = f"""<script>
      addEventListener("error", event => {{ document.title = "error " + event.message; }});
      (async () => {{ {probe} }})().then(found => {{
        const node = document.createElement("pre"); node.id = "probe"; node.textContent = JSON.stringify(found);
        document.body.append(node);
      }}, error => {{ document.title = "error " + error; }});
    </script>"""
    path = folder / "page.html"
    head, _, tail = page.rpartition("</html>")
    path.write_text(head + report + "</html>" + tail)
    profile = f"--user-data-dir={folder / 'profile'}"
    done = subprocess.run(
        [browser(), *HEADLESS, profile, *flags, "--virtual-time-budget=4000", "--dump-dom", path.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    found = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, re.findall(r"<title>.*?</title>", done.stdout)
    return json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
