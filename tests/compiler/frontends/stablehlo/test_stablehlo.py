"""Functions of JAX read, evaluated and compiled, beside JAX's own results. JAX runs in processes of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weft
from weft.compiler.frontends import ModelError, read
from weft.compiler.frontends.stablehlo import checked
from weft.compiler.graph import Module, calls, evaluate
from weft.compiler.graph.scan import SCAN

HERE = Path(__file__).parent
NAMES = re.findall(r'^case\("([^"]+)"', (HERE / "jax_cases.py").read_text(), re.MULTILINE)
COMPILED = ("decoder", "convolutional network", "scan", "set a block", "gradient of an embedding", "top k", "random")


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False,
                          env={**os.environ, "JAX_PLATFORMS": "cpu"})  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """A folder of modules, inputs and results, and the number of each name in it."""
    folder = tmp_path_factory.mktemp("jax")
    run(str(HERE / "jax_cases.py"), str(folder))
    return folder, {str(np.load(path)["name"]): int(path.stem) for path in folder.glob("*.npz")}


def opened(cases: tuple[Path, dict[str, int]], name: str) -> tuple[Module, dict[str, Any], dict[str, Any]]:
    folder, numbers = cases
    arrays = np.load(folder / f"{numbers[name]}.npz")
    source = read(folder / f"{numbers[name]}.mlirbc")
    inputs = [arrays[key] for key in arrays.files if key.startswith("in")]
    outputs = [arrays[key] for key in arrays.files if key.startswith("out")]
    given = [each.name for each in source.inputs({})]
    return (source.module({}, require_quantised=False), dict(zip(given, inputs, strict=True)),
            dict(zip(source.output_names, outputs, strict=True)))  # fmt: skip


def check(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        got = np.asarray(found[name])
        assert got.shape == value.shape
        if value.dtype.kind in "biu":
            np.testing.assert_array_equal(got, value)
        else:
            near = 4e-3 if value.dtype == np.float16 else 3e-5
            np.testing.assert_allclose(got.astype(np.float64), value.astype(np.float64), rtol=near, atol=near)


def test_every_case_is_there(cases: tuple[Path, dict[str, int]]) -> None:
    assert set(NAMES) <= set(cases[1])
    assert len(cases[1]) >= 217


def test_what_modules_mean(cases: tuple[Path, dict[str, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    # JAX wrote them in this run: a process that looks at each before it is read would take four fifths of the time.
    monkeypatch.setattr(checked, "checked", lambda data, _: data)
    wrong = []
    for name in cases[1]:
        module, inputs, expected = opened(cases, name)
        try:
            check(evaluate(module, inputs), expected)
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
    assert wrong == []


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(cases: tuple[Path, dict[str, int]], name: str) -> None:
    module, inputs, expected = opened(cases, name)
    check(weft.load(weft.compile(module, target="cpu")).run(inputs), expected)


def test_a_counted_loop_stays_one(cases: tuple[Path, dict[str, int]]) -> None:
    assert SCAN in {call.op for call in calls(opened(cases, "scan")[0].main.body)}
    assert SCAN not in {call.op for call in calls(opened(cases, "short fori")[0].main.body)}


def test_names_come_from_trees(cases: tuple[Path, dict[str, int]]) -> None:
    _, inputs, expected = opened(cases, "nested names")
    assert list(inputs) == ["p.x", "p.y.0"]
    assert list(expected) == ["a.b", "c.0", "c.1"]


def test_products_of_a_quantised_network_run_on_the_core(cases: tuple[Path, dict[str, int]], tmp_path: Path) -> None:
    module, inputs, _ = opened(cases, "convolutional network")
    rng = np.random.default_rng(0)
    ((name, value),) = inputs.items()
    examples = [{name: rng.uniform(-2, 2, value.shape).astype(np.float32)} for _ in range(4)]
    plan = weft.quantise.plan(module)
    eight = weft.quantise.quantised(plan, weft.quantise.calibrate(plan, examples))
    model = weft.compile(eight, "tiny")
    products = [layer for layer in model.layers if layer.macs]
    assert len(products) == 4
    assert all(layer.device == "core" for layer in products)


def test_text_is_read_as_well(cases: tuple[Path, dict[str, int]]) -> None:
    source = read(cases[0] / "module.mlir")
    with pytest.raises(ModelError, match=r"a shape is given for 'nobody', but the inputs are "):
        source.inputs({"nobody": (1,)})
    x = np.ones((2, 3), np.float32)
    check(evaluate(source.module({}, require_quantised=False), {"x": x}), {"output": x * 2 + 1})


def test_a_damaged_module_is_an_error_or_a_module(cases: tuple[Path, dict[str, int]]) -> None:
    """A parser that does not come back is a process of its own."""
    data = bytearray((cases[0] / f"{cases[1]['scan']}.mlirbc").read_bytes())
    rng = np.random.default_rng(3)
    refused = 0
    for _ in range(4):
        data[int(rng.integers(40, len(data)))] = int(rng.integers(0, 256))
        try:
            read(bytes(data)).module({}, require_quantised=False)
        except ModelError:
            refused += 1
    assert refused


def test_damaged_modules(cases: tuple[Path, dict[str, int]], tmp_path: Path) -> None:
    data = (cases[0] / "0.mlirbc").read_bytes()
    for cut in (30, len(data) // 2, len(data) - 1):
        with pytest.raises(ModelError, match="cannot be read as a module of StableHLO"):
            read(data[:cut])
    text = tmp_path / "wrong.mlir"
    text.write_text("module { func.func @main( }")
    with pytest.raises(ModelError, match=r"wrong.mlir.* cannot be read as a module"):
        read(text)
    text.write_text("module { func.func @other() { return } }")
    with pytest.raises(ModelError, match="has no function 'main'"):
        read(text)


def test_a_function_that_runs_itself(tmp_path: Path) -> None:
    path = tmp_path / "module.mlir"
    path.write_text("""
        module {
          func.func public @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
            %0 = func.call @again(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
            return %0 : tensor<4xf32>
          }
          func.func @again(%arg0: tensor<4xf32>) -> tensor<4xf32> {
            %0 = func.call @again(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
            return %0 : tensor<4xf32>
          }
        }
    """)
    with pytest.raises(ModelError, match="function 'again' of the module runs itself"):
        read(path).module({}, require_quantised=False)


MODULE = """
module {
  func.func public @main(%arg0: tensor<INPUTxf32>) -> tensor<RESULTxf32> {
    %0 = OPERATION
    return %0 : tensor<RESULTxf32>
  }
}
"""


def text_of(operation: str, shape: str = "4", result: str = "4") -> bytes:
    return MODULE.replace("OPERATION", operation).replace("INPUT", shape).replace("RESULT", result).encode()


@pytest.mark.parametrize(
    ("operation", "shape", "result", "message"),
    [
        ("stablehlo.cholesky %arg0 : tensor<4x4xf32>", "4x4", "4x4", r"cholesky \(1 time\): its algorithm"),
        ("stablehlo.custom_call @mine(%arg0) : (tensor<4xf32>) -> tensor<4xf32>", "4", "4", "custom_call of 'mine'"),
        ("stablehlo.abs %arg0 : tensor<?xf32>", "?", "?", "a size is open"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, operation: str, shape: str, result: str, message: str) -> None:
    path = tmp_path / "module.mlir"
    path.write_bytes(text_of(operation, shape, result))
    with pytest.raises(ModelError, match=message):
        read(path).module({}, require_quantised=False)


FROM_JAX = """
import sys
import jax, jax.numpy as jnp, numpy as np
import weft
from weft.errors import WeftError

weights = np.arange(12, dtype=np.float32).reshape(4, 3) / 10

def apply(x, *, scale=2.0):
    return {"logits": jnp.tanh(x @ weights) * scale}

x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
source = weft.from_jax(apply, jax.ShapeDtypeStruct((2, 4), jnp.float32))
assert source.name == "apply" and source.output_names == ("logits",)
result = weft.load(weft.compile(source, target="cpu")).run({"x": x})["logits"]
np.testing.assert_allclose(result, apply(x)["logits"], rtol=1e-5)

exported = jax.export.export(jax.jit(apply), platforms=["cpu"])(x)
again = weft.load(weft.compile(exported, target="cpu")).run({"x": x})["logits"]
np.testing.assert_array_equal(result, again)
try:
    open(sys.argv[1], "wb").write(exported.serialize())
    from_file = weft.load(weft.compile(sys.argv[1], target="cpu")).run({"x": x})["logits"]
    np.testing.assert_array_equal(result, from_file)
except ImportError:
    pass  # JAX writes such files with flatbuffers alone

for wrong, args, words in (
    (7, (), "function is an int"),
    (lambda x: x @ np.ones((5, 2)), (x,), "JAX cannot export it"),
    (lambda x: jnp.fft.fft(x), (x,), "fft"),
):
    try:
        weft.from_jax(wrong, *args)
    except WeftError as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
print("good")
"""


def test_from_jax(tmp_path: Path) -> None:
    assert run("-c", FROM_JAX, str(tmp_path / "model.jax")).strip() == "good"


def test_without_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"jax is not installed; hint: pip install 'weft\[jax\]'"):
        weft.from_jax(abs, 1)
    with pytest.raises(ModelError, match="jaxlib is not installed"):
        read(b"ML\xefR\rStableHLO_v1.0.0")
