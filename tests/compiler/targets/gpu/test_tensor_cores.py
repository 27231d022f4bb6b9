"""Products on tensor cores: as loops, as launches, and as PTX; bytes are equal to the bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler import tensor as te
from weft.compiler.graph import Call, Constant, Module, call, dtypes, evaluate
from weft.compiler.targets.errors import CompileError
from weft.compiler.targets.gpu.devices import DEVICES, NVIDIA
from weft.compiler.targets.gpu.digits import SHARED, THREAD
from weft.compiler.targets.gpu.intrinsics import intrinsic_named, ldmatrix, mma
from weft.compiler.targets.gpu.launches import Grid
from weft.compiler.targets.gpu.nvptx import asks_for, ptx_text
from weft.compiler.targets.gpu.phases import grids_of
from weft.compiler.targets.gpu.products import Product
from weft.compiler.targets.gpu.tensor_cores import tensor_sums
from weft.compiler.targets.gpu.tensor_schedule import schedule_tensor_cores
from weft.compiler.targets.gpu.thread_products import THREAD_SHAPES
from weft.compiler.targets.gpu.tile_choice import choose_plan
from weft.compiler.targets.gpu.tiles import Plan, TensorTile, tensor_tiles, tiles_of
from weft.compiler.targets.loops.workspace import plan_workspace
from weft.compiler.targets.registry import find_target
from weft.compiler.tensor.errors import IRError
from weft.compiler.tensor.evaluate import ITEM_BYTES
from weft.compiler.tensor.interpreter import interpret
from weft.compiler.tensor.ir import DType
from weft.compiler.tensor.parser import parse
from weft.compiler.tensor.printer import function_text
from weft.compiler.tensor.view import View
from weft.runtime.gpu.predicted import PEAKS
from weft.sim.ptx import Counts, DeviceMemory, Program, PtxError
from weft.sim.ptx.machine import SHARED_MOST

from .counting import counted, sectors
from .graphs import RUN_ON, module_of, values_for, variable
from .test_tiled import convolution, matmul

TILES = tensor_tiles(1)
SMALL = [tile for tile in TILES if tile.rows * tile.columns <= 1024]


def product(
    rows: int, columns: int, depth: int, tile: TensorTile, gpu: str = "sm_80", dtype: DType = "int8", *,
    dense: bool = False, parts: int = 1, threads: bool = False, turned: bool = False,
) -> te.Schedule:  # fmt: skip
    """A product, scheduled. ``dense``: the depth is the last axis of both operands, ``turned``: of none; ``threads``:
    which multiply, and no tensor cores."""
    a = te.placeholder((depth, rows) if turned else (rows, depth), dtype, "a")
    b = te.placeholder((columns, depth) if dense else (depth, columns), dtype, "b")
    left = View((rows, depth), dtype, lambda index: a[index[::-1] if turned else index])
    right = View((depth, columns), dtype, lambda index: b[index[::-1] if dense else index])
    (shape,) = (each for each in (THREAD_SHAPES if threads else DEVICES[gpu].mma) if each.dtype == dtype)
    sums = tensor_sums(Product(left, right, (rows, columns)), Plan(tile, parts), shape)
    out = te.compute((rows, columns), lambda i, j: sums.read((i, j)) + 1, "out")
    schedule = te.create_schedule(out, [a, b])
    schedule_tensor_cores(schedule, Plan(tile, parts), shape, DEVICES[gpu])
    return schedule


def operands(rows: int, columns: int, depth: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two matrices with all values of a byte, and what the function makes of them."""
    generator = np.random.default_rng(rows + columns + depth)
    a, b = (generator.integers(-128, 128, shape).astype(np.int8) for shape in ((rows, depth), (depth, columns)))
    return a, b, a.astype(np.int32) @ b.astype(np.int32) + 1


def launch(schedule: te.Schedule, gpu: str) -> Grid:
    (grid,) = grids_of(schedule.func, DEVICES[gpu])
    return grid


def run(text: str, grid: Grid, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> Counts:
    """The launch in the interpreter of PTX, which fills ``out``."""
    memory = DeviceMemory()
    addresses = [memory.allocate(each.nbytes) for each in (a, b, out)]
    for address, data in zip(addresses, (a, b), strict=False):
        memory.write(address, data)
    counts = Program(text, memory).launch("k_0", grid.groups, (grid.threads,), [addresses[n] for n in grid.params],
                                          dynamic_shared=asks_for(grid))  # fmt: skip
    memory.read(addresses[2], out)
    return counts


@settings(max_examples=4)
@given(
    st.integers(1, 40), st.integers(1, 40), st.integers(8, 140), st.sampled_from(SMALL),
    st.sampled_from(["sm_75", "sm_80"]),
)  # fmt: skip
def test_any_size_is_equal_to_the_bit(rows: int, columns: int, depth: int, tile: TensorTile, gpu: str) -> None:
    schedule = product(rows, columns, depth, tile, gpu)
    a, b, wanted = operands(rows, columns, depth)
    np.testing.assert_array_equal(interpret(schedule.func, {"a": a, "b": b})["out"], wanted)
    grid = launch(schedule, gpu)
    found = np.zeros_like(wanted)
    counts = run(ptx_text("k", schedule.func, [grid], {}, DEVICES[gpu]), grid, a, b, found)
    np.testing.assert_array_equal(found, wanted)
    assert counts.instructions["mma"] > 0


SMALL_BY_THREADS = [tile for tile in tiles_of(THREAD_SHAPES[0]) if tile.rows * tile.columns <= 1024]


@settings(max_examples=6)
@given(
    st.integers(1, 40), st.integers(1, 40), st.integers(8, 200), st.sampled_from(SMALL_BY_THREADS), st.integers(1, 5),
    st.sampled_from(["sm_75", "sm_80"]),
)  # fmt: skip
def test_threads_multiply_any_size_in_any_number_of_parts(
    rows: int, columns: int, depth: int, tile: TensorTile, parts: int, gpu: str
) -> None:
    """Quarters whose products and sums single precision holds."""
    schedule = product(rows, columns, depth, tile, gpu, "float32", parts=parts, threads=True)
    generator = np.random.default_rng(depth)
    a, b = ((generator.integers(-32, 33, shape) / 4).astype(np.float32) for shape in ((rows, depth), (depth, columns)))
    check_launches(schedule, gpu, a, b, a @ b + 1)


@settings(max_examples=4)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(8, 400), st.sampled_from(SMALL), st.integers(2, 5))
def test_any_number_of_parts_is_equal_to_the_bit(
    rows: int, columns: int, depth: int, tile: TensorTile, parts: int
) -> None:
    check_launches(product(rows, columns, depth, tile, parts=parts), "sm_80", *operands(rows, columns, depth))


def check_launches(schedule: te.Schedule, gpu: str, a: np.ndarray, b: np.ndarray, wanted: np.ndarray) -> None:
    """All launches of a product, one after the other, in the interpreter of PTX, and its serial meaning."""
    np.testing.assert_array_equal(interpret(schedule.func, {"a": a, "b": b})["out"], wanted)
    grids = grids_of(schedule.func, DEVICES[gpu])
    program = Program(ptx_text("k", schedule.func, grids, {}, DEVICES[gpu]), memory := DeviceMemory())
    addresses = [memory.allocate(each.nbytes) for each in (a, b, wanted)]
    workspace = memory.allocate(plan_workspace(schedule.func).shared)
    for address, data in zip(addresses, (a, b), strict=False):
        memory.write(address, data)
    for number, grid in enumerate(grids):
        given = [*(addresses[n] for n in grid.params), *([workspace] if grid.workspace else [])]
        program.launch(f"k_{number}", grid.groups, (grid.threads,), given, dynamic_shared=asks_for(grid))
    found = np.zeros_like(wanted)
    memory.read(addresses[2], found)
    np.testing.assert_array_equal(found, wanted)


FLOAT_SHAPES = [(shape.dtype, gpu) for gpu in ("sm_75", "sm_80") for shape in DEVICES[gpu].mma if shape.dtype != "int8"]


@settings(max_examples=2)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(8, 70), st.integers(0, 4))
@pytest.mark.parametrize(("dtype", "gpu"), FLOAT_SHAPES)
def test_exact_sums_of_floats_are_exact(
    dtype: DType, gpu: str, rows: int, columns: int, depth: int, number: int
) -> None:
    """Quarters whose products and sums single precision holds: whatever is lost or counted twice is seen."""
    tiles = tensor_tiles(ITEM_BYTES[dtype])
    schedule = product(rows, columns, depth, tiles[-1 - number], gpu, dtype)
    generator = np.random.default_rng(depth)
    a, b = (generator.integers(-32, 33, shape) / 4 for shape in ((rows, depth), (depth, columns)))
    values = {name: each.astype(dtypes.numpy_dtype(dtype)) for name, each in (("a", a), ("b", b))}
    wanted = (a @ b + 1).astype(np.float32)
    np.testing.assert_array_equal(interpret(schedule.func, values)["out"], wanted)
    grid = launch(schedule, gpu)
    found = np.zeros_like(wanted)
    counts = run(ptx_text("k", schedule.func, [grid], {}, DEVICES[gpu]), grid, values["a"], values["b"], found)
    np.testing.assert_array_equal(found, wanted)
    assert counts.instructions["mma"] > 0


@pytest.mark.parametrize(("dtype", "gpu"), [("float16", "sm_75"), ("float16", "sm_80"), ("bfloat16", "sm_80")])
@pytest.mark.parametrize("sizes", [(32, 64, 96), (24, 40, 33), (20, 36, 70)])
def test_operands_that_lie_turned(dtype: DType, gpu: str, sizes: tuple[int, int, int]) -> None:
    """Both have neighbours along their columns: tensor cores transpose them as they load them."""
    rows, columns, depth = sizes
    schedule = product(rows, columns, depth, TensorTile(32, 32, 32, (2, 2)), gpu, dtype, turned=True)
    generator = np.random.default_rng(depth)
    a, b = (generator.integers(-32, 33, shape) / 4 for shape in ((depth, rows), (depth, columns)))
    values = {name: each.astype(dtypes.numpy_dtype(dtype)) for name, each in (("a", a), ("b", b))}
    wanted = (a.T @ b + 1).astype(np.float32)
    np.testing.assert_array_equal(interpret(schedule.func, values)["out"], wanted)
    grid, found = launch(schedule, gpu), np.zeros_like(wanted)
    text = ptx_text("k", schedule.func, [grid], {}, DEVICES[gpu])
    counts = run(text, grid, values["a"], values["b"], found)
    np.testing.assert_array_equal(found, wanted)
    assert text.count("ldmatrix") == text.count(".trans") > 0
    assert counts.conflicts == 0 or rows % 32


def test_what_lies_turned_is_copied_while_threads_go_on() -> None:
    a, b = variable("a", "float16", 2, 512, 64), variable("b", "float16", 2, 512, 128)
    module = module_of((a, b), call("nn.matmul", call("transpose", a, perm=(0, 2, 1)), b))
    (launch,) = counted(module)
    assert launch.counts.instructions["cp"] >= 2 * 512 * (64 + 128) // 8 // 32  # 16 bytes a lane
    moved, fewest = sectors(launch.counts)
    assert moved == fewest
    values = values_for(module)
    (found,) = weft.load(weft.compile(module, target="cuda"), RUN_ON["cuda"]).run(values).values()
    wanted = np.swapaxes(values["a"], 1, 2).astype("f") @ values["b"].astype("f")
    np.testing.assert_allclose(found, wanted, atol=1e-3 * np.abs(wanted).max())


def test_operands_that_lie_turned_are_transposed_only_where_tensor_cores_can() -> None:
    """Not bytes, nor four bytes an element; nor what lies along the depth."""
    for dtype in ("int8", "float32"):
        schedule = product(32, 32, 64, TensorTile(32, 32, 32, (2, 2)), dtype=dtype, turned=True)
        assert "turned" not in function_text(schedule.func)
    schedule = product(32, 32, 64, TensorTile(32, 32, 32, (2, 2)), dtype="float16", dense=True)
    assert "turned" not in function_text(schedule.func)


def test_operands_are_rounded_to_tf32_and_not_cut() -> None:
    schedule = product(16, 16, 16, tensor_tiles(4)[-1], dtype="float32")
    a, b = np.full((16, 16), 1 + 2**-11 + 2**-13, np.float32), np.ones((16, 16), np.float32)
    grid, found = launch(schedule, "sm_80"), np.zeros((16, 16), np.float32)
    run(ptx_text("k", schedule.func, [grid], {}, DEVICES["sm_80"]), grid, a, b, found)
    np.testing.assert_array_equal(found, np.full((16, 16), 16 * (1 + 2**-10) + 1, np.float32))


@pytest.mark.parametrize("tile", TILES, ids=lambda tile: f"{tile.rows}x{tile.columns}")
def test_every_tile_fits_a_group(tile: TensorTile) -> None:
    schedule = product(tile.rows * 2, tile.columns * 3, tile.depth * 4, tile)
    grid = launch(schedule, "sm_80")
    assert grid.groups == (3, 2, 1)
    assert grid.threads == tile.threads(DEVICES["sm_80"]) <= DEVICES["sm_80"].group_threads
    (sums,) = (each for each in grid.registers if each.name == "acc")
    assert sums.size * grid.threads == tile.rows * tile.columns  # nothing is held twice, and no place is empty


def test_no_access_of_a_whole_tile_meets_another_in_a_bank() -> None:
    tile = TensorTile(64, 64, 64, (2, 2))
    rows, columns, depth = tile.rows, tile.columns, 2 * tile.depth
    schedule = product(rows, columns, depth, tile)
    a, b, wanted = operands(rows, columns, depth)
    grid = launch(schedule, "sm_80")
    counts = run(ptx_text("k", schedule.func, [grid], {}, DEVICES["sm_80"]), grid, a, b, np.zeros_like(wanted))
    assert counts.conflicts == 0
    assert counts.instructions["mma"] == rows * columns * depth // (16 * 8 * 32)
    assert counts.instructions["ldmatrix"] == 4 * counts.instructions["mma"] // 8  # a warp: 2 + 2 for 2 x 4 products


def test_a_large_tile_asks_for_memory_and_loads_little() -> None:
    tile = TensorTile(128, 128, 64, (2, 2))
    schedule = product(128, 128, 128, tile, dense=True)
    grid = launch(schedule, "sm_80")
    assert 48 << 10 < asks_for(grid) == grid.shared_bytes == tile.shared_bytes(1, DEVICES["sm_80"])
    a, b, wanted = operands(128, 128, 128)
    text = ptx_text("k", schedule.func, [grid], {}, DEVICES["sm_80"], (16, 16, 16))
    found = np.zeros_like(wanted)
    counts = run(text, grid, a, np.ascontiguousarray(b.T), found)
    np.testing.assert_array_equal(found, wanted)
    assert counts.conflicts == 0
    assert counts.instructions["ldmatrix"] == counts.instructions["mma"] // 4
    assert "st.local" not in text
    with pytest.raises(PtxError, match="a block shares 69,632 bytes, but sm_75 has 65,536 for one"):
        run(text.replace(".target sm_80", ".target sm_75"), grid, a, b, found)


@pytest.mark.parametrize("gpu", NVIDIA)
def test_tiles_fit_the_memory_of_a_group(gpu: str) -> None:
    device = DEVICES[gpu]
    assert device.shared_most == SHARED_MOST[int(gpu.removeprefix("sm_"))]  # written twice, by two readers
    peaks = PEAKS[gpu]
    assert (device.multiprocessors, device.lanes) == (peaks.multiprocessors, peaks.float_lanes)
    for shape in (*device.mma, *THREAD_SHAPES):
        size = ITEM_BYTES[shape.dtype]
        plan = choose_plan(1, 4096, 4096, 4096, shape, device)
        assert plan is not None
        assert plan.parts == 1
        assert plan.tile.rows * plan.tile.columns >= 64 * 64
        assert plan.tile.shared_bytes(size, device) <= max(device.shared_bytes, device.shared_most)


def test_the_text_is_read_back() -> None:
    schedule = product(40, 30, 70, TILES[3])
    text = function_text(schedule.func)
    assert function_text(parse(text, intrinsic_named)) == text


@pytest.mark.parametrize(
    "name", ["mma_int8_16_16_32", "mma_float32_16_8_8", "mma_int8_16_32_4", "ldmatrix_int8_4_80", "ldmatrix_int8_16_40",
             "ldmatrix_by_int8_16_80", "ldmatrix_turned_int8_16_80", "ldmatrix_turned_float16_16_8",
             "ldmatrix_turned_by_rows_float16_16_80", "ldmatrix_turned_float32_8_16",
             "ldmatrix_int8_16_16", "outer_product_1_1_1", "mma_int8_16_32_032", "mma_tf32_16_16_72",
             "ldmatrix_float16_16_8", "ldmatrix_float16_16_20", "ldmatrix_tf32_16_24"],
)  # fmt: skip
def test_no_other_intrinsic_has_a_name(name: str) -> None:
    with pytest.raises(IRError, match=f"a GPU has no intrinsic '{name}'"):
        intrinsic_named(name)


def test_a_name_holds_all_numbers() -> None:
    for device in (DEVICES[name] for name in NVIDIA):
        for shape in device.mma:
            least = 32 // ITEM_BYTES[shape.dtype]
            for made in (mma(shape, 72), ldmatrix(shape.dtype, 16, 80), ldmatrix(shape.dtype, 8, least),
                         ldmatrix(shape.dtype, 16, 80, by_rows=True)):  # fmt: skip
                assert intrinsic_named(made.name) == made
            if ITEM_BYTES[shape.dtype] == 2:
                for rows, stride in ((8, 8), (16, 16), (16, 80)):
                    made = ldmatrix(shape.dtype, rows, stride, by_rows=True, turned=True)
                    assert intrinsic_named(made.name) == made


MODULES = {
    "batch": matmul("int8", (2, 33, 70), (2, 70, 50)),
    "one for all": matmul("int8", (3, 20, 40), (40, 24)),
    "pixels": convolution((1, 64, 7, 7), (48, 64, 1, 1), "int8"),
    "window": convolution((1, 8, 9, 9), (32, 8, 3, 3), "int8", pads=(1, 1, 1, 1), pad_value=-7, strides=(2, 2)),
    "vector": convolution((1, 72, 1, 1), (33, 72, 1, 1), "int8"),
    "tokens": convolution((19, 40, 1, 1), (33, 40, 1, 1), "int8"),
    "few channels": convolution((1, 3, 9, 9), (16, 3, 5, 5), "int8", pads=(2, 2, 2, 2), pad_value=5),
    "odd window": convolution(
        (1, 5, 11, 13), (7, 5, 2, 3), "int8", dilations=(2, 1), strides=(1, 2), pads=(0, 2, 1, 0), pad_value=3
    ),
    "groups": convolution((2, 32, 5, 5), (32, 16, 3, 3), "int8", groups=2, pads=(1, 1, 1, 1)),
}


def check(module: Module, gpu: str) -> weft.CompiledModel:
    generator = np.random.default_rng(0)
    values = {
        name: generator.integers(-128, 128, value.shape).astype(np.int8) for name, value in values_for(module).items()
    }
    model = weft.compile(module, target="cuda", strict=True, gpu=gpu)
    assert isinstance(model, weft.CompiledModel)
    assert "tensor cores" in {layer.kind for layer in model.layers}
    wanted = evaluate(module, values)
    for name, found in weft.load(model, RUN_ON["cuda"]).run(values).items():
        np.testing.assert_array_equal(found, wanted[name])
    return model


@pytest.mark.parametrize("name", MODULES)
def test_graphs_are_equal_to_the_bit(name: str) -> None:
    check(MODULES[name], "sm_80")


@pytest.mark.long
@pytest.mark.parametrize("gpu", NVIDIA)
@pytest.mark.parametrize("name", MODULES)
def test_graphs_are_equal_to_the_bit_everywhere(name: str, gpu: str) -> None:
    check(MODULES[name], gpu)


def float_convolution(dtype: str, *x: int, **attrs: Any) -> Module:
    """12 channels to 20 by windows of 3 x 3, and their absolute values."""
    data = variable("x", dtype, 2, 12, *x)
    weights = np.random.default_rng(1).normal(size=(20, 12, 3, 3)).astype(dtypes.numpy_dtype(dtype))
    node: Call = call("nn.abs", call("nn.conv2d", data, Constant(weights), **attrs))
    return module_of([data], node)


FLOAT_MODULES = {
    "product": lambda dtype: matmul(dtype, (2, 33, 70), (2, 70, 50)),
    "window": lambda dtype: float_convolution(dtype, 9, 7, pads=(1, 0, 1, 1), strides=(1, 2)),
}


@pytest.mark.parametrize(
    ("dtype", "gpu", "tolerance"),
    [("float16", "sm_75", 1e-3), ("float16", "sm_80", 1e-3), ("bfloat16", "sm_80", 8e-3), ("float32", "sm_80", 1e-3)],
)
@pytest.mark.parametrize("name", FLOAT_MODULES)
def test_graphs_of_floats(name: str, dtype: str, gpu: str, tolerance: float) -> None:
    """As the graph, and as on a CPU: within ``tolerance`` of the largest."""
    module = FLOAT_MODULES[name](dtype)
    values = values_for(module)
    model = weft.compile(module, target="cuda", strict=True, gpu=gpu, tf32=dtype == "float32")
    assert isinstance(model, weft.CompiledModel)
    assert {layer.kind for layer in model.layers} - {"convert"} == {"tensor cores"}
    (found,) = weft.load(model, RUN_ON["cuda"]).run(values).values()
    for wanted in (evaluate(module, values), weft.load(weft.compile(module, target="cpu")).run(values)):
        (each,) = (value.astype(np.float64) for value in wanted.values())
        assert np.abs(found.astype(np.float64) - each).max() <= tolerance * np.abs(each).max()


def test_what_architectures_lack_is_refused_or_done_without() -> None:
    with pytest.raises(CompileError, match="tensor cores of 'sm_75' have no TF32; hint: leave it out, or compile for"):
        weft.compile(matmul("float32", (32, 32), (32, 32)), target="cuda", gpu="sm_75", tf32=True)
    model = weft.compile(matmul("bfloat16", (32, 32), (32, 32)), target="cuda", gpu="sm_75")
    assert isinstance(model, weft.CompiledModel)
    assert {layer.kind for layer in model.layers} == {"tiled"}


def test_an_artifact_is_proved_and_runs(tmp_path: object) -> None:
    module = MODULES["pixels"]
    path = f"{tmp_path}/model.weft"
    weft.runtime.artifact.save(check(module, "sm_75"), path)
    values = values_for(module)
    (found,), (wanted,) = (
        each.values() for each in (weft.load(path, RUN_ON["cuda"]).run(values), evaluate(module, values))
    )
    np.testing.assert_array_equal(found, wanted)


def test_other_devices_multiply_without() -> None:
    model = weft.compile(MODULES["batch"], target="opencl", strict=True)
    assert isinstance(model, weft.CompiledModel)
    assert {layer.kind for layer in model.layers} == {"tiled"}
    text = find_target("cuda").host_code(
        weft.compile(matmul("float32", (32, 32), (32, 32)), target="cuda").steps[0].program, trusted=True
    ).text  # type: ignore[union-attr]  # fmt: skip
    assert "mma" not in text


def test_small_products_have_no_tile() -> None:
    device = DEVICES["sm_80"]
    for shape in (*device.mma, *THREAD_SHAPES):
        assert choose_plan(1, 1, 7, 1000, shape, device) is None
        assert choose_plan(1, 1000, 1000, 7, shape, device) is None


def test_a_deep_product_of_few_tiles_has_parts() -> None:
    """Enough for half of the multiprocessors, but none where there are enough groups without."""
    for name in ("sm_80", "sm_90"):
        device = DEVICES[name]
        for shape in (*device.mma, *THREAD_SHAPES):
            plan = choose_plan(1, 64, 64, 65536, shape, device)
            assert plan is not None
            tiles = 64 // min(64, plan.tile.rows) * (64 // min(64, plan.tile.columns))
            assert tiles * plan.parts >= 16
            assert choose_plan(8, 4096, 4096, 512, shape, device) in [Plan(tile) for tile in tiles_of(shape)]


# What a warp cannot do together


def copied(scope: str, axis: str) -> te.Schedule:
    """A matrix of 16 rows of 32 bytes, loaded by one warp and stored by its threads."""
    a = te.placeholder((16, 32), "int8", "a")
    shared = te.compute((16, 32), lambda i, k: a[i, k], "shared")
    held = te.compute((16, 32), lambda i, k: shared[i, k], "held")
    out = te.compute((16, 32), lambda i, k: held[i, k], "out")
    schedule = te.create_schedule(out, [a])
    schedule.set_scope("shared", SHARED)
    schedule.set_scope("held", scope)
    i, _ = schedule.get_loops("held")
    warp, row = schedule.split(i, 16)
    schedule.bind(warp, axis)
    if scope == "register":
        schedule.tensorize(row, ldmatrix("int8", 16, 32))
    return schedule


def launches(schedule: te.Schedule, gpu: str = "sm_80") -> tuple[Grid, ...]:
    func = schedule.func
    block = te.Var("one")
    return grids_of(replace(func, body=te.For(block, te.Const(1), "bind:block.x", func.body)), DEVICES[gpu])


def test_what_is_refused() -> None:
    with pytest.raises(CompileError, match="is done by a whole warp, not by a thread; hint: bind the loops around"):
        launches(copied("register", THREAD))
    with pytest.raises(CompileError, match="lanes of a warp do calls of intrinsics together, and nothing else"):
        launches(copied(SHARED, "warp"))
    with pytest.raises(CompileError, match="threads of 'generic' form no warps"):
        launches(copied("register", "warp"), "generic")
    with pytest.raises(CompileError, match="buffer 'held': it cannot be split among threads"):
        launches(copied("register", "warp"))  # thread 0 alone stores what all lanes hold
