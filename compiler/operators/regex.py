"""Whether a whole text matches a regular expression of RE2's syntax, in time linear in the text.

The syntax is that of https://github.com/google/re2/wiki/Syntax: no back references and no looking around, so every
expression is a finite automaton. Its states are followed all at once, and what followed on a set of states is kept, so
no expression makes a text take longer than its length times the number of states. Refused, by `RegexError`: what RE2
refuses, Unicode scripts (``\\p{Greek}``; categories such as ``\\p{Lu}`` are known), single bytes (``\\C``),
expressions of more than `MOST_STATES` states, groups deeper than `DEEPEST`, and more work than `MOST_STEPS`.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from ...errors import WeftError

MOST_STATES = 1 << 14
MOST_REPEATS = 1000
DEEPEST = 100
MOST_STEPS = 50_000_000
"""States that are visited for all texts of a run."""

KEPT_STEPS = 1 << 14
LAST_CHARACTER = 0x10FFFF

Ranges = tuple[tuple[int, int], ...]
"""Code points: first and last of each run, in order, apart from each other."""


class RegexError(WeftError):
    """An expression that is not read, or that takes too long."""


def _ordered(ranges: Iterable[tuple[int, int]]) -> Ranges:
    result: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1] = result[-1][0], max(result[-1][1], last)
        else:
            result.append((first, last))
    return tuple(result)


def _others(ranges: Ranges) -> Ranges:
    result, start = [], 0
    for first, last in ranges:
        if start < first:
            result.append((start, first - 1))
        start = last + 1
    if start <= LAST_CHARACTER:
        result.append((start, LAST_CHARACTER))
    return tuple(result)


def _holds(ranges: Ranges, character: int) -> bool:
    place = bisect_right(ranges, (character, LAST_CHARACTER)) - 1
    return place >= 0 and character <= ranges[place][1]


def _of(characters: str) -> Ranges:
    return _ordered((ord(each), ord(each)) for each in characters)


_DIGIT: Ranges = ((48, 57),)
_SPACE = _of("\t\n\f\r ")
_UPPER, _LOWER = ((65, 90),), ((97, 122),)
_WORD = _ordered([*_DIGIT, *_UPPER, *_LOWER, (95, 95)])
_PERL = {"d": _DIGIT, "s": _SPACE, "w": _WORD}
_PUNCTUATION = _ordered([(33, 47), (58, 64), (91, 96), (123, 126)])
_POSIX = {
    "alnum": _ordered([*_DIGIT, *_UPPER, *_LOWER]), "alpha": _ordered([*_UPPER, *_LOWER]), "ascii": ((0, 127),),
    "blank": _of("\t "), "cntrl": ((0, 31), (127, 127)), "digit": _DIGIT, "graph": ((33, 126),), "lower": _LOWER,
    "print": ((32, 126),), "punct": _PUNCTUATION, "space": _of("\t\n\v\f\r "), "upper": _UPPER, "word": _WORD,
    "xdigit": _ordered([*_DIGIT, (65, 70), (97, 102)]),
}  # fmt: skip
_CONTROL = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_ASSERTIONS = {"A": "start", "z": "end", "b": "boundary", "B": "inside"}
_LINE_FEED = 10
_HAVE_NO_SIMPLE_CASE = (0x130, 0x131)
_LAST_WITH_CASE = 0x1E943


@lru_cache(maxsize=1)
def _cases() -> dict[int, tuple[int, ...]]:
    """For each character that has cases, all characters that differ from it by case alone."""
    groups: dict[str, list[int]] = {}
    for number in range(_LAST_WITH_CASE + 1):
        character = chr(number)
        upper = character.upper()
        lower = (upper if len(upper) == 1 else character).lower()
        if len(lower) == 1 and number not in _HAVE_NO_SIMPLE_CASE:
            groups.setdefault(lower, []).append(number)
    return {number: tuple(group) for group in groups.values() if len(group) > 1 for number in group}


def _in_any_case(ranges: Ranges) -> Ranges:
    more = [each for number, group in _cases().items() if _holds(ranges, number) for each in group]
    return _ordered([*ranges, *((each, each) for each in more)])


@lru_cache(maxsize=64)
def _category(name: str) -> Ranges:
    """The characters of a Unicode category, of one letter or two."""
    found: list[tuple[int, int]] = []
    for number in range(LAST_CHARACTER + 1):
        if unicodedata.category(chr(number)).startswith(name):
            if found and found[-1][1] == number - 1:
                found[-1] = found[-1][0], number
            else:
                found.append((number, number))
    return tuple(found)


@dataclass(frozen=True)
class _Flags:
    any_case: bool = False
    lines: bool = False
    dot_is_all: bool = False


Part = Callable[[int], int]
"""Adds the states of a part of an expression: from the state that follows it to its first one."""


@dataclass
class _Automaton:
    """``states``: what each does. Ranges take a character of them and go on; names look at where they are and go on;
    None goes on with nothing taken. ``after``: the states behind each."""

    states: list[Ranges | str | None] = field(default_factory=list)
    after: list[tuple[int, ...]] = field(default_factory=list)

    def add(self, state: Ranges | str | None, *after: int) -> int:
        if len(self.states) >= MOST_STATES:
            raise RegexError(f"the expression has more than {MOST_STATES:,} states", hint="repeat less")
        self.states.append(state)
        self.after.append(after)
        return len(self.states) - 1

    def taking(self, ranges: Ranges | str) -> Part:
        return lambda behind: self.add(ranges, behind)

    def one_of(self, parts: list[Part]) -> Part:
        return parts[0] if len(parts) == 1 else lambda behind: self.add(None, *[part(behind) for part in parts])

    def repeated(self, part: Part, low: int, high: int | None) -> Part:
        def build(behind: int) -> int:
            if high is None:
                again = self.add(None, behind)
                self.after[again] = (part(again), behind)
                first = again
            else:
                first = behind
                for _ in range(high - low):
                    first = self.add(None, part(first), behind)
            for _ in range(low):
                first = part(first)
            return first

        return build


def _in_turn(parts: list[Part]) -> Part:
    def build(behind: int) -> int:
        for part in reversed(parts):
            behind = part(behind)
        return behind

    return build


class _Reader:
    """Reads an expression into an automaton."""

    def __init__(self, pattern: str) -> None:
        self.text, self.place, self.depth = pattern, 0, 0
        self.flags = _Flags()
        self.automaton = _Automaton()
        self.names: set[str] = set()

    def error(self, message: str, start: int | None = None) -> RegexError:
        place = self.place if start is None else start
        shown = self.text if len(self.text) <= 60 else self.text[:57] + "..."
        return RegexError(f"the regular expression {shown!r}, at character {place}: {message}",
                          hint="its syntax must be that of RE2")  # fmt: skip

    def whole(self) -> tuple[_Automaton, int]:
        part = self.choice()
        if self.place < len(self.text):
            raise self.error("a ')' without its '('")
        last = self.automaton.add("matched")
        return self.automaton, part(last)

    def next(self) -> str:
        """The next character, which must be there."""
        if self.place >= len(self.text):
            raise self.error("it ends too early")
        self.place += 1
        return self.text[self.place - 1]

    def accept(self, text: str) -> bool:
        if self.text.startswith(text, self.place):
            self.place += len(text)
            return True
        return False

    def until(self, end: str) -> str:
        place = self.text.find(end, self.place)
        if place < 0:
            raise self.error(f"there is no {end!r} behind it")
        found = self.text[self.place : place]
        self.place = place + len(end)
        return found

    def choice(self) -> Part:
        outer = self.flags
        parts = [self.sequence()]
        while self.accept("|"):
            parts.append(self.sequence())
        self.flags = outer
        return self.automaton.one_of(parts)

    def sequence(self) -> Part:
        parts: list[Part] = []
        while self.place < len(self.text) and self.text[self.place] not in "|)":
            if self.accept("\\Q"):
                quoted = self.text[self.place :] if "\\E" not in self.text[self.place :] else self.until("\\E")
                if "\\E" not in self.text[: self.place][-2:]:
                    self.place = len(self.text)
                items = [self.character(ord(each)) for each in quoted]
                parts += items[:-1]
                if items:
                    parts.append(self.repeats(items[-1]))
                continue
            part = self.item()
            if part is not None:
                parts.append(self.repeats(part))
        return _in_turn(parts)

    def repeats(self, part: Part) -> Part:
        """``part`` with the repetition behind it."""
        start = self.place
        found = self.repetition()
        if found is None:
            return part
        self.accept("?")  # as few as possible: the same texts match
        if self.place < len(self.text) and (self.text[self.place] in "*+?" or self.repetition() is not None):
            raise self.error("a repetition of a repetition", start)
        return self.automaton.repeated(part, *found)

    def repetition(self) -> tuple[int, int | None] | None:
        start = self.place
        for mark, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.accept(mark):
                return bounds
        end = self.text.find("}", self.place)
        inside = self.text[self.place : end] if self.accept("{") and end > 0 else ""
        low, comma, high = inside.partition(",")
        numbers = all(each.isascii() and each.isdigit() for each in (low, *([high] if high else [])))
        if not inside or not numbers:  # a brace that stands for itself
            self.place = start
            return None
        self.place = end + 1
        if max(len(low), len(high)) > 6 or max(int(low), int(high or 0)) > MOST_REPEATS:
            raise self.error(f"more than {MOST_REPEATS} repetitions", start)
        least, most = int(low), int(high) if high else None if comma else int(low)
        if most is not None and most < least:
            raise self.error(f"no more than {most} repetitions, but at least {least}", start)
        return least, most

    def item(self) -> Part | None:
        """One character, class, assertion or group; None for flags that are set from here on."""
        start = self.place
        match self.next():
            case "(":
                return self.group(start)
            case "[":
                return self.automaton.taking(self.bracket(start))
            case ".":
                line = () if self.flags.dot_is_all else ((_LINE_FEED, _LINE_FEED),)
                return self.automaton.taking(_others(line))
            case "^":
                return self.automaton.taking("line start" if self.flags.lines else "start")
            case "$":
                return self.automaton.taking("line end" if self.flags.lines else "end")
            case "*" | "+" | "?":
                raise self.error("there is nothing to repeat", start)
            case "\\":
                following = self.text[self.place : self.place + 1]
                if following in _ASSERTIONS and following:
                    self.place += 1
                    return self.automaton.taking(_ASSERTIONS[following])
                found = self.escape(start)
                return self.character(found) if isinstance(found, int) else self.automaton.taking(self.cased(found))
            case character:
                return self.character(ord(character))

    def character(self, number: int) -> Part:
        return self.automaton.taking(self.cased(((number, number),)))

    def cased(self, ranges: Ranges) -> Ranges:
        return _in_any_case(ranges) if self.flags.any_case else ranges

    def group(self, start: int) -> Part | None:
        outer = self.flags
        if self.accept("?"):
            if self.accept("P<") or (self.text[self.place : self.place + 2] not in ("<=", "<!") and self.accept("<")):
                name = self.until(">")
                if not name.replace("_", "a").isalnum() or name in self.names:
                    raise self.error(f"a group cannot be called {name!r}", start)
                self.names.add(name)
            elif not self.set_flags(start):
                return None
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.error(f"groups are more than {DEEPEST} deep", start)
        part = self.choice()
        self.depth -= 1
        if not self.accept(")"):
            raise self.error("a '(' without its ')'", start)
        self.flags = outer
        return part

    def set_flags(self, start: int) -> bool:
        """Read ``flags:`` or ``flags)``; gives whether a group follows."""
        names = {"i": "any_case", "m": "lines", "s": "dot_is_all", "U": ""}
        values, on, given = vars(self.flags).copy(), True, False
        while True:
            match self.next():
                case "-" if on:
                    on, given = False, False
                case letter if letter in names:
                    given = True
                    if names[letter]:
                        values[names[letter]] = on
                case ":" if given or on:
                    self.flags = _Flags(**values)
                    return True
                case ")" if given:
                    self.flags = _Flags(**values)
                    return False
                case _:
                    raise self.error("RE2 has no such group", start)

    def escape(self, start: int) -> int | Ranges:
        """What stands behind a backslash: a character, or a class."""
        letter = self.next()
        if letter.lower() in _PERL:
            ranges = _PERL[letter.lower()]
            return ranges if letter.islower() else _others(ranges)
        if letter in ("p", "P"):
            return self.property(start, letter == "P")
        if letter in _CONTROL:
            return _CONTROL[letter]
        if letter == "x":
            digits = self.until("}") if self.accept("{") else self.next() + self.next()
            try:
                number = int(digits, 16) if digits.isalnum() else -1
            except ValueError:
                number = -1
            if not 0 <= number <= LAST_CHARACTER:
                raise self.error(f"{digits!r} is no character", start)
            return number
        octal = self.text[self.place : self.place + 1]
        if letter == "0" or (letter in "1234567" and octal and octal in "01234567"):
            digits = letter
            while len(digits) < 3 and self.text[self.place : self.place + 1] in tuple("01234567"):
                digits += self.next()
            return int(digits, 8)
        if letter.isascii() and not letter.isalnum():
            return ord(letter)
        raise self.error(f"RE2 has no \\{letter}" + (", no back references" if letter.isdigit() else ""), start)

    def property(self, start: int, negated: bool) -> Ranges:
        name = self.until("}") if self.accept("{") else self.next()
        if name.startswith("^"):
            name, negated = name[1:], not negated
        if name == "Any":
            ranges: Ranges = ((0, LAST_CHARACTER),)
        elif len(name) > 2 or not (ranges := _category(name)):
            raise self.error(f"the class {name!r} is not known; Unicode categories are, such as L or Lu", start)
        return _others(ranges) if negated else ranges

    def bracket(self, start: int) -> Ranges:
        negated = self.accept("^")
        found: list[tuple[int, int]] = []
        first = True
        while first or not self.accept("]"):
            first = False
            if self.text.startswith("[:", self.place) and ":]" in self.text[self.place :]:
                self.place += 2
                found += self.posix(start)
                continue
            low = self.member(start)
            if not isinstance(low, int):
                found += self.cased(low)
                continue
            high = low
            if self.text.startswith("-", self.place) and not self.text.startswith("-]", self.place):
                self.place += 1
                end = self.member(start)
                if not isinstance(end, int) or end < low:
                    raise self.error("a range that has no end, or ends before it begins", start)
                high = end
            found += self.cased(((low, high),))
        ranges = _ordered(found)
        return _others(ranges) if negated else ranges

    def posix(self, start: int) -> Ranges:
        name = self.until(":]")
        ranges = _POSIX.get(name.removeprefix("^"))
        if ranges is None:
            raise self.error(f"there is no class {name!r}", start)
        ranges = self.cased(ranges)
        return _others(ranges) if name.startswith("^") else ranges

    def member(self, start: int) -> int | Ranges:
        if self.place >= len(self.text):
            raise self.error("a '[' without its ']'", start)
        character = self.next()
        return self.escape(start) if character == "\\" else ord(character)


class Regex:
    """A compiled expression. Raises `RegexError` for one that is not read."""

    def __init__(self, pattern: str) -> None:
        self._automaton, self._first = _Reader(pattern).whole()
        self._kept: dict[tuple[frozenset[int], int, int], frozenset[int]] = {}

    def full_matches(self, texts: Iterable[str], most_steps: int = MOST_STEPS) -> list[bool]:
        """For each text whether all of it matches. Raises `RegexError` when that takes more than ``most_steps``."""
        self._left = most_steps
        return [self._matches(text) for text in texts]

    def _matches(self, text: str) -> bool:
        states, before = frozenset([self._first]), -1
        for character in map(ord, text):
            key = states, _kind(before), character
            after = self._kept.get(key)
            if after is None:
                after = self._step(states, before, character)
                if len(self._kept) >= KEPT_STEPS:
                    self._kept.clear()
                self._kept[key] = after
            self._spend(1)
            if not after:
                return False
            states, before = after, character
        return any(self._automaton.states[each] == "matched" for each in self._reached(states, before, -1))

    def _step(self, states: frozenset[int], before: int, character: int) -> frozenset[int]:
        automaton = self._automaton
        return frozenset(
            automaton.after[each][0] for each in self._reached(states, before, character)
            if isinstance(ranges := automaton.states[each], tuple) and _holds(ranges, character)
        )  # fmt: skip

    def _reached(self, states: Iterable[int], before: int, after: int) -> set[int]:
        """All states that are reached with nothing taken, between two characters; -1 is the text's end."""
        automaton, found = self._automaton, set(states)
        waiting = list(found)
        while waiting:
            number = waiting.pop()
            state = automaton.states[number]
            if isinstance(state, tuple) or not _stands(state, before, after):
                continue
            for each in automaton.after[number]:
                if each not in found:
                    found.add(each)
                    waiting.append(each)
        self._spend(len(found))
        return found

    def _spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise RegexError("the regular expression takes too long on these texts", hint="repeat less, or match less")


def _kind(character: int) -> int:
    """What assertions see of a character: none, the end of a line, of a word, or another."""
    if character in (-1, _LINE_FEED):
        return -1 if character < 0 else 0
    return 1 if _holds(_WORD, character) else 2


def _stands(state: str | None, before: int, after: int) -> bool:
    """Whether an assertion holds between two characters."""
    match state:
        case None:
            return True
        case "start":
            return before < 0
        case "end":
            return after < 0
        case "line start":
            return before in (-1, _LINE_FEED)
        case "line end":
            return after in (-1, _LINE_FEED)
        case "boundary" | "inside":
            return (_kind(before) == 1) != (_kind(after) == 1) if state == "boundary" else (
                (_kind(before) == 1) == (_kind(after) == 1)
            )  # fmt: skip
    return False


@lru_cache(maxsize=64)
def compiled(pattern: str) -> Regex:
    """The expression, compiled once. Raises `RegexError`."""
    return Regex(pattern)
