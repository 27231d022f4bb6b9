"""The entry point: Ctrl-C before the command is imported."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from weft.__main__ import INTERRUPTED, main


class _Interrupted(ModuleType):
    """A module during whose import Ctrl-C is pressed."""

    def __getattr__(self, name: str) -> object:
        raise KeyboardInterrupt


def test_an_interruption_while_the_command_is_imported_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "weft.cli", _Interrupted("weft.cli"))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == INTERRUPTED
    assert capsys.readouterr() == ("", "")
