"""The options of custom operators: a map of a flexbuffer, of which numbers are read.

A value stands as its bytes, or as the distance back to them; a vector has its length before and the types of its
elements behind them. A map is a vector of values, with the distance to a vector of keys before the length. The buffer's
last two bytes are the root's type and width. All numbers are little-endian.
"""

from __future__ import annotations

import struct

_SIGNED, _UNSIGNED, _FLOATS = "bhiq", "BHIQ", {2: "f", 3: "d"}
_INT, _UINT, _FLOAT, _MAP, _BOOL = 1, 2, 3, 9, 26
_INDIRECT = {6: _INT, 7: _UINT, 8: _FLOAT}
_LONGEST = 1 << 16
"""Keys of a map, at most."""


def numbers_of_map(data: memoryview) -> dict[str, int | float | bool]:
    """The numbers of the map that is the buffer's root, by key; other values are left out.

    Raises ValueError for what is no such map.
    """
    if len(data) < 3:
        raise ValueError("it is too short")
    kind, width = data[-2], data[-1]
    if kind >> 2 != _MAP or width not in (1, 2, 4, 8):
        raise ValueError("its root is no map")
    root = len(data) - 2 - width
    return _map(data, _back(data, root, _log(width)), kind & 3)


def _map(data: memoryview, place: int, log: int) -> dict[str, int | float | bool]:
    width = 1 << log
    count = _number(data, place - width, _UINT, log)
    if not 0 <= count <= _LONGEST:
        raise ValueError(f"it has {count} keys")
    keys = _back(data, place - 3 * width, log)
    key_log = _log(int(_number(data, place - 2 * width, _UINT, log)))
    found: dict[str, int | float | bool] = {}
    for at in range(int(count)):
        name = _text(data, _back(data, keys + (at << key_log), key_log))
        packed = _number(data, place + int(count) * width + at, _UINT, 0)
        kind, own = int(packed) >> 2, int(packed) & 3
        where = place + at * width
        if kind in (_INT, _UINT, _FLOAT):
            found[name] = _number(data, where, kind, log)
        elif kind == _BOOL:
            found[name] = bool(_number(data, where, _UINT, log))
        elif kind in _INDIRECT:
            found[name] = _number(data, _back(data, where, log), _INDIRECT[kind], own)
    return found


def _log(width: int) -> int:
    if width not in (1, 2, 4, 8):
        raise ValueError(f"it has numbers of {width} bytes")
    return width.bit_length() - 1


def _number(data: memoryview, place: int, kind: int, log: int) -> int | float:
    code = _FLOATS.get(log) if kind == _FLOAT else (_SIGNED if kind == _INT else _UNSIGNED)[log]
    if code is None or not 0 <= place <= len(data) - (1 << log):
        raise ValueError(f"it refers to byte {place} of {len(data)}")
    return struct.unpack_from(f"<{code}", data, place)[0]  # type: ignore[no-any-return]


def _back(data: memoryview, place: int, log: int) -> int:
    """What lies as far before a place as the number there says."""
    return place - int(_number(data, place, _UINT, log))


def _text(data: memoryview, place: int) -> str:
    if not 0 <= place < len(data):
        raise ValueError(f"it refers to byte {place} of {len(data)}")
    return bytes(data[place:]).split(b"\0", 1)[0].decode("utf-8", "replace")
