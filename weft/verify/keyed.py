"""Random functions into the field, chosen by a secret seed: what is no polynomial is such a function of its argument.

The function is SipHash-2-4 under a key of 128 bits. Who does not know the seed when he writes a program cannot choose
two arguments with equal results; so the seed is drawn after the program is fixed (`fresh_seed`).
"""

from __future__ import annotations

import ctypes
import hashlib
import secrets
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..cache import cache_key, kept_file, loaded_library
from ..sim.cpp_compiler import compiler_flags, run_compiler
from .field import Elements, fold, of_int

SOURCE = "keyed.cpp"
SEED_BITS = 128


def fresh_seed() -> int:
    """A seed that nobody can know beforehand."""
    return secrets.randbits(SEED_BITS)


@cache
def _library() -> ctypes.CDLL:
    """The compiled hash; :class:`BuildError` if there is no C++ compiler."""
    text = resources.files(__package__).joinpath(SOURCE).read_text()
    flags = [*compiler_flags(), "-O3"]

    def build(library: Path) -> None:
        (library.parent / SOURCE).write_text(text)
        run_compiler([*flags, "-shared", "-o", str(library), str(library.parent / SOURCE)])

    loaded = loaded_library(lambda: kept_file("verify", f"{cache_key(*flags, text)}.so", build))
    pointer, count = ctypes.c_void_p, ctypes.c_int64
    loaded.weft_keyed_words.restype = None
    loaded.weft_keyed_words.argtypes = [pointer, pointer, count, pointer, count, pointer, count]
    loaded.weft_keyed_sums.restype = None
    loaded.weft_keyed_sums.argtypes = [*[pointer] * 6, ctypes.c_uint64, count, pointer, count]
    return loaded


def keyed_words(secret: npt.NDArray[np.uint64], first: Elements, second: Elements) -> Elements:
    """SipHash-2-4 under ``secret`` (2 words) of the 16 bytes of each pair; the operands broadcast."""
    shape = np.broadcast_shapes(first.shape, second.shape)
    operands, strides = [], []
    for each in (first, second):
        strides.append(0 if each.size == 1 else 1)
        operands.append(np.ascontiguousarray(each if each.size == 1 else np.broadcast_to(each, shape)))
    out = np.empty(shape, np.uint64)
    _library().weft_keyed_words(
        secret.ctypes.data, operands[0].ctypes.data, strides[0], operands[1].ctypes.data, strides[1],
        out.ctypes.data, out.size,
    )  # fmt: skip
    return out


class Keys:
    """Random functions, one for each name and list of parameters. ``made``: how many results they have given."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        digest = hashlib.blake2b(str(seed).encode(), digest_size=16).digest()
        self._secret = np.frombuffer(digest, np.uint64)
        self._words: dict[tuple[object, ...], Elements] = {}
        self.made = 0

    def key(self, name: str, *parameters: int | Elements) -> Elements:
        """Of a function: its parameters are whole numbers, or arrays of elements that broadcast."""
        numbers = tuple(value for value in parameters if not isinstance(value, np.ndarray))
        key = self._word(name, *numbers)
        for value in parameters:
            if isinstance(value, np.ndarray):
                key = keyed_words(self._secret, key, value)
        return key

    def _word(self, *text: object) -> Elements:
        if text not in self._words:
            digest = hashlib.blake2b(repr(text).encode(), digest_size=8, key=self._secret.tobytes()).digest()
            self._words[text] = np.frombuffer(digest, np.uint64)
        return self._words[text]

    def under(self, key: Elements, x: Elements) -> Elements:
        """The function of a key, of an element each."""
        self.made += x.size
        return fold(keyed_words(self._secret, key, x))

    def under_sums(
        self, key: Elements, added: Elements, each: npt.NDArray[np.int64], x: Elements, rows: npt.NDArray[np.int64],
        offset: int,
    ) -> Elements:  # fmt: skip
        """The functions of ``key[each]`` of ``x[rows] + added[each]``, plus a number: what `under` gives, in one pass.
        All are rows of as many lanes."""
        operands = [np.ascontiguousarray(part) for part in (key, added, each, x, rows)]
        lanes = x.shape[1]
        out = np.empty((len(rows), lanes), np.uint64)
        self.made += out.size
        _library().weft_keyed_sums(
            self._secret.ctypes.data, *(part.ctypes.data for part in operands), int(of_int(offset)), lanes,
            out.ctypes.data, len(rows),
        )  # fmt: skip
        return out

    def hashed(self, x: Elements, name: str, *parameters: int | Elements) -> Elements:
        """The function of a name, of an element each."""
        return self.under(self.key(name, *parameters), x)

    def atoms(self, shape: tuple[int, ...], *name: object) -> Elements:
        """Elements that stand for unknown values: the same for the same name, whatever else is asked."""
        count = int(np.prod(shape, dtype=np.int64))
        self.made += count
        numbers = np.arange(count, dtype=np.uint64)
        return fold(keyed_words(self._secret, self._word("atoms", *name), numbers)).reshape(shape)

    def bytes_of(self, shape: tuple[int, ...], *name: object) -> npt.NDArray[np.int64]:
        """Numbers of int8, chosen like `atoms`."""
        return (self.atoms(shape, *name) & np.uint64(0xFF)).astype(np.int64) - 128

    def digest(self, content: bytes) -> Elements:
        """A word that stands for bytes."""
        word = hashlib.blake2b(content, digest_size=8, key=self._secret.tobytes()).digest()
        return fold(np.frombuffer(word, np.uint64))


def parameter(x: npt.ArrayLike) -> Elements:
    """Whole numbers as parameters of a key."""
    return np.asarray(of_int(x))
