"""The demonstration on a virtual board, as ``make demo-board`` runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import weft

DEMO = Path(weft.__file__).parent / "examples" / "board" / "demo.py"


@pytest.mark.long
@pytest.mark.parametrize("daemon", [True, False])
def test_the_demonstration_agrees_with_rtl(daemon: bool, tmp_path: Path) -> None:
    """Without a daemon it says what to install, and goes on."""
    environment = dict(os.environ)
    if not daemon:  # ssh itself is not found then
        folders = [folder for folder in environment["PATH"].split(":") if not (Path(folder) / "ssh").exists()]
        for name in ("g++", "c++", "sh", "make", "env", "python3", "ld", "as", "gcc"):
            for folder in environment["PATH"].split(":"):
                if (Path(folder) / name).exists() and not (tmp_path / name).exists():
                    (tmp_path / name).symlink_to(Path(folder) / name)
        environment["PATH"] = ":".join([*folders, str(tmp_path)])
    ended = subprocess.run(
        [sys.executable, str(DEMO)], env=environment, capture_output=True, text=True, timeout=1200, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.count("the integers and the cycles are those of rtl") == 2
    assert ("apt-get install openssh-server" in ended.stdout) is (not daemon)
    assert ("ssh daemon at 127.0.0.1" in ended.stdout) is daemon
