"""Digests of what values consist of: equal in every process, other ones for other values, refused without content."""

from __future__ import annotations

import copy
import io
import os
import re
import subprocess
import sys
from dataclasses import dataclass, fields, replace
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft.compiler.targets.cpu.processor import Processor, host_target
from weft.compiler.targets.gpu.devices import DEVICES
from weft.compiler.targets.gpu.kernels import loop_target
from weft.content import NoContentError, content_digest
from weft.hw.config import PYNQ


class Colour(Enum):
    RED = 1


class Number(IntEnum):
    ONE = 1


@dataclass(frozen=True)
class Point:
    x: Any
    y: Any = 0


@dataclass(frozen=True)
class Place:
    x: Any
    y: Any = 0


@dataclass
class Open:
    x: int


def test_other_values_have_other_digests() -> None:
    values: list[tuple[Any, ...]] = [
        (), (None,), (True,), (1,), (1.0,), (1j,), ("1",), (b"1",), (Number.ONE,), (Colour.RED,), ((1,),), ({1},),
        ({1: None},), ("a", "b"), ("ab",), ("ab", ""), (("a", "b"),), (("a",), "b"), (0.0,), (-0.0,), ("",), ((),),
        ({},), (set(),), (Point(1),), (Place(1),), (Point(1, 1),), (Point((1, 0)),), ({"a": 1, "b": 2},),
        (np.float32(1),), (np.zeros(2),), (np.zeros((2, 1)),), (np.zeros(2, np.float32),), (np.zeros(2, ">f8"),),
        (np.array([0.0, 1.0]),), (bytes(16),), ({"a": 2, "b": 1},), ({"a": ("b", 1)},), ({"a": ("b",), "c": 1},),
    ]  # fmt: skip
    assert len({content_digest(*each) for each in values}) == len(values)


def test_equal_content_has_one_digest() -> None:
    assert content_digest({"a": 1, "b": 2}, {1, 2, 3}) == content_digest({"b": 2, "a": 1}, {3, 1, 2})
    assert content_digest(np.arange(6).reshape(2, 3).T) == content_digest(np.arange(6).reshape(2, 3).T.copy())
    assert content_digest(bytearray(b"x")) == content_digest(b"x") == content_digest(memoryview(b"x"))


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (len, "value 0 is a builtins.builtin_function_or_method"),
        (lambda: None, "value 0 is a builtins.function"),
        (object(), "value 0 is a builtins.object"),
        (io.BytesIO(), "value 0 is a _io.BytesIO"),
        (Point(1, (2, len)), "value 0.y[1] is a"),
        (Point({"key": Point(print)}), "value 0.x['key'].x is a"),
        (Point(1, {len}), "value 0.y is a"),
        (Open(1), "Open, which is not frozen"),
        (np.array([len], object), "value 0 is a numpy.ndarray"),
        (Path("x"), "value 0 is a pathlib"),
        (int, "value 0 is a builtins.type"),
        (Point, "value 0 is a builtins.type"),
    ],
)
def test_what_has_no_content_is_refused_with_its_place(value: Any, what: str) -> None:
    with pytest.raises(NoContentError, match=re.escape(what)):
        content_digest(value)


OTHER = """
import numpy as np
from tests.test_content import Colour, Point
from weft.compiler.targets.cpu.processor import host_target
from weft.compiler.targets.gpu.devices import DEVICES
from weft.compiler.targets.gpu.kernels import loop_target
from weft.content import content_digest
devices = tuple(DEVICES.values())
print(content_digest(host_target(), devices, [loop_target(each).fusion for each in devices], {"a", "b", "c"},
                     Point(Colour.RED), np.arange(3)))
"""


def test_another_process_finds_the_same_digest() -> None:
    """With hashes of texts that differ, and other addresses."""
    digests = set()
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        digests.add(
            subprocess.run([sys.executable, "-c", OTHER], env=environment, check=True, capture_output=True).stdout
        )
    assert len(digests) == 1


def changed(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, tuple):
        return (*value, 1)
    return None if value is not None else 1


@pytest.mark.parametrize("record", [host_target(), DEVICES["sm_90"], PYNQ, host_target().fusion,
                                    loop_target(DEVICES["sm_90"]).fusion])  # fmt: skip
def test_every_field_takes_part(record: Any) -> None:
    seen = {content_digest(record)}
    for each in fields(record):
        other = copy.copy(record)
        object.__setattr__(other, each.name, changed(getattr(record, each.name)))  # whether or not there can be such
        seen.add(content_digest(other))
    assert len(seen) == len(fields(record)) + 1


def test_records_within_records_take_part() -> None:
    host: Processor = host_target()
    other = replace(host, fusion=replace(host.fusion, depth=host.fusion.depth + 1))
    assert content_digest(host) != content_digest(other)
