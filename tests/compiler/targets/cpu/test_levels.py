"""Every level of processor that this machine can execute: the integers of the graph to the bit, floats but for
rounding. What it cannot execute runs under qemu (`test_cross`) or is counted (`test_byte_forms`)."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import weft
from weft.compiler import tensor as t
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import Constant, Expr, TensorType, Var, call, evaluate
from weft.compiler.targets.cpu.intrinsics import intrinsic_named
from weft.compiler.targets.cpu.processor import PRETENDED, executable_here, host_target, named_target
from weft.compiler.targets.errors import CompileError

from .jit import run_compiled
from .programs import compiled, integers_of, program_of
from .test_convolution import requantised
from .test_link import bytes_, check, floats, kinds, module_of

DIGITS = Path(weft.__file__).parents[1] / "examples" / "digits" / "digits.onnx"


pytestmark = pytest.mark.usefixtures("small_models_use_threads")


def test_this_machine_is_taken_for_the_level(level: str) -> None:
    assert host_target().cpu == named_target(level).cpu
    assert set(named_target(level).features.split(",")) == set(host_target().features.split(","))


@pytest.mark.parametrize("name", ["cortex-a53", "x86-64-v9"])
def test_what_cannot_be_executed_is_refused_by_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in executable_here():
        pytest.skip("this machine executes it")
    monkeypatch.setenv(PRETENDED, name)
    with pytest.raises(CompileError, match=name):
        host_target()


def test_digits_are_the_integers_of_the_graph(level: str) -> None:
    source = from_onnx(DIGITS)
    integers, loaded = integers_of(source), weft.load(compiled(source, strict=True))
    for seed in range(3):
        image = np.random.default_rng(seed).random((1, 1, 8, 8)).astype(np.float32)
        np.testing.assert_array_equal(
            loaded.run({"image": image})["logits"], evaluate(integers, {"image": image})["logits"]
        )


@pytest.mark.parametrize(
    ("channels", "made", "groups", "kernel", "width"),
    [(16, 32, 1, (3, 3), 9), (5, 20, 1, (1, 3), 17), (64, 12, 1, (1, 1), 7), (32, 32, 8, (3, 3), 9),
     (16, 16, 2, (3, 1), 5), (16, 16, 16, (3, 3), 11), (12, 12, 12, (5, 5), 8), (3, 7, 1, (2, 2), 4)],
)  # fmt: skip
def test_convolutions_of_bytes(
    level: str, channels: int, made: int, groups: int, kernel: tuple[int, int], width: int
) -> None:
    x = Var("x", TensorType((2, 8, 5, width), "int8"))
    image = requantised(call("conv2d", x, bytes_(channels, 8, 1, 1)))
    value: Expr = call(
        "conv2d", image, bytes_(made, channels // groups, *kernel), groups=groups, pads=(1, 0, 1, 1), pad_value=5
    )
    check(module_of(requantised(value), value, params=(x,)), threads=2)


@pytest.mark.parametrize(("rows", "depth", "channels"), [(33, 70, 48), (5, 3, 12), (17, 256, 64)])
def test_products_of_bytes(level: str, rows: int, depth: int, channels: int) -> None:
    x, w = Var("x", TensorType((rows, depth, 1, 1), "int8")), Var("w", TensorType((2, depth + 4, rows, 1), "int8"))
    y = Var("y", TensorType((2, depth + 4, channels, 1), "int8"))
    constant = call("conv2d", x, bytes_(channels, depth, 1, 1))
    computed = call("product", y, w, depth=depth + 4, outputs=rows, zero_points=(-9, 127))
    assert kinds(check(module_of(constant, computed, params=(x, y, w)))).count("product") == 2


def test_sums_of_the_largest_products(level: str) -> None:
    """Where pairs of products in 16 bits saturate, and whatever their signs."""
    x = Var("x", TensorType((1, 16, 1, 4), "int8"))
    signs = np.array([[1, 1], [1, -1], [-1, -1], [-1, 1]]).repeat(8, axis=0)
    weights = np.where(np.tile(signs, (1, 8)) > 0, 127, -128).astype(np.int8).reshape(32, 16, 1, 1)
    model = weft.load(compiled(module_of(call("conv2d", x, Constant(weights)), params=(x,))))
    matrix = weights[:, :, 0, 0].astype(np.int32)
    for even, odd in ((-128, 127), (-128, -128), (127, 127), (-1, 0), (0, -127)):
        image = np.where(np.arange(16) % 2, odd, even).astype(np.int8).repeat(4).reshape(1, 16, 1, 4)
        (found,) = model.run({"x": image}).values()
        np.testing.assert_array_equal(found[0, :, 0], matrix @ image[0, :, 0].astype(np.int32))


WORDS = """def words(
    a: int16[5, DEPTH] @ "global",
    b: int16[3, WEIGHTS] @ "global",
    out: int32[5, LANES] @ "global",
):
    with allocate(int32[5, LANES] @ "register") as acc:
        for r in unroll(5):
            for l in vectorize(LANES):
                with block("begin", "spatial"):
                    acc[r, l] = out[r, l]
        for k in range(3):
            STEP_5_LANES_DEPTH("sums",
                acc=tile(acc[0, 0], [5, LANES], [LANES, 1]),
                a=tile(a[0, k * TOGETHER], [5, TOGETHER], [DEPTH, 1]),
                b=tile(b[k, 0, 0], [WEIGHTS], STRIDES),
                over=[k])
        for s in unroll(5):
            for m in vectorize(LANES):
                with block("end", "spatial"):
                    out[s, m] = acc[s, m]
"""


@pytest.mark.parametrize(("step", "together"), [("word_product", 2), ("element_product", 4)])
@pytest.mark.parametrize("lanes", [32, 7])
def test_words_are_multiplied_together_at_the_ends(level: str, lanes: int, step: str, together: int) -> None:
    """Sums wrap; the largest of two is 2**31."""
    weights, strides = (f"{lanes}, 2", "[2, 1]") if together == 2 else (f"4, {lanes}", f"[{lanes}, 1]")
    text = WORDS
    for name, value in (("LANES", lanes), ("DEPTH", 3 * together), ("WEIGHTS", weights), ("STRIDES", strides),
                        ("STEP", step), ("TOGETHER", together)):  # fmt: skip
        text = text.replace(name, str(value))
    func = t.parse(text, intrinsic_named)
    random = np.random.default_rng(3)
    a, b = (random.choice(np.array([-(1 << 15), (1 << 15) - 1, -1, 0, 255], np.int16), shape)
            for shape in ((5, 3 * together), (3, lanes, together)))  # fmt: skip
    a[0], b[:, 0] = -(1 << 15), -(1 << 15)
    before = random.integers(-(1 << 31), 1 << 31, (5, lanes), np.int64).astype(np.int32)
    packed = b if together == 2 else b.swapaxes(1, 2)
    found = run_compiled(func, {"a": a, "b": packed, "out": before}, host_target())["out"]
    expected = before + np.einsum("rkq,klq->rl", a.reshape(5, 3, together).astype(np.int64), b.astype(np.int64))
    np.testing.assert_array_equal(found, expected.astype(np.int32))


@pytest.mark.parametrize(
    ("groups", "kernel", "stride", "width", "passes"),
    [(1, (3, 3), 1, 9, 1), (1, (3, 3), 1, 9, 2), (2, (1, 3), 2, 11, 1), (1, (1, 1), 1, 5, 1)],
)
def test_weights_in_two_parts_are_exact_at_the_ends(
    level: str, groups: int, kernel: tuple[int, int], stride: int, width: int, passes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Whatever it costs; the second part has all weights of some tiles, and none of others. The first may be used in
    passes."""
    monkeypatch.setattr("weft.compiler.targets.cpu.convolution.CpuConvolutions.by_pairs", lambda *_: True)
    monkeypatch.setattr("weft.compiler.targets.cpu.winograd.WORTH", 0.0)  # else there are fewer products, of words
    monkeypatch.setattr("weft.compiler.targets.cpu.convolution.CpuConvolutions.passes", lambda *_: passes)
    random = np.random.default_rng(5)
    weights = random.choice(np.array([-128, -127, -65, -64, 0, 64, 65, 127], np.int8), (64, 32 // groups, *kernel))
    weights[:16], weights[16:32] = weights[:16] // 2, 127
    x = Var("x", TensorType((2, 32, 4, width), "int8"))
    pads = tuple(size // 2 for size in kernel) * 2
    sums = call("conv2d", x, Constant(weights), groups=groups, pads=pads, strides=(1, stride), pad_value=-128)
    module = module_of(sums, requantised(sums), params=(x,))
    model = weft.load(compiled(module, threads=2))
    texts = [code.text for code in program_of(model.model).kernels]
    assert sum("paired_dot_product" in text for text in texts) == 1
    assert sum("acc_rf" in text for text in texts) == (passes > 1)
    for image in (*np.array([-128, 127, 0], np.int8), random.choice(np.array([-128, 127], np.int8), x.type.shape)):
        values = {"x": np.broadcast_to(image, x.type.shape).copy()}
        for name, array in evaluate(module, values).items():
            np.testing.assert_array_equal(model.run(values)[name], array)


@pytest.mark.parametrize(
    ("taken", "made", "kernel", "width"),
    [(64, 32, (3, 3), 13), (96, 20, (1, 5), 7), (32, 16, (3, 1), 1), (64, 32, (1, 1), 13)],
)
@pytest.mark.parametrize("integer", [False, True])
def test_weights_that_are_used_in_passes(
    level: str, taken: int, made: int, kernel: tuple[int, int], width: int, integer: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """As if the first-level cache held weights of one block of channels. Tiles of a row overlap."""
    for name, number in {
        "PASS_FROM": 0.0,
        "PASS_OF_PIXELS_FROM": 0.0,
        "PASS_SHARE": 0.0,
        "FEWEST_TILES": 1,
        "TILES_A_PASS": 4,
    }.items():
        monkeypatch.setattr(f"weft.compiler.targets.cpu.convolution.{name}", number)
    monkeypatch.setattr("weft.compiler.targets.cpu.winograd.WORTH", 0.0)
    x = Var("x", TensorType((2, taken, 6, width), "int8" if integer else "float32"))
    pads = tuple(size // 2 for size in kernel) * 2
    if integer:
        value: Expr = requantised(call("conv2d", x, bytes_(made, taken, *kernel), pads=pads, pad_value=3))
    else:
        value = call("nn.add", call("nn.conv2d", x, floats(made, taken, *kernel), pads=pads), floats(1, made, 1, 1))
    model = check(module_of(value, params=(x,)), 2)
    texts = [code.text for code in program_of(model).kernels]
    words = integer and not host_target().dot_product
    by_rows = words and kernel == (1, 5)  # words of a row are made when they are used
    assert sum("acc_rf" in text for text in texts) == (host_target().registers == 16 and not by_rows)


@pytest.mark.parametrize("integer", [False, True])
def test_passes_are_for_weights_larger_than_the_cache(
    level: str, integer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """256 channels of words and 128 of floats are; 64 are not, and four tiles would not use them again."""
    monkeypatch.setattr("weft.compiler.targets.cpu.winograd.WORTH", 0.0)
    for channels, size, expected in ((256 if integer else 128, 12, True), (64, 12, False), (256, 2, False)):
        x = Var("x", TensorType((1, channels, size, size), "int8" if integer else "float32"))
        make, name = (bytes_, "conv2d") if integer else (floats, "nn.conv2d")
        model = compiled(module_of(call(name, x, make(16, channels, 3, 3), pads=(1, 1, 1, 1)), params=(x,)))
        texts = [code.text for code in program_of(model).kernels]
        small = host_target().registers == 16 and not (integer and host_target().dot_product)  # bytes are smaller
        assert any("acc_rf" in text for text in texts) == (small and expected)


def test_random_graphs(level: str, campaign: ModuleType) -> None:
    tally = campaign.Tally()
    for seed in range(3):
        assert campaign.check(seed, 8, tally) == ""


def test_every_float16_is_converted(level: str) -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    x = t.placeholder((1 << 16,), "float16", "x")
    wide = run_compiled(t.create_schedule(t.compute((1 << 16,), lambda i: x[i].astype("float32"), "out"), [x]).func,
                        {"x": halves}, host_target())["out"]  # fmt: skip
    np.testing.assert_array_equal(wide, halves.astype(np.float32))


def test_floats_are_rounded_to_float16(level: str) -> None:
    """Those between neighbours, at ties and beside them, of every exponent; infinities, and what is no number."""
    halves = np.arange(0x7C01, dtype=np.uint16).view(np.float16).astype(np.float32)
    ties = (halves[:-2] + halves[1:-1]) / 2
    beside = [np.nextafter(ties, np.float32(end)) for end in (0, np.inf)]
    values = np.concatenate([halves, ties, *beside, [65520, 65519.996, 1e30, np.nan]])
    values = np.concatenate([values, -values]).astype(np.float32)
    y = t.placeholder(values.shape, "float32", "y")
    func = t.create_schedule(t.compute(values.shape, lambda i: y[i].astype("float16"), "out"), [y]).func
    with np.errstate(over="ignore"):
        found = run_compiled(func, {"y": values}, host_target())["out"]
        np.testing.assert_array_equal(found, values.astype(np.float16))


LIMITED = """def limited(
    x: int32[EXTENT] @ "global",
    out: TYPE[EXTENT] @ "global",
):
    for i in vectorize(EXTENT):
        with block("out", "spatial"):
            out[i] = min(max(x[i], int32(LOW)), int32(HIGH)).astype(TYPE)
"""


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [("uint8", 0, 255), ("int8", -128, 127), ("uint8", 3, 200), ("int8", -60, 0), ("int8", 0, 200), ("uint8", -1, 255)],
)
def test_limited_integers_become_bytes(level: str, dtype: str, low: int, high: int) -> None:
    """At the ends of words and of int32, too, and where the limits are not those of the bytes."""
    ends = [-(1 << 31), (1 << 31) - 1, -(1 << 15) - 1, 1 << 15, -(1 << 16), (1 << 16) + 5, low, low - 1, high, high + 1]
    x = np.array(ends + list(range(-140, 270, 3)), np.int32)
    for extent in (4, 23, x.size):
        text = LIMITED
        for name, value in (("EXTENT", extent), ("TYPE", dtype), ("LOW", low), ("HIGH", high)):
            text = text.replace(name, str(value))
        found = run_compiled(t.parse(text, intrinsic_named), {"x": x[:extent]}, host_target())["out"]
        np.testing.assert_array_equal(found, np.clip(x[:extent], low, high).astype(dtype))


@pytest.mark.parametrize("extent", [1, 8, 16, 31, 64, 300])
def test_every_entry_of_a_table_is_picked(level: str, extent: int) -> None:
    """In lanes, of each size of register and of what is left over."""
    entries = np.random.default_rng(5).permutation(np.arange(-128, 128)).astype(np.int8)
    x, table = t.placeholder((256, extent), "int8", "x"), t.placeholder((256,), "int8", "table")
    out = t.compute((256, extent), lambda i, j: table[x[i, j].astype("int64") + 128], "out")
    schedule = t.create_schedule(out, [x, table])
    schedule.vectorize("j")
    values = (np.arange(256)[:, None] + np.arange(extent) * 7).astype(np.int8)
    found = run_compiled(schedule.func, {"x": values, "table": entries}, host_target())["out"]
    np.testing.assert_array_equal(found, entries[values.astype(int) + 128])
