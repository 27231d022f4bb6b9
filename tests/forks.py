"""Work in a forked process."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable


def status_of_child(work: Callable[[], object], seconds: int = 60) -> int:
    """Exit status of a forked process that does ``work``; -SIGALRM if it takes longer than ``seconds``."""
    gc.collect()  # what other tests left lying is not the child's to end: it may wait for threads that are not there
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
