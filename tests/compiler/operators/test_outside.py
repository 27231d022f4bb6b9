"""An operator that one file outside of weft adds (`softsign.py`, which the manual shows) works everywhere."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import weft
from weft.compiler.graph import (
    Attrs,
    Constant,
    Expr,
    Family,
    Function,
    GraphError,
    Module,
    TensorType,
    Var,
    call,
    calls,
    constant_table,
    dtypes,
    evaluate,
    operator,
    operator_of,
    parse,
    registry,
    to_text,
)
from weft.compiler.operators.random_graphs import random_graph
from weft.compiler.passes import PassManager, check_stage, integer_passes

FILE, INTEGER_FILE = Path(__file__).with_name("softsign.py"), Path(__file__).with_name("fahrenheit.py")
ROOT = Path(__file__).parents[3]
MANUAL = ROOT / "docs" / "extending.md"
NAME = "my.softsign"


def executed(path: Path, name: str) -> ModuleType:
    """The module that a file makes."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test adds is gone behind it."""
    monkeypatch.setattr(registry, "_operators", dict(registry._operators))


@pytest.fixture
def softsign(own_registry: None) -> ModuleType:
    return executed(FILE, "softsign")


def module_of(*shape: int, dtype: str = "float32") -> Module:
    x = Var("x", TensorType(shape, dtype))
    body = call("nn.add", call(NAME, call("nn.multiply", x, x)), x)
    return Module(Function((x,), body, Attrs({"name": "main", "outputs": ("y",)})))


def expected(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    return wide * wide / (1 + wide * wide) + wide


def test_it_has_a_meaning_a_type_and_a_text(softsign: ModuleType) -> None:
    module = module_of(3, 5)
    check_stage(module, "source")
    assert parse(to_text(module), constant_table(module)) == module
    x = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    np.testing.assert_allclose(evaluate(module, {"x": x})["y"], expected(x), rtol=1e-6)
    with pytest.raises(GraphError, match=r"my\.softsign: an operand must be .* not int8"):
        call(NAME, Var("x", TensorType((2,), "int8")))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_it_becomes_machine_code_with_its_neighbours(softsign: ModuleType, dtype: str) -> None:
    module = module_of(3, 50, dtype=dtype)
    model = weft.compile(module, target="cpu", strict=True)
    (layer,) = [layer for layer in model.layers if NAME in layer.operators]
    assert layer.operators == ("nn.multiply", NAME, "nn.add")
    x = np.random.default_rng(0).normal(size=(3, 50)).astype(dtypes.numpy_dtype(dtype))
    steps = {"float64": 1e-12, "float32": 1e-6, "float16": 4e-3, "bfloat16": 4e-2}
    result = weft.load(model).run({"x": x})["y"].astype(np.float64)
    np.testing.assert_allclose(result, evaluate(module, {"x": x})["y"].astype(np.float64), rtol=steps[dtype], atol=1e-3)


def test_random_graphs_have_it(softsign: ModuleType) -> None:
    graphs = (random_graph(seed) for seed in range(400))
    graph = next(graph for graph in graphs if any(node.op == NAME for node in calls(graph.module.main.body)))
    evaluate(graph.module, graph.inputs)


def test_its_gradient_is_that_of_its_meaning(softsign: ModuleType) -> None:
    x, step = np.linspace(-3, 3, 41), 1e-6
    param, upstream = Var("x", TensorType(x.shape, "float64")), Constant(np.full(x.shape, 2.0))
    rule = operator(NAME).gradient
    assert callable(rule)
    (result,) = rule(upstream, call(NAME, param))
    assert isinstance(result, Expr)
    module = Module(Function((param,), result, Attrs({"name": "main", "outputs": ("dx",)})))
    slope = (softsign.softsign(x + step) - softsign.softsign(x - step)) / (2 * step)
    np.testing.assert_allclose(evaluate(module, {"x": x})["dx"], 2 * slope, rtol=1e-5)


def test_the_manual_lists_it(softsign: ModuleType) -> None:
    page = executed(ROOT / "docs" / "operators.py", "operators_page").page()
    assert "| `my.softsign(x)` | floats | elementwise | x / (1 + \\|x\\|). | rule | loops |" in page


# In integers


def test_what_an_entry_says_of_integers_is_used(own_registry: None) -> None:
    """The operator joins the requantise of the convolution before it; without its rule the host would compute it."""
    executed(INTEGER_FILE, "fahrenheit")
    module = parse("""fn @main(%x: int8[1, 2, 4, 4]) {
        %a = dequantise(%x, float32(0.05), int8(3))
        %b = nn.conv2d(%a, dequantise(int8[2, 2, 1, 1](1, -7, 100, 3), float32(0.01), int8(0)))
        return quantise(my.fahrenheit(%b), float32(0.3), int8(-100))
    }""")
    legal = PassManager(integer_passes()).run(module)
    assert all(
        (entry := operator_of(node)) and entry.family is Family.INTEGER for node in calls(legal.main.body)
    )  # nothing on the host
    x = np.random.default_rng(0).integers(-128, 128, (1, 2, 4, 4)).astype(np.int8)
    (wanted,), (made,) = evaluate(module, {"x": x}).values(), evaluate(legal, {"x": x}).values()
    assert np.abs(wanted.astype(int) - made).max() <= 1
    assert len(np.unique(made)) > 10


def test_the_manual_shows_the_rule_of_integers() -> None:
    (shown,) = re.findall(r"```python\n(def in_integers.*?)```", MANUAL.read_text(), re.DOTALL)
    assert shown in INTEGER_FILE.read_text()


def test_the_manual_shows_this_very_file() -> None:
    shown = re.search(r"```python\n(.*?)```", MANUAL.read_text(), re.DOTALL)
    assert shown is not None
    assert shown[1] == FILE.read_text()


# Installed, through an entry point


def install(folder: Path, value: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with one module and an entry point, and a registry that has not looked for any yet."""
    information = folder / "others-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[weft.operators]\nothers = {value}\n")
    (folder / f"{value}.py").write_text(code)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, value, raising=False)
    monkeypatch.setattr(registry, "_loaded", {"own"})


def test_an_installed_package_adds_it(own_registry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "others_softsign", FILE.read_text(), monkeypatch)
    assert NAME not in registry._operators
    assert operator(NAME).doc == "x / (1 + |x|)."  # nobody imported its file


def test_a_package_that_fails_is_named(own_registry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "others_broken", "raise OSError('disk on fire')", monkeypatch)
    message = r"operators of 'others' \(others_broken\) cannot be loaded: OSError: disk on fire; hint: repair or"
    for _ in range(2):  # not only the first who asks is told
        with pytest.raises(GraphError, match=message):
            operator(NAME)
    assert operator("nn.add").name == "nn.add"


def test_a_name_belongs_to_one_entry(softsign: ModuleType) -> None:
    with pytest.raises(GraphError, match=r"operator 'my\.softsign' is registered twice; hint: give the new one a name"):
        executed(FILE, "softsign_again")
