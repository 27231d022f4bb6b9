"""Virtual boards that share one process with pynq in it: a link to one is a fork, which takes no half second.

    python forked_board.py serve SOCKET VIRTUAL     # in an environment with pynq
    python forked_board.py call SOCKET ARGUMENTS    # stands for that Python: as `python VIRTUAL ARGUMENTS`

The caller hands its own standard streams over and waits until the fork ends.
"""

from __future__ import annotations

import array
import importlib.util
import json
import os
import signal
import socket
import sys
import threading

STREAMS = 3


def call(path: str, arguments: list[str]) -> int:
    """Let the server run some arguments on this process's streams; the status."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(path)
        streams = array.array("i", range(STREAMS))
        link.sendmsg([json.dumps(arguments).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
        for stream in range(STREAMS):
            os.close(stream)  # so that whoever reads them sees the fork's end, not ours
        return int(link.recv(4) or b"1")


def serve(path: str, virtual: str) -> None:
    """Fork for every call, for ever."""
    spec = importlib.util.spec_from_file_location("virtual", virtual)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["virtual"] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    import pynq  # noqa: F401, the reason for all this

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(8)
        print("ready", flush=True)
        while True:
            link, _ = server.accept()
            if os.fork() == 0:
                server.close()
                _run(link, module)
            link.close()


def _run(link: socket.socket, module: object) -> None:
    raw, rights, _, _ = link.recvmsg(1 << 20, socket.CMSG_SPACE(STREAMS * 4))
    streams = array.array("i", rights[0][2])
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    threading.Thread(target=_end_with, args=(link,), daemon=True).start()
    sys.argv = ["virtual", *json.loads(raw)]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    status = 0
    try:
        module.main()  # type: ignore[attr-defined]
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
        status = 1
    finally:
        sys.stderr.flush()
        link.send(str(status).encode())
        os._exit(status)


def _end_with(link: socket.socket) -> None:
    """End when the caller is gone: a board that is told to be silent would stay for an hour."""
    link.recv(1)
    os._exit(1)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], sys.argv[3])
    else:
        sys.exit(call(sys.argv[2], sys.argv[3:]))
