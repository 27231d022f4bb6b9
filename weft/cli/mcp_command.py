"""``weft mcp``: weft as tools of the Model Context Protocol, for assistants that call them."""

from __future__ import annotations

import signal
from importlib.metadata import version

from ..errors import WeftError
from .app import app


@app.command("mcp")
def mcp_command() -> None:
    """Serve compile, run, profile, explore and compare as tools of the Model Context Protocol, over standard input and
    output: docs/mcp.md."""
    try:
        from .mcp_tools import server
    except ImportError as error:
        raise WeftError(f"weft mcp needs the protocol's SDK: {error}", hint="pip install 'weft[mcp]'") from None
    for number in (signal.SIGINT, signal.SIGTERM):  # else the thread that waits for standard input goes on
        signal.signal(number, signal.SIG_DFL)
    server(version("weft")).run()
