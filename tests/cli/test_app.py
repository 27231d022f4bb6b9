"""The command's process."""

from __future__ import annotations

import gc
import warnings

import pytest
from amaranth.hdl import Elaboratable, Fragment, Module
from weft.cli import errors, main


class _Part(Elaboratable):  # type: ignore[misc]
    def elaborate(self, platform: object) -> Module:
        return Module()


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
