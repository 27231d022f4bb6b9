"""A processor with an instruction of its own (`dot_target.py`, which the manual shows): sums of four products are that
instruction wherever they are, and nowhere else."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import import_module
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import weft
from weft.compiler.graph import Attrs, Constant, Function, Module, TensorType, Tuple, Var, call, evaluate
from weft.compiler.targets.loops.check_kernel import UncheckedKernelError

ROOT = Path(weft.__file__).parents[1]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
FILE = Path(__file__).with_name("dot_target.py")


@pytest.fixture
def dot_target(extensions: None) -> ModuleType:
    module = import_module("dot_target")
    weft.register_target(module.DotTarget())
    return module


def convolution(channels: int, kernel: int, strides: tuple[int, int]) -> tuple[Module, dict[str, np.ndarray]]:
    generator = np.random.default_rng(channels * 10 + kernel)
    x = Var("x", TensorType((2, channels, 7, 6), "int8"))
    weights = generator.integers(-128, 128, (5, channels, kernel, kernel)).astype(np.int8)
    body = Tuple((call("conv2d", x, Constant(weights), strides=strides),))
    main = Function((x,), body, Attrs({"name": "main", "outputs": ("y",)}))
    return Module(main, "operators"), {"x": generator.integers(-128, 128, x.type.shape).astype(np.int8)}


def calls(model: weft.CompiledModel) -> int:
    return sum(code.text.count("dot4(") for step in model.steps for code in step.program.kernels)


@pytest.mark.parametrize(("channels", "kernel", "strides"), [*product((1, 3, 4, 12), (1, 3, 4), ((1, 1), (2, 1)))])
def test_products_of_bytes_are_the_instruction(
    dot_target: ModuleType, tmp_path: Path, channels: int, kernel: int, strides: tuple[int, int]
) -> None:
    module, inputs = convolution(channels, kernel, strides)
    model = weft.compile(module, target="dot", strict=True)
    assert calls(model) == (channels % 4 == 0 or kernel == 4)
    weft.save(model, tmp_path / "model.weft")
    wanted = evaluate(module, inputs)["y"]
    for loaded in (weft.load(model), weft.load(tmp_path / "model.weft")):
        np.testing.assert_array_equal(loaded.run(inputs)["y"], wanted)


def test_a_network_gives_the_integers_of_the_cpu(dot_target: ModuleType) -> None:
    image = {"image": np.random.default_rng(0).random((1, 1, 8, 8)).astype(np.float32)}
    model = weft.compile(DIGITS, target="dot")
    assert calls(model) == 1
    ours, theirs = (weft.load(each).run(image)["logits"] for each in (model, weft.compile(DIGITS, target="cpu")))
    np.testing.assert_array_equal(ours, theirs)


def test_the_steps_of_a_tile_are_looked_at_in_a_file(dot_target: ModuleType) -> None:
    """They are operands of the instruction: those of another file may lead out of the tensor."""
    from weft.compiler.targets.loops.kernel_code import kernel_symbol

    module, _ = convolution(4, 1, (1, 1))
    model = weft.compile(module, target="dot")
    (step,) = model.steps
    (code,) = step.program.kernels

    def damaged(old: str, new: str) -> Any:
        text = code.text.replace(old, new)
        assert text != code.text
        symbol = kernel_symbol(text, code.windows)
        steps = tuple(replace(each, symbol=symbol) for each in step.program.steps)
        return replace(step.program, kernels=(replace(code, text=text, symbol=symbol),), steps=steps)

    target = dot_target.DotTarget()
    target.host_code(step.program, trusted=False)
    with pytest.raises(UncheckedKernelError, match="x0"):
        target.host_code(damaged("[4], [42]", "[4], [43]"), trusted=False)
    with pytest.raises(UncheckedKernelError, match="the tile for 'a' of 'dot4' is another"):
        target.host_code(damaged("[4], [42]", "[4], [0]"), trusted=False)


def test_a_proof_does_not_outlive_the_declaration(
    dot_target: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instruction of this name may take other tiles in the next version of its package."""
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path))
    module, _ = convolution(4, 1, (1, 1))
    (step,) = weft.compile(module, target="dot").steps
    target = dot_target.DotTarget()
    target.host_code(step.program, trusted=False)
    a, b = (replace(each, shape=(8,)) for each in dot_target.DOT4.operands[1:])
    longer = replace(dot_target.DOT4, operands=(dot_target.DOT4.operands[0], a, b))
    monkeypatch.setattr(dot_target.DotTarget, "intrinsics", {"dot4": longer})
    with pytest.raises(UncheckedKernelError, match="the tile for 'a' of 'dot4' is another"):
        target.host_code(step.program, trusted=False)


def test_the_manual_quotes_this_very_file() -> None:
    shown = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "extending.md").read_text(), re.DOTALL)
    (quoted,) = [code for code in shown if "DOT4 = " in code]
    assert quoted in FILE.read_text()
