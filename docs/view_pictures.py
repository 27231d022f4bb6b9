"""Photographs the page of `weft view` for the manual: docs/pictures/view.png, by headless Chromium.

    python docs/view_pictures.py

The picture is not compared by tests: fonts and the browser decide some of its dots.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import weft
from weft.compiler.model import CompiledModel
from weft.runtime.device import memory_of
from weft.view.page import view_page
from weft.view.side import side

ROOT = Path(__file__).parent.parent
PICTURE = Path(__file__).parent / "pictures" / "view.png"
SIZE = "1300,1000"


def main(browser: str) -> None:
    """Compile the digits example, and take the picture."""
    model = weft.compile(ROOT / "examples" / "digits" / "digits.onnx", "pynq")
    assert isinstance(model, CompiledModel)  # its sizes are fixed
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "view.html"
        path.write_text(view_page([side(model, memory_of(model), {})]))
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={SIZE}"]
        places = [f"--user-data-dir={folder}/profile", f"--screenshot={PICTURE}", "--virtual-time-budget=3000"]
        subprocess.run([browser, *options, *places, path.as_uri()], check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        sys.exit("no browser: apt-get install chromium")
    main(found)
