"""What workers run in tests: a module that a process of theirs imports by its name, as tests are not."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from weft.errors import WeftError


def work(what: str, value: int) -> int:
    if what == "refuse":
        raise WeftError("no room", hint="more")
    if what == "break":
        raise KeyError("missing")
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "leave":
        os._exit(3)
    if what == "hang":
        time.sleep(60)
    return value * value


def die_once(path: str, value: int) -> int:
    if not Path(path).exists():
        Path(path).write_text("died")
        os.kill(os.getpid(), signal.SIGKILL)
    return value
