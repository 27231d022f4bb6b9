"""Photographs the page of an exploration for the manual: docs/pictures/explore*.png, by headless Chromium.

    python docs/explore_pictures.py

It explores 96 of 144 cores for the digits network, which takes minutes the first time. The pictures are
not compared by tests: fonts and the browser decide some of their dots.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from weft.compiler.tune.database import Database
from weft.explore.measure import open_network
from weft.explore.page import explore_page
from weft.explore.space import Space
from weft.explore.study import explore

ROOT = Path(__file__).parent.parent
FOLDER = Path(__file__).parent / "pictures"
SPACE = {
    "name": "Cores for the digits network", "base": "tiny",
    "core": {"block_in": [4, 8, 16], "block_out": [4, 8, 16], "depthwise": 0, "bus_bits": [64, 128], "inp_kib": [2, 4],
             "queue_depth": [8, 16]},
    "memory": {"bytes_per_cycle": ["bus", 4], "latency": 100},
    "compiler": {"chains": False}, "constraints": {"part": "xc7z020"},
    "search": {"algorithm": "tpe", "trials": 96, "seed": 0},
}  # fmt: skip
VIEWS = {
    # name: size of the window, what is done before the picture is taken
    "explore": ("1300,1130", ""),
    "explore-two": ("1300,850", "choose(data.front[0], false); choose(data.front.at(-1), true);"
                    "for (const box of document.querySelectorAll('main > section')) box.hidden = box.id !== 'detail';"),
}  # fmt: skip


def main(browser: str) -> None:
    """Explore, and write one picture for each view."""
    os.chdir(ROOT)  # the page shows the paths of networks as they were given
    with Database(ROOT / "build" / "explore-pictures.sqlite") as database:
        study = explore(Space.model_validate(SPACE), [open_network("examples/digits/digits.onnx")], database,
                        workers=os.cpu_count() or 1)  # fmt: skip
    page = explore_page(study)
    with tempfile.TemporaryDirectory() as folder:
        for name, (size, action) in VIEWS.items():
            path = Path(folder) / f"{name}.html"
            path.write_text(page.replace("</html>", f"<script>{action}</script></html>"))
            options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={size}"]
            folders = [f"--user-data-dir={folder}/profile", f"--screenshot={FOLDER / name}.png"]
            command = [browser, *options, *folders, path.as_uri()]
            subprocess.run(command, check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        sys.exit("no browser: apt-get install chromium")
    main(found)
