"""What was worked out for kernels is kept between runs: schedules, which tilings are tried, chains that were measured,
and whole programs.

A network is seldom new as a whole: weights are trained anew, a layer is changed. Kernels of shapes that were seen
before then come from the cache, and where no kernel differs in more than the values of its weights, so does the
program, which has passed the checker. A key stands for all that a result follows from: what the caller says, and what
`kernels_from` was given for everything else, such as the compiler's sources. Without that nothing is looked for and
nothing is kept.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import BytesIO
from typing import Any, TypeVar

from .....cache import cache_key, look_up, store
from .....content import NoContentError
from .....hw.config import CoreConfig
from ....tensor.ir import TensorIntrinsic
from ..operators.intrinsics import intrinsics

KIND = "kernels"

Result = TypeVar("Result")

_surroundings: ContextVar[str | None] = ContextVar("surroundings", default=None)


@contextmanager
def kernels_from(surroundings: str | None) -> Iterator[None]:
    """In the block, results are looked for and kept. ``surroundings``: what stands for all that they follow from,
    beside what is given to `kept_result`; None: nothing is kept."""
    token = _surroundings.set(surroundings)
    try:
        yield
    finally:
        _surroundings.reset(token)


def kernels_are_kept() -> bool:
    """Whether this is inside such a block."""
    return _surroundings.get() is not None


def kept_result(make: Callable[[], Result], config: CoreConfig, what: str, *follows_from: Any) -> Result:
    """What ``make`` gives, or gave before for a core with the same values in ``follows_from``. ``what``: it is called,
    for results of different kinds with the same values. Values without content (`content`) are not kept."""
    surroundings = _surroundings.get()
    if surroundings is None:
        return make()
    try:
        key = cache_key(surroundings, what, config, *follows_from)
    except NoContentError:
        return make()
    content = look_up(KIND, key)
    if content is not None:
        return _Unpickler(content, config).load()  # type: ignore[no-any-return]
    made = make()
    packed = _packed(made, config)
    if packed is not None:
        store(KIND, key, packed)
    return made


def _packed(made: object, config: CoreConfig) -> bytes | None:
    """None where it holds what another process cannot have."""
    file = BytesIO()
    try:
        _Pickler(file, config).dump(made)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError):
        return None
    return file.getvalue()


class _Pickler(pickle.Pickler):
    """Intrinsics are those of a core: their names travel."""

    def __init__(self, file: BytesIO, config: CoreConfig) -> None:
        super().__init__(file, protocol=5)
        self._intrinsics = intrinsics(config)

    def persistent_id(self, value: Any) -> str | None:
        if isinstance(value, TensorIntrinsic) and self._intrinsics.get(value.name) is value:
            return value.name
        return None


class _Unpickler(pickle.Unpickler):
    """The entries of the cache are believed, as the machine code in them is; they are whole, or were not found."""

    def __init__(self, content: bytes, config: CoreConfig) -> None:
        super().__init__(BytesIO(content))
        self._intrinsics = intrinsics(config)

    def persistent_load(self, name: str) -> TensorIntrinsic:
        return self._intrinsics[name]
