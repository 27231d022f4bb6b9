"""The demonstration on a virtual board, as ``make demo-board`` runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import weft
from weft.boards.loopback import daemon_missing

DEMO = Path(weft.__file__).parents[1] / "examples" / "board" / "demo.py"

WITHOUT_DAEMON = """
import runpy, sys
from weft.boards import loopback
loopback.daemon_missing = lambda: loopback.INSTALL
runpy.run_path(sys.argv.pop(), run_name="__main__")
"""


@pytest.mark.long
@pytest.mark.parametrize("daemon", [True, False])
def test_the_demonstration_agrees_with_rtl(daemon: bool) -> None:
    """Without a daemon it says what to install, and goes on."""
    if daemon and (missing := daemon_missing()):
        pytest.skip(missing)
    command = [str(DEMO)] if daemon else ["-c", WITHOUT_DAEMON, str(DEMO)]
    ended = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=1200, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.count("the integers and the cycles are those of rtl") == 2
    assert ("apt-get install openssh-server" in ended.stdout) is (not daemon)
    assert ("ssh daemon at 127.0.0.1" in ended.stdout) is daemon
