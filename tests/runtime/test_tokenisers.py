"""Text to tokens and back, also where a character has several tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
from weft.runtime.errors import InputError
from weft.runtime.tokenisers import tokeniser


def test_bytes_come_back_as_text_once_a_character_is_complete() -> None:
    words = tokeniser("bytes")
    tokens = words.encode("aö€")
    assert tokens == [97, 195, 182, 226, 130, 172]
    read = words.reader()
    assert [read(token) for token in tokens] == ["a", "", "ö", "", "", "€"]
    read = words.reader()
    assert [read(token) for token in (195, 97, 255)] == ["", "�a", "�"]


def test_bytes_that_are_no_text_come_through_a_command_line() -> None:
    """Python gives what is no UTF-8 as surrogates."""
    assert tokeniser("bytes").encode(b"a\xff".decode("utf-8", "surrogateescape")) == [97, 255]


def test_one_byte_can_be_named() -> None:
    words = tokeniser("bytes")
    assert words.token("\n") == 10
    assert words.token("ab") is None


def test_a_file_of_the_library(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=300, special_tokens=["<end>"], initial_alphabet=alphabet)
    made.train_from_iterator(["the weft and the warp, über all"] * 4, trainer)
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    words = tokeniser(str(path))
    tokens = words.encode("the warp über")
    assert len(tokens) < 12
    read = words.reader()
    assert "".join(read(token) for token in tokens) == "the warp über"
    assert words.token("<end>") == 0
    assert words.token("no such") is None
    assert words.vocabulary == made.get_vocab_size()
    assert max(tokens) < words.vocabulary


def test_a_file_that_is_no_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "t.json").write_text("{}")
    with pytest.raises(InputError, match="no tokenizer of the tokenizers library"):
        tokeniser(str(tmp_path / "t.json"))
    with pytest.raises(OSError, match=r"none\.json"):
        tokeniser(str(tmp_path / "none.json"))


def test_without_the_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(InputError, match="needs the package tokenizers") as error:
        tokeniser("t.json")
    assert "weft[language]" in error.value.hint
