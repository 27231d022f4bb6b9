"""An OpenSSH daemon of this user on the loopback address: virtual boards are reached through it as real ones are.

It has keys of its own in a folder of its own, on a free port, and ends with the context. Nothing of the system's is
touched, but for ``/run/sshd``, which a daemon of root wants.
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ..runtime.errors import DeviceError
from .hosts import Host

START_SECONDS = 20.0
SYSTEM_FOLDERS = "/usr/sbin:/usr/local/sbin"
"""Where the daemon is, which is not always on a user's PATH."""

INSTALL = "apt-get install openssh-server openssh-client"


@dataclass(frozen=True)
class Daemon:
    """A running daemon, with its keys in ``folder``."""

    folder: Path
    port: int

    @property
    def options(self) -> tuple[str, ...]:
        """What ssh must be told to reach it, and it alone."""
        return (
            "-F", "none", "-p", str(self.port), "-i", str(self.folder / "user"), "-o", "IdentitiesOnly=yes",
            "-o", f"UserKnownHostsFile={self.folder / 'known'}", "-o", "StrictHostKeyChecking=yes",
        )  # fmt: skip

    def reaches(self, host: Host) -> Host:
        """A board that a command on this machine reaches, behind this daemon instead."""
        return replace(host, command=None, ssh=f"{getpass.getuser()}@127.0.0.1", ssh_options=self.options)


def daemon_missing() -> str:
    """What has to be installed before there can be a daemon; empty if all is there."""
    there = all(shutil.which(name) for name in ("ssh", "ssh-keygen")) and _program() is not None
    return "" if there else INSTALL


@contextmanager
def loopback_daemon(folder: Path) -> Iterator[Daemon]:
    """A daemon with its files in ``folder``, an empty one, until the context ends.

    :class:`DeviceError` if there is none on this machine, or it does not start.
    """
    program = _program()
    if program is None or daemon_missing():
        raise DeviceError("there is no OpenSSH daemon on this machine", hint=INSTALL)
    folder.chmod(0o700)
    for key in ("server", "user"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    (folder / "allowed").write_text((folder / "user.pub").read_text())
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    (folder / "known").write_text(f"[127.0.0.1]:{port} {(folder / 'server.pub').read_text()}")
    (folder / "config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {folder / 'server'}\nPidFile none\n"
        f"AuthorizedKeysFile {folder / 'allowed'}\nStrictModes no\nUsePAM no\nPermitRootLogin prohibit-password\n"
        "PasswordAuthentication no\nKbdInteractiveAuthentication no\nAllowTcpForwarding no\nX11Forwarding no\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where a daemon of root locks its children in; the package makes it
    with (folder / "log").open("wb") as log:
        command = [program, "-D", "-e", "-f", str(folder / "config")]
        process = subprocess.Popen(command, stderr=log, stdin=subprocess.DEVNULL)
    try:
        _wait_for(port, process, folder / "log")
        yield Daemon(folder, port)
    finally:
        process.terminate()
        process.wait(10)


def _program() -> str | None:
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:{SYSTEM_FOLDERS}")


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise DeviceError(f"the OpenSSH daemon does not start: {log.read_text()[-500:].strip()}")
