"""Between text and the tokens of a model: bytes, or a file of the ``tokenizers`` library."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from .errors import InputError

BYTES = "bytes"


class Tokeniser(Protocol):
    """``vocabulary``: its tokens are 0 to ``vocabulary - 1``."""

    name: str
    vocabulary: int

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""

    def reader(self) -> Callable[[int], str]:
        """A function that takes one token after the other, and gives the text that is complete with it."""

    def token(self, text: str) -> int | None:
        """The one token that is written so."""


class ByteTokeniser:
    """Each byte of the text in UTF-8 is a token."""

    name = BYTES
    vocabulary = 256

    def encode(self, text: str) -> list[int]:
        return list(text.encode("utf-8", "surrogateescape"))

    def reader(self) -> Callable[[int], str]:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        return lambda token: decoder.decode(bytes([token]))

    def token(self, text: str) -> int | None:
        encoded = bytes(self.encode(text))
        return encoded[0] if len(encoded) == 1 else None


class FileTokeniser:
    """A ``tokenizer.json``. Raises InputError where the library is not there or does not read the file."""

    def __init__(self, path: Path) -> None:
        try:
            import tokenizers
        except ImportError:
            raise InputError(
                "a tokenizer from a file needs the package tokenizers",
                hint="pip install 'weft[language]', or --tokenizer bytes",
            ) from None
        try:
            text = path.read_text(encoding="utf-8")
            self._tokenizer: Any = tokenizers.Tokenizer.from_str(text)
        except OSError:
            raise
        except Exception as error:  # the library raises plain ones
            raise InputError(f"{path} is no tokenizer of the tokenizers library: {error!s:.200}",
                             hint="give the model's tokenizer.json") from None  # fmt: skip
        self._stream = tokenizers.decoders.DecodeStream
        self.name = path.name
        self.vocabulary: int = self._tokenizer.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str) -> list[int]:
        tokens: list[int] = self._tokenizer.encode(text).ids
        return tokens

    def reader(self) -> Callable[[int], str]:
        stream = self._stream(skip_special_tokens=True)
        return lambda token: stream.step(self._tokenizer, token) or ""

    def token(self, text: str) -> int | None:
        number: int | None = self._tokenizer.token_to_id(text)
        return number


def tokeniser(name: str) -> Tokeniser:
    """``bytes``, or the tokenizer in a file; InputError or OSError if it cannot be read."""
    return ByteTokeniser() if name == BYTES else FileTokeniser(Path(name))
