"""The collector of cycles waits for a compilation, and is afterwards as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from weft.collector import collector_waits


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    was_enabled = gc.isenabled()
    yield
    (gc.enable if was_enabled else gc.disable)()


@pytest.mark.parametrize("enabled", [True, False])
def test_it_waits_in_the_block_only(enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()
    with collector_waits():
        assert not gc.isenabled()
    assert gc.isenabled() is enabled


def test_an_error_ends_the_block() -> None:
    gc.enable()
    with pytest.raises(ZeroDivisionError), collector_waits():
        raise ZeroDivisionError
    assert gc.isenabled()


def test_overlapping_blocks_leave_it_on() -> None:
    gc.enable()
    first, second = collector_waits(), collector_waits()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_what_a_block_made_is_old_at_its_end() -> None:
    """The collector does not look through it at once."""
    gc.enable()
    collections = sum(each["collections"] for each in gc.get_stats())
    with collector_waits():
        made = [[number] for number in range(20_000)]
    assert sum(each["collections"] for each in gc.get_stats()) <= collections + 1
    assert any(each is made for each in gc.get_objects(generation=2))


def test_what_a_program_has_frozen_stays_so() -> None:
    gc.enable()
    kept = [[]]
    gc.freeze()
    try:
        with collector_waits():
            pass
        assert gc.get_freeze_count() > 0
        assert not any(each is kept for each in gc.get_objects())
    finally:
        gc.unfreeze()
