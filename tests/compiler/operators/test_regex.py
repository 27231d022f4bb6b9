"""Regular expressions: that RE2 is asked, in the way that ONNX means, and what is refused."""

from __future__ import annotations

import sys

import pytest
from weft.compiler.operators.regex import RegexError, compiled, full_matches


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        (r"www\.[\w.-]+\.\bcom\b", ["www.google.com"], ["www.bbc.co.uk", "wwwxgoogle.com", "www..com\n"]),
        ("a$", ["a"], ["a\n", "ab", "ba"]),
        ("a|ab", ["a", "ab"], ["abb"]),
        (r"\p{Lu}\p{Greek}.", ["Éα😀"], ["éα😀", "Éaa", "Éα"]),
        (r"a\x00b", ["a\0b"], ["a", "ab"]),
        ("", [""], ["a"]),
    ],
)
def test_all_of_a_text_matches(pattern: str, matching: list[str], others: list[str]) -> None:
    assert full_matches(pattern, matching) == [True] * len(matching)
    assert full_matches(pattern, others) == [False] * len(others)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [("(a", r"^regular expression '\(a': missing \): \(a; hint: RE2's syntax holds"), ("(?=a)", r"\(\?="),
     (r"(a)\1", "invalid escape sequence"), ("(a{1000}){1000}", "repetition"), ("\ud800", "no Unicode")],
)  # fmt: skip
def test_what_is_refused(pattern: str, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RegexError, match=message):
        full_matches(pattern, ["a"])
    assert "re2.cc" not in capfd.readouterr().err


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*b", "(a+a+)+b", "(a?){200}a{200}b", "(.*)(.*)(.*)(.*)[^a]"])
def test_no_expression_takes_exponential_time(pattern: str) -> None:
    assert full_matches(pattern, ["a" * 2000]) == [False]


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled.cache_clear()
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(RegexError, match=r"RE2, which is not installed; hint: pip install 'weft\[text\]'"):
        full_matches("a", ["a"])
