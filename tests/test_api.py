"""The public functions: what type checkers are told of them is what is there."""

from __future__ import annotations

from dataclasses import fields

import pytest
import weft
from weft.api import TargetOptions
from weft.compiler.targets.errors import CompileError
from weft.compiler.targets.registry import find_target, target_names


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
            {"processor": "host"},
            "target 'accel' has no option 'processor'; hint: its options: config",
        ),
        ({"vthreads": 0}, "vthreads is 0, but must be at least 1"),
        ({"hiding": "all"}, "hiding is 'all', but must be one of none, vthreads, rings"),
        ({"target": "cpu", "threads": 0}, r"threads is 0, but must be 1\.\.256"),
    ],
)
def test_an_option_that_a_target_does_not_have_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        weft.compile("model.onnx", **options)  # type: ignore[arg-type]
