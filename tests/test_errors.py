"""One base of all errors: its text, its attributes, and that copies and pickles lose nothing."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import pickle
from collections.abc import Iterator

import pytest
from weft.compiler.frontends.errors import NeedsValueError
from weft.compiler.graph import Span, Var
from weft.compiler.graph.ir import TensorType
from weft.errors import WeftError
from weft.runtime.errors import CoreFaultError
from weft.sim.errors import RaceError
from weft.sim.result import RunResult

from .test_project import module_name, package_files

INTERNAL = {
    "weft.sim.fsim._CoreStoppedError",
    "weft.testbench.memory._RefusedError",
    "weft.compiler.targets.accel.check_at_once._DoubtError",  # then the checker judges
    "weft.boards.finding.FindingError",  # between a check of the doctor and the doctor, who makes a verdict of it
    "weft.content.NoContentError",  # of a key that cannot be made: whoever asked does without
    "weft.verify.errors.NotProvedError",  # the verifier turns it into an alarm
    "weft.boards.link.errors.LinkError",  # on the board there is no weft; here it becomes a BoardLinkError
}
"""Exceptions that no user meets."""


def error_classes() -> Iterator[type[BaseException]]:
    """Every exception class that the package defines."""
    for path in package_files():
        if path.name == "__main__.py" or "Error" not in path.read_text():
            continue
        if {"torch", "pytorch"} & set(path.parts) and importlib.util.find_spec("torch") is None:
            continue  # an extra, whose parts define no errors of their own
        module = importlib.import_module(module_name(path))
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, BaseException) and value.__module__ == module.__name__:
                yield value


@pytest.mark.parametrize(
    ("at", "hint", "text"),
    [
        ("", "", "the kernel is too large"),
        ("node 'a'", "", "node 'a': the kernel is too large"),
        ("", "pad the input", "the kernel is too large; hint: pad the input"),
        ("node 'a'", "pad the input", "node 'a': the kernel is too large; hint: pad the input"),
        (Span(("a", "b")), "", "node 'a', 'b': the kernel is too large"),
        (Span((), "x"), "", "tensor 'x': the kernel is too large"),
        (Span(), "", "the kernel is too large"),
        (None, "", "the kernel is too large"),
    ],
)
def test_the_text_is_place_message_and_hint(at: object, hint: str, text: str) -> None:
    error = WeftError("the kernel is too large", at=at, hint=hint)
    assert str(error) == text
    assert (error.message, error.at, error.hint) == ("the kernel is too large", str(at) if at else "", hint)


def test_all_error_classes_of_the_package_share_the_base_and_its_text() -> None:
    classes = {f"{each.__module__}.{each.__name__}": each for each in error_classes()}
    assert len(classes) > 20
    others = {name for name, each in classes.items() if not issubclass(each, WeftError)}
    assert others == INTERNAL
    own_text = [name for name, each in classes.items() if "__str__" in vars(each) and each is not WeftError]
    assert not own_text


@pytest.mark.parametrize(
    "error",
    [
        WeftError("message", at="place", hint="hint"),
        RaceError("a race", first=1, second=2, memory="acc", entry=3),
        CoreFaultError("the core stopped", RunResult(17, None, 0, 0)),
        NeedsValueError("Reshape", "the new shape", at=Span(("node",)), value=Var("x", TensorType((2,), "int8"))),
    ],
    ids=lambda error: type(error).__name__,
)
def test_copies_and_pickles_lose_nothing(error: WeftError) -> None:
    error.add_note("seen in a test")
    for other in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert vars(other) == vars(error)
        assert other.args == error.args
