"""What a value consists of, as a digest: the same in every process, another one for anything else.

Keys of what is kept between runs are made of it. A ``repr`` does not do: that of a function holds its address, which is
another one in each process, and that of an array leaves most of it out. So a value is taken apart, records field by
field, down to numbers and texts; whatever has no content, such as a function, an open file or an object of an unknown
class, is refused, with its place.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from .shown import with_article


class NoContentError(TypeError):
    """A value that no key can be made of. Its text says where it stands in what was given, and what it is."""


def content_digest(*values: Any) -> str:
    """64 hexadecimal digits that stand for these values in this order.

    A value is None, a truth value, a number, a text, bytes, a member of an enumeration, a NumPy array or scalar, a
    frozen dataclass, or a tuple, list, set or mapping of values. The order of sets and of mappings takes no part. Equal
    numbers of different types differ.
    :class:`NoContentError` names the place of anything else.
    """
    state = hashlib.sha256()
    for number, value in enumerate(values):
        for piece in _pieces(value, f"value {number}"):
            state.update(piece)
    return state.hexdigest()


def _pieces(value: Any, at: str) -> Iterator[bytes]:
    """Bytes that no other value gives: each begins with its kind, and says how much follows."""
    kind = type(value)
    if value is None or kind is bool:
        yield b"%s;" % str(value).encode()
    elif kind is int:
        yield b"int %d;" % value
    elif kind is float:
        yield b"float " + struct.pack("<d", value)
    elif kind is complex:
        yield b"complex " + struct.pack("<dd", value.real, value.imag)
    elif kind is str:
        yield from _counted(b"str", value.encode("utf-8", "surrogateescape"))
    elif kind in (bytes, bytearray, memoryview):
        yield from _counted(b"bytes", value)
    elif isinstance(value, Enum):
        yield from _counted(b"enum", f"{_name(kind)}.{value.name}".encode())
        yield from _pieces(value.value, f"{at}.value")
    elif is_dataclass(kind):
        yield from _record(value, at)
    elif isinstance(value, Mapping):
        yield from _unordered(b"mapping", [(key, item, f"{at}[{key!r:.40}]") for key, item in value.items()])
    elif isinstance(value, (set, frozenset)):
        yield from _unordered(b"set", [(item, None, at) for item in value])
    elif isinstance(value, (tuple, list)):
        yield b"list %d;" % len(value)
        for number, item in enumerate(value):
            yield from _pieces(item, f"{at}[{number}]")
    else:
        yield from _array(value, at)


def _record(value: Any, at: str) -> Iterator[bytes]:
    kind = type(value)
    if not kind.__dataclass_params__.frozen:
        raise NoContentError(f"{at} is {with_article(_name(kind))}, which is not frozen: what it holds may change")
    own = [each.name for each in fields(value)]
    yield from _counted(b"record %d" % len(own), _name(kind).encode())
    for name in own:
        yield from _counted(b"field", name.encode())
        yield from _pieces(getattr(value, name), f"{at}.{name}")


def _unordered(kind: bytes, items: list[tuple[Any, Any, str]]) -> Iterator[bytes]:
    yield kind + b" %d;" % len(items)
    yield from sorted(b"".join((*_pieces(key, at), *_pieces(item, at))) for key, item, at in items)


def _array(value: Any, at: str) -> Iterator[bytes]:
    """A NumPy array or scalar. NumPy is not imported for this: who has none of it, has no such value."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, (numpy.ndarray, numpy.generic)) or value.dtype.hasobject:
        raise NoContentError(f"{at} is {with_article(_name(type(value)))}, which has no content to make a key of")
    array = numpy.ascontiguousarray(value)
    yield from _counted(b"array", f"{type(value).__name__} {array.dtype.str} {array.dtype.name} {value.shape}".encode())
    yield from _counted(b"bytes", array.reshape(-1).view(numpy.uint8))


def _counted(kind: bytes, content: Any) -> Iterator[bytes]:
    yield kind + b" %d;" % (memoryview(content).nbytes if not isinstance(content, bytes) else len(content))
    yield content


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
