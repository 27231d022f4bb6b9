"""``quick_init`` against the ``__init__`` that a dataclass makes: nothing can tell them apart but a clock."""

from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace
from typing import Any

import pytest
from weft.records import quick_init


@dataclass(frozen=True)
class Plain:
    first: int
    second: str = "two"
    third: tuple[int, ...] = field(default=(), kw_only=True)


@quick_init
@dataclass(frozen=True)
class Quick:
    first: int
    second: str = "two"
    third: tuple[int, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True, slots=True)
class PlainSlots:
    first: int
    second: str = "two"
    third: tuple[int, ...] = field(default=(), kw_only=True)


@quick_init
@dataclass(frozen=True, slots=True)
class QuickSlots:
    first: int
    second: str = "two"
    third: tuple[int, ...] = field(default=(), kw_only=True)


@quick_init
@dataclass(frozen=True)
class Inherited(Quick):
    fourth: float = 4.0

    def __post_init__(self) -> None:
        if self.first < 0:
            raise ValueError("negative")
        object.__setattr__(self, "fourth", float(self.fourth))


PAIRS = [(Plain, Quick), (PlainSlots, QuickSlots)]
ARGUMENTS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((1,), {}), ((1, "b"), {}), ((1,), {"third": (3,)}), ((), {"second": "s", "first": 5, "third": (1, 2)}),
]  # fmt: skip


@pytest.mark.parametrize(("plain", "quick"), PAIRS)
@pytest.mark.parametrize(("positional", "named"), ARGUMENTS)
def test_the_same_record(plain: type, quick: type, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
    one, other = plain(*positional, **named), quick(*positional, **named)
    assert repr(other) == repr(one).replace("Plain", "Quick")
    assert hash(other) == hash(one)
    assert other == quick(*positional, **named) != replace(other, first=99)
    assert replace(other, first=99) == quick(99, other.second, third=other.third)
    assert pickle.loads(pickle.dumps(other)) == copy.copy(other) == copy.deepcopy(other) == other
    for name in ("first", "other"):
        with pytest.raises((FrozenInstanceError, TypeError)):  # with slots Python raises the latter for other names
            setattr(other, name, 1)


@pytest.mark.parametrize(("plain", "quick"), PAIRS)
def test_the_same_signature_and_refusals(plain: type, quick: type) -> None:
    assert inspect.signature(quick) == inspect.signature(plain)
    for wrong in ([], [1, "b", (3,)]):
        with pytest.raises(TypeError) as one:
            plain(*wrong)
        with pytest.raises(TypeError) as other:
            quick(*wrong)
        assert str(other.value) == str(one.value).replace("Plain", "Quick")


def test_inherited_fields_and_checks_afterwards() -> None:
    assert Inherited(1, "b", 2, third=(7,)) == Inherited(first=1, second="b", fourth=2.0, third=(7,))
    assert isinstance(Inherited(1, fourth=2).fourth, float)
    with pytest.raises(ValueError, match="negative"):
        Inherited(-1)


def test_what_the_dataclass_makes_itself_is_refused() -> None:
    @dataclass(frozen=True)
    class Made:
        items: list[int] = field(default_factory=list)

    @dataclass(frozen=True)
    class Hidden:
        item: int = field(default=0, init=False)

    for record, name in ((Made, "items"), (Hidden, "item")):
        with pytest.raises(TypeError, match=f"field '{name}' of {record.__name__} is made by the dataclass"):
            quick_init(record)
