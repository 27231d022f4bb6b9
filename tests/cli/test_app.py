"""The command's process."""

from __future__ import annotations

import gc
import os
import signal
import warnings
from collections.abc import Iterator

import pytest
from amaranth.hdl import Elaboratable, Fragment, Module
from weft.cli import errors, main
from weft.cli.mcp_command import mcp_command


class _Part(Elaboratable):  # type: ignore[misc]
    def elaborate(self, platform: object) -> Module:
        return Module()


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The test's process has its handlers again."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_termination_runs_what_cleans_up(monkeypatch: pytest.MonkeyPatch) -> None:
    cleaned = []

    def terminated(*_: object) -> int:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            return 0
        finally:
            cleaned.append(True)

    signal.signal(signal.SIGTERM, lambda *_: None)  # where the command sets none, the test fails and its process lives
    monkeypatch.setattr(errors, "run", terminated)
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, cleaned) == (143, [True])


def test_a_server_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    mcp_tools = pytest.importorskip("weft.cli.mcp_tools")
    seen = []

    class Server:
        def run(self) -> None:
            seen.extend(signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM))

    monkeypatch.setattr(mcp_tools, "server", lambda _: Server())
    mcp_command()
    assert seen == [signal.SIG_DFL] * 2


def test_parts_of_a_design_that_an_interruption_leaves_are_not_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    Fragment.get(_Part(), None)  # Amaranth warns once it has elaborated something

    def interrupted(*_: object) -> int:
        _Part()
        gc.collect()
        return 130

    monkeypatch.setattr(errors, "run", interrupted)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(SystemExit):
            main()
    assert not told
