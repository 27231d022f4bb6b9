"""The public functions: what type checkers are told of them is what is there."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import weft
from weft.api import TargetOptions
from weft.compiler.targets.errors import CompileError
from weft.compiler.targets.registry import find_target, target_names
from weft.runtime.errors import ArtifactError

DIGITS = Path(weft.__file__).parents[1] / "examples" / "digits" / "digits.onnx"


def test_typed_options_are_those_of_the_targets_of_this_package() -> None:
    names = {field.name for target in target_names() for field in fields(find_target(target).options)}
    assert names == {"config", *TargetOptions.__annotations__}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"target": "cpu", "config": "wide"},
            "target 'cpu' has no option 'config'; hint: its options: threads",
        ),
        (
            {"target": "cpu", "vthreads": 2},
            "target 'cpu' has no option 'vthreads'; hint: its options: threads",
        ),
        (
            {"tf32": True},
            "target 'accel' has no option 'tf32'; hint: its options: config",
        ),
        (
            {"config": Path("core.json")},
            "but must be a CoreConfig or the name of one; hint: known: .*, or the path of a",
        ),
        ({"vthreads": 0}, "vthreads is 0, but must be at least 1"),
        ({"hiding": "all"}, "hiding is 'all', but must be one of none, vthreads, rings"),
        ({"vthreads": "2"}, "vthreads is '2', but must be a whole number"),
        ({"target": "cpu", "threads": None}, "threads is None, but must be a whole number"),
        ({"chains": "no"}, "chains is 'no', but must be True or False"),
        ({"target": "cuda", "tf32": 1}, "tf32 is 1, but must be True or False"),
        ({"strict": "False"}, "strict is 'False', but must be True or False"),
        ({"keep": None}, "keep is None, but must be True or False"),
        ({"cache": "off"}, "cache is 'off', but must be True or False"),
        ({"target": 5}, "target is 5, but must be a Target or the name of one; hint: known: accel, cpu"),
        ({"target": "cpu", "threads": 0}, r"threads is 0, but must be 1\.\.256"),
    ],
)
def test_an_option_that_a_target_does_not_have_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        weft.compile("model.onnx", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("model", [5, b"", None])
def test_what_is_no_model_is_not_loaded(model: Any) -> None:
    with pytest.raises(ArtifactError, match=r"model is .*, but must be a compiled model or the path of an artifact"):
        weft.load(model)


@pytest.mark.parametrize("shapes", [5, [1], {"x": 5}, {"x": "1x2"}, {"x": (1.0,)}, {"x": (None,)}])
def test_shapes_that_are_none_are_refused(shapes: Any) -> None:
    with pytest.raises(CompileError, match=r"shapes is .*, but must hold the sizes of each input by name; hint: such"):
        weft.compile(DIGITS, target="cpu", shapes=shapes)


def test_a_target_that_is_given_as_a_core_is_told() -> None:
    with pytest.raises(CompileError, match="'cpu' is a target, and config is a core; hint: target='cpu'"):
        weft.compile(DIGITS, "cpu")
