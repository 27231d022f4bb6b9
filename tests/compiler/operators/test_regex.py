"""Regular expressions: against Python's where the syntaxes agree, and what RE2 has beside them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.compiler.operators.regex import MOST_REPEATS, Regex, RegexError

ALPHABET = "abAB1_ \n-é"
atoms = st.sampled_from([
    *"ab1_ -é", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", ".", "[a-b]", "[^a]", r"[\w-]", r"[^\d\n]", "[]a]", "[b-]",
    r"\x61", r"\-", r"\n", "(?i:A)", "(?i:[^a])", "(?s:.)", "(?:)", "(?m:^)", "(?m:$)", r"\A", r"\b", r"(?:(?P<g>a)?)",
])  # fmt: skip
marks = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,3}", "{0,}", "*?", "??"])


def _joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    several = st.lists(st.tuples(inner, marks), max_size=4).map(lambda parts: "".join(a + mark for a, mark in parts))
    return st.lists(several, min_size=1, max_size=2).map(lambda parts: "(?:" + "|".join(parts) + ")")


patterns = _joined(st.recursive(atoms, _joined, max_leaves=8))


@given(patterns, st.lists(st.text(ALPHABET, max_size=8), max_size=5))
def test_the_same_texts_match_as_in_python(pattern: str, texts: list[str]) -> None:
    try:
        theirs = re.compile(pattern, re.ASCII)
    except re.error:  # an assertion that is repeated, a group of the same name twice
        return
    try:
        ours = Regex(pattern)
    except RegexError as error:
        pytest.fail(f"{pattern!r} is refused: {error}")
    wanted = [theirs.fullmatch(text) is not None for text in texts]
    if "(?i:" in pattern and any("é" in text for text in texts):  # ASCII alone has cases there
        return
    assert ours.full_matches(texts) == wanted


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        (r"www\.[\w.-]+\.\bcom\b", ["www.google.com"], ["www.bbc.co.uk", "wwwxgoogle.com", "www..com\n"]),
        (r"a$", ["a"], ["a\n"]),
        (r"\z\b*", [""], ["a"]),
        (r"\B", [""], ["a"]),
        (r"[[:alpha:][:^digit:]-]+", ["ab-!"], ["a1"]),
        (r"\p{Lu}\PL\p{^L}\pN", ["É__²"], ["é__2", "Ea_2", "E__"]),
        (r"\Qa.*\E+\x{1F600}\x41\101\07", ["a.***😀AA\a"], ["ab*😀AA\a"]),
        (r"\Qa(b", ["a(b"], ["a"]),
        (r"(?i)straße|[k-k]|\x{3c3}", ["STRAẞE", "\u212a", "\u03a3", "\u03c2"], ["strasse", "l"]),
        (r"(?i:[^k])", ["a"], ["K", "\u212a"]),
        (r"a(?i)b|c", ["ab", "aB", "C"], ["Ab"]),
        (r"(?i)a(?-i:b)", ["Ab"], ["AB"]),
        (r"(?U)(?P<word>a+)(?<other>b{,2})", ["ab{,2}"], ["abb"]),
        (r"(?s-m).$", ["\n"], ["\n\n"]),
        (r"a{0}b{2,}", ["bb", "bbbb"], ["b", "abb"]),
        (r"(|a)*", ["", "aaa"], ["b"]),
        ("", [""], ["a"]),
        (r"[^\n]", ["\r"], ["\n", "ab"]),
        (r"\s", ["\f"], ["\v"]),
        ("[[:word]", ["[", ":", "w"], ["a"]),
    ],
)
def test_the_syntax_of_re2(pattern: str, matching: list[str], others: list[str]) -> None:
    assert Regex(pattern).full_matches(matching) == [True] * len(matching)
    assert Regex(pattern).full_matches(others) == [False] * len(others)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(a", "without its '\\)'"), ("a)", "without its '\\('"), ("[a", "without its '\\]'"), ("[]", "without its"),
        ("a**", "repetition of a repetition"), ("*a", "nothing to repeat"), ("a|+", "nothing to repeat"),
        ("(?=a)", "no such group"), ("(?<!a)", "no such group"), ("(?z)", "no such group"), ("(?", "too early"),
        (r"(a)\1", "no back references"), (r"\C", r"no \\C"), (r"\Z", r"no \\Z"), ("\\", "too early"),
        (f"a{{{MOST_REPEATS + 1}}}", "more than 1000 repetitions"), ("a{3,2}", "at least 3"),
        ("(a{1000}){1000}", "states"), ("(" * 500 + ")" * 500, "deep"), (r"\p{Greek}", "categories"),
        ("(?P<n>a)(?P<n>b)", "called 'n'"), ("(?P<>a)", "called ''"), ("[b-a]", "before it begins"),
        (r"[a-\d]", "no end"), ("[[:none:]]", "no class 'none'"),
        (r"\x{110000}", "no character"), (r"\xg1", "no character"),
    ],
)  # fmt: skip
def test_what_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(RegexError, match=message):
        Regex(pattern)


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*b", "(a+a+)+b", "(a?){200}a{200}b", "(.*)(.*)(.*)(.*)[^a]"])
def test_no_expression_takes_exponential_time(pattern: str) -> None:
    regex = Regex(pattern)
    assert regex.full_matches(["a" * 2000], most_steps=2_000_000) == [False]


def test_too_much_work_is_refused() -> None:
    with pytest.raises(RegexError, match="takes too long"):
        Regex("(a?){1000}").full_matches(["a" * 999], most_steps=100_000)
