"""What the users of a device share: kept as long as somebody has it, and the last few."""

from __future__ import annotations

import gc

import pytest
from weft.runtime.gpu.programs import KEPT, SharedPrograms

from tests.threads import in_threads


class Made:
    """A program, by its name."""

    def __init__(self, name: str) -> None:
        self.name = name


def test_programs_that_nobody_has_go_but_the_last() -> None:
    made: list[str] = []

    def make(name: str) -> Made:
        made.append(name)
        return Made(name)

    shared = SharedPrograms(make)
    held = shared.get("held")
    for number in range(1000):
        assert shared.get(str(number)).name == str(number)
    gc.collect()
    assert len(shared._all) <= KEPT + 1
    assert shared.get("held") is held
    assert shared.get("999").name == "999"
    assert len(made) == 1001
    shared.get("0")
    assert len(made) == 1002, "it was gone, and is made again"


def test_threads_that_want_the_same_get_the_same() -> None:
    shared = SharedPrograms(Made)
    found: list[Made] = []
    in_threads(lambda _: found.append(shared.get("one")), 8)
    assert len(found) == 8
    assert len(set(map(id, found))) == 1


def test_what_cannot_be_made_is_tried_again() -> None:
    refusing = [True]

    def make(name: str) -> Made:
        if refusing.pop():
            raise ValueError(name)
        return Made(name)

    shared = SharedPrograms(make)
    with pytest.raises(ValueError, match="text"):
        shared.get("text")
    refusing.append(False)
    assert shared.get("text").name == "text"
