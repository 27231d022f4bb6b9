"""Small models of every form that the accelerator's compiler knows, at random: what certificates are tried on.

A form is a function of random numbers, which draw all: shapes, weights, the core, its memory, and how latencies are
hidden. Layers and chains are written in the integers of the contract, networks as quantisers write them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import weft
from weft.api import integer_graph
from weft.compiler.graph import Attrs, Constant, Expr, Function, Module, Span, TensorType, Var, call
from weft.compiler.model import CompiledModel
from weft.compiler.targets.accel.link.forms import FORMS as FORMS_OF_LAYERS
from weft.compiler.targets.accel.link.forms import SHARED
from weft.compiler.targets.accel.link.tuned import Setting, layer_text, tuning_key
from weft.compiler.targets.accel.operators.lower import lower_function
from weft.compiler.targets.accel.passes import accel_passes
from weft.compiler.targets.accel.schedule.tiling import Tiling
from weft.compiler.tune.database import Database
from weft.errors import WeftError
from weft.hw.config import PYNQ, PYNQ_TABLES, PYNQ_W4, TINY, CoreConfig
from weft.hw.dram_rate import DramRate
from weft.sim.fuzz_configs import campaign_config

from benchmarks.zoo import litert_networks
from benchmarks.zoo.placement_networks import NETWORKS, network, random_forms
from tests.compiler.targets.accel import attention_layers, chains, kernels, moves
from tests.compiler.targets.accel.link import test_depthwise_split
from tests.compiler.targets.accel.operators import test_depthwise_mode, test_empty_matrices, test_weight_groups
from tests.compiler.targets.accel.passes import test_numbers_of_rows, test_order_of_bytes
from tests.compiler.targets.accel.quantised_layers import layer, module_of, quantised, variable
from tests.compiler.targets.accel.test_random_shapes import KINDS, OF_ROWS, POINTWISE, Layer
from tests.runtime import test_residents

RANDOM_CORES = 20
"""Cores of the simulators' campaign, beside the named ones."""

LITERT = (
    litert_networks.keyword_spotting, litert_networks.anomaly_detection, litert_networks.segmentation,
    litert_networks.inception, litert_networks.digits, litert_networks.inverted_residuals,
)  # fmt: skip
"""Small networks as LiteRT files."""


@dataclass(frozen=True)
class Case:
    """A compiled model, and the integer graph that it is compared with."""

    name: str
    model: CompiledModel
    integer: Module


@cache
def cores() -> tuple[CoreConfig, ...]:
    """Of every feature: arrays of all shapes, tables, weights of 4 bits, the depthwise mode, small memories."""
    named = (*kernels.CONFIGS, PYNQ, PYNQ, PYNQ_TABLES, PYNQ_W4, *test_depthwise_mode.MODES, *chains.SQUARE)
    return (*named, *map(campaign_config, range(RANDOM_CORES)))


def drawn_core(draw: random.Random, *able: CoreConfig) -> CoreConfig:
    """One of these, or of all; now and then with fewer entries in a scratchpad."""
    core = draw.choice(able or cores())
    if draw.random() < 0.3:
        depth = draw.choice(("inp_depth", "wgt_depth", "acc_depth", "out_depth"))
        core = replace(core, name=f"{core.name}-shallow", **{depth: max(getattr(core, depth) // 4, 16)})
    return core


def drawn_options(draw: random.Random, core: CoreConfig) -> dict[str, Any]:
    return {
        "config": core, "vthreads": draw.randint(1, 4), "hiding": draw.choice(("rings", "rings", "rings", "vthreads")),
        "dram": DramRate(latency=draw.randint(1, 500), bytes_per_cycle=draw.randint(1, 16)),
    }  # fmt: skip


# Layers in the contract's integers


def of_integers(draw: random.Random, name: str, plain: Module, core: CoreConfig) -> Case:
    """What the passes from the integers on make of a module, and that module."""
    options = drawn_options(draw, core)
    packed = plain
    for step in accel_passes(kernels.blocks_of(core), options["dram"].for_bus(core), core):
        packed = step(packed)
    return Case(name, _compiled(replace(packed, stage="packed"), options), plain)


def random_layer(draw: random.Random, core: CoreConfig | None = None, **fields: Any) -> Case:
    kind = fields.pop("kind", None) or draw.choice(KINDS)
    grouped = kind == "grouped"
    drawn: dict[str, Any] = {
        "kind": kind, "config": core or drawn_core(draw), "batch": draw.randint(1, 3),
        "groups": draw.randint(2, 5) if grouped else 1, "channels": draw.randint(1, 7 if grouped else 21),
        "filters": draw.randint(1, 7 if grouped else 21), "size": (draw.randint(1, 19), draw.randint(1, 19)),
        "kernel": (draw.randint(1, 5), draw.randint(1, 5)), "strides": (draw.randint(1, 3), draw.randint(1, 3)),
        "pads": tuple(draw.randint(0, 3) for _ in range(4)), "uniform": draw.random() < 0.3,
        "dilations": (1, 1) if kind == "sum_pool" else (draw.randint(1, 3), draw.randint(1, 3)),
        "seed": draw.randint(0, 1 << 20),
    }  # fmt: skip
    made = Layer(**(drawn | fields))
    if kind in OF_ROWS and not fields and draw.random() < 0.3:
        made = replace(made, batch=draw.randint(4, 80), channels=draw.randint(1, 90), size=(1, 1), kernel=(1, 1),
                       strides=(1, 1), pads=(0, 0, 0, 0))  # fmt: skip
    elif kind not in POINTWISE:
        grown = max(0, 1 - min(made.output)) * 3
        made = replace(made, size=(made.size[0] + grown, made.size[1] + grown))
    return of_integers(draw, kind, made.module(), made.config)


def depthwise_layer(draw: random.Random) -> Case:
    """On cores that have a mode for it, or whose engines share it."""
    core = drawn_core(draw, *test_depthwise_mode.MODES, PYNQ, PYNQ, *chains.SQUARE)
    strides = draw.choice(((1, 1), (1, 1), (2, 2), (1, 2)))
    dilations = draw.choice(((1, 1), (1, 1), (2, 1), (3, 2)))
    size = draw.randint(3, 37), draw.randint(3, 37)
    kind = draw.choice(("depthwise", "depthwise", "depthwise_swish"))
    return random_layer(draw, core, kind=kind, strides=strides, dilations=dilations, size=size, groups=1,
                        channels=draw.choice((4, 16, 17, 32, 70)), kernel=(draw.randint(2, 5), draw.randint(2, 5)),
                        batch=draw.choice((1, 1, 2)))  # fmt: skip


def grouped_layer(draw: random.Random) -> Case:
    """Groups that lie within the blocks of an array, or across them."""
    channels = draw.choice((1, 2, 2, 4, 8, 3))
    return random_layer(draw, drawn_core(draw, *chains.SQUARE, PYNQ, *kernels.CONFIGS), kind="grouped",
                        channels=channels, filters=draw.choice((channels, channels, 2 * channels)),
                        groups=draw.randint(2, 9), kernel=(draw.randint(1, 3), draw.randint(1, 3)))  # fmt: skip


def first_layer(draw: random.Random) -> Case:
    """Of few channels and a wide window: its input is unfolded."""
    size, kernel = draw.randint(9, 40), draw.choice((3, 5, 7))
    return random_layer(draw, drawn_core(draw, TINY, PYNQ, PYNQ, *cores()), kind="convolution", size=(size, size + 3),
                        channels=draw.randint(1, 4), kernel=(kernel, kernel), batch=draw.choice((1, 1, 2)),
                        strides=draw.choice(((1, 1), (2, 2))), dilations=(1, 1),
                        filters=draw.randint(8, 40))  # fmt: skip


def sparse_layer(draw: random.Random) -> Case:
    """Matrices of zeros, of which an output group may have nothing else."""
    core = drawn_core(draw, *kernels.CONFIGS, test_empty_matrices.SMALL, test_empty_matrices.SMALL, PYNQ)
    kernel = draw.choice(((1, 1), (3, 3), (2, 3)))
    function = test_empty_matrices.sparse(
        core, draw.randint(0, 999), draw.choice((0.1, 0.4, 0.8)), channels=draw.randint(5, 60), kernel=kernel,
        filters=draw.randint(5, 50), size=(draw.randint(4, 9), draw.randint(4, 9)), empty_groups=draw.random() < 0.5,
    )  # fmt: skip
    return of_kernel(draw, function, core)


def row_elsewhere(draw: random.Random) -> Case:
    """A dense layer that reads one row in another order than it lies."""
    made, core = test_order_of_bytes, drawn_core(draw, *test_order_of_bytes.CORES)
    x = Var("x", TensorType((draw.randint(1, 3), draw.choice((8, 16, 20)), draw.randint(1, 3), 1), "int8"))
    first = made.layer(x, draw.choice((32, 20, 64)), draw.randint(0, 99))
    moved = draw.choice((made.heads_side_by_side, made.backwards))(first)
    module = Module(Function((x,), made.layer(moved, draw.randint(3, 40), 1), Attrs({"name": "main"})))
    return of_integers(draw, "row elsewhere", module, core)


# Packed functions, which are compared with themselves


def of_kernel(draw: random.Random, function: Function, core: CoreConfig, **options: Any) -> Case:
    body = call(function, *function.params, span=Span((function.name,), "result"))
    main = Function(function.params, body, Attrs({"name": function.name, "outputs": ("output",)}))
    module = Module(main, "packed")
    return Case(function.name, _compiled(module, drawn_options(draw, core) | options), module)


def chain(draw: random.Random) -> Case:
    core, seed = draw.choice(chains.SQUARE), draw.randint(0, 1 << 20)
    case = (chains.pooled_case if seed % 2 else chains.random_case)(seed)
    return of_kernel(draw, chains.chain_function(case, core), core)


def tuned(draw: random.Random) -> Case:
    """A depthwise layer of which a database says how it is computed; perhaps so as this core cannot."""
    core = draw.choice((*chains.SQUARE, *kernels.CONFIGS, *test_depthwise_mode.MODES))
    case = test_depthwise_split.Case(
        core, batch=draw.randint(1, 2), channels=draw.randint(5, 60), size=(draw.randint(5, 12), draw.randint(5, 12)),
        strides=draw.choice(((1, 1), (2, 1))), seed=draw.randint(0, 999), residual=draw.random() < 0.3,
    )  # fmt: skip
    function, options, form = case.function(), drawn_options(draw, core), draw.choice(FORMS_OF_LAYERS)
    tiling = Tiling(draw.randint(1, 2), draw.randint(1, 4), draw.randint(1, 5), 0, draw.choice(("cyx", "yxc")), 1, 1, 1)
    setting = Setting(None, form, draw.randint(1, 3)) if form == SHARED else Setting(tiling, form)
    with TemporaryDirectory(prefix="weft-tuned-") as folder:
        path = Path(folder) / "tuned.db"
        with Database(path) as database:
            text = layer_text(lower_function(function))
            database.add(tuning_key(text, core, options["dram"]), setting.point, 1000)
        return of_kernel(draw, function, core, **options, tuned=str(path))


# Networks as quantisers write them


def of_floats(draw: random.Random, name: str, x: Var | tuple[Var, ...], body: Expr, core: CoreConfig) -> Case:
    module = module_of(x, body) if isinstance(x, Var) else Module(Function(x, body, Attrs({"name": "main"})))
    model = _compiled(module, drawn_options(draw, core))
    return Case(name, model, integer_graph(module, model))


def _below(draw: random.Random) -> Callable[[int], int]:
    return lambda size: draw.randrange(size) if size > 1 else 0


def shuffled(x: Expr, below: Callable[[int], int]) -> Expr:
    """Channels of groups in turn."""
    n, c, *picture = x.shape
    groups = [number for number in range(2, c + 1) if c % number == 0]
    if not groups:
        return x
    count = groups[below(len(groups))]
    split = call("reshape", x, shape=(n, count, c // count, *picture))
    return call("reshape", call("transpose", split, perm=(0, 2, 1, 3, 4)), shape=x.shape)


def some_channels(x: Expr, below: Callable[[int], int]) -> Expr:
    first, step = below(x.shape[1]), 1 + below(2)
    return moves.part(x, 1, first, -(-(x.shape[1] - first) // step), step)


def stacked(x: Expr, below: Callable[[int], int]) -> Expr:
    """With what a layer makes of it, along an axis of the picture."""
    parts = x, layer(x, x.shape[1])
    return quantised(call("concat", *(parts if below(2) else parts[::-1]), axis=2 + below(2)))


STEPS = (*moves.STEPS, shuffled, some_channels, stacked)


def moved(draw: random.Random) -> Case:
    """Layers, moves between them, and what reads them; channels fill the blocks of the core, or not."""
    core = drawn_core(draw, TINY, TINY, TINY, *chains.SQUARE, PYNQ, *cores())
    x = variable(draw.randint(1, 2), 3, draw.randint(2, 9), draw.choice((3, 5, 8, 16, 24)))
    block = max(core.block_in, core.block_out)
    body: Expr = layer(quantised(x), max(block * draw.randint(1, 3) - draw.choice((0, 0, 0, 0, 1, 3)), 1))
    below = _below(draw)
    names = []
    for _ in range(draw.randint(1, 3)):
        for _ in range(draw.choice((0, 1, 1, 2))):
            body = draw.choice(STEPS)(body, below)
        if body.tensor_type.size > 6000:
            body = moves.part(moves.part(body, 2, 0, 1), 3, 0, 1)
        reader = draw.choice(moves.READERS)
        names.append(reader.__name__)
        body = reader(body, below)
    return of_floats(draw, f"moved, {', '.join(names)}", x, layer(body, 5), core)


def concatenated(draw: random.Random) -> Case:
    """Concatenations of channels, nested, of operands that several read or that stand there twice."""
    x = variable(draw.choice((1, 1, 3)), 8, 5, 3)
    values: list[Expr] = [layer(quantised(x), draw.choice((3, 4, 6, 8)))]
    for _ in range(draw.randint(2, 5)):
        match draw.choice(("layer", "concat", "concat", "pool")):
            case "concat":
                parts = draw.choices(values[-3:], k=draw.choice((2, 3)))
                values.append(quantised(call("concat", *parts, axis=1)))
            case "pool":
                values.append(call("nn.max_pool", values[-1], kernel=(3, 3), pads=(1, 1, 1, 1)))
            case _:
                kernel = draw.choice((1, 3))
                values.append(layer(values[-1], draw.choice((3, 4, 5, 8)), kernel=kernel, pads=kernel // 2))
    body = quantised(call("concat", *values[-2:], axis=1))
    return of_floats(draw, "concatenated", x, layer(body, 7) if draw.random() < 0.6 else body, drawn_core(draw))


def _bent(draw: random.Random, x: Expr) -> Expr:
    """A function of one 8-bit value that is no line."""
    name = draw.choice(("nn.sigmoid", "nn.tanh", "swish", "nn.clip"))
    if name == "swish":
        return quantised(call("nn.multiply", x, call("nn.sigmoid", x)), 0.03)
    limits: dict[str, Any] = {"low": -1.0, "high": 2.0} if name == "nn.clip" else {}
    return quantised(call(name, x, **limits), 1 / 200)


def bent(draw: random.Random) -> Case:
    """Functions of one byte: tables in the lanes, on the host, or ramps."""
    size = draw.choice((1, 3, 6, 9, 24))
    x = variable(draw.randint(1, 2), 8, size, draw.choice((1, 5, size)))
    value: Expr = layer(quantised(x), draw.choice((8, 12, 40)), kernel=(k := draw.choice((1, 3))), pads=k // 2)
    for _ in range(draw.randint(1, 3)):
        match draw.choice(("layer", "depthwise", "depthwise", "sum", "twice", "largest")):
            case "layer":
                value = layer(_bent(draw, value), draw.choice((5, 8, 20)))
            case "depthwise":
                value = _bent(draw, value) if draw.random() < 0.5 else value
                kernel = draw.choice((3, 5))
                value = layer(value, value.shape[1], kernel=kernel, groups=value.shape[1], pads=kernel // 2)
                value = _bent(draw, value) if draw.random() < 0.7 else value
            case "sum":
                other = layer(value, value.shape[1])
                value = quantised(call("nn.add", _bent(draw, other), value))
            case "twice":
                value = _bent(draw, _bent(draw, value))
            case _:
                value = call("nn.max_pool", _bent(draw, value), kernel=(2, 2), pads=(1, 0, 0, 1))
    if draw.random() < 0.3:
        value = _bent(draw, value)
    tabled = [core for core in cores() if core.tables]
    return of_floats(draw, "bent", x, value, drawn_core(draw, *tabled, *tabled, PYNQ, TINY))


def gated(draw: random.Random) -> Case:
    """Squeeze and excite, also behind a depthwise layer."""
    x = variable(1, 8, draw.choice((1, 4, 10)), draw.choice((1, 4, 10)))
    features: Expr = layer(quantised(x), draw.choice((8, 12, 32)))
    if draw.random() < 0.5:
        features = layer(features, features.shape[1], kernel=3, groups=features.shape[1], pads=1)
        features = _bent(draw, features) if draw.random() < 0.5 else features
    pooled = quantised(call("nn.average_pool", features, kernel=features.shape[2:]))
    gate = _bent(draw, layer(pooled, features.shape[1]))
    return of_floats(draw, "gated", x, layer(quantised(call("nn.multiply", features, gate)), 5), drawn_core(draw))


def signal(draw: random.Random) -> Case:
    """Long rows, which nothing stands below: windows look back."""
    x = variable(1, draw.choice((1, 4)), 1, draw.randint(40, 200))
    value: Expr = layer(quantised(x), draw.choice((4, 8, 24)))
    for _ in range(draw.randint(1, 3)):
        channels = value.shape[1]
        rows, columns, groups = draw.randint(1, 3), draw.randint(1, 5), draw.choice((1, 1, channels))
        filters = channels if groups > 1 else draw.choice((4, 8, 20))
        values = np.random.default_rng(filters).integers(-99, 99, (filters, channels // groups, rows, columns))
        numbers = Constant(values.astype(np.int8))
        weights = call("dequantise", numbers, Constant(np.array(0.01, np.float32)), Constant(np.array(0, np.int8)))
        pads = (rows - 1, draw.randint(0, columns), 0, draw.randint(0, columns))
        made = call("nn.conv2d", value, weights, groups=groups, pads=pads, strides=(1, draw.choice((1, 1, 2))))
        value = quantised(made, 0.1)
    return of_floats(draw, "signal", x, value, drawn_core(draw, TINY, PYNQ, *cores()))


def blocks(draw: random.Random) -> Case:
    """Inverted residuals: layers in a row of which some are worth a chain."""
    size = draw.choice((7, 12, 20))
    x = variable(1, 3, size, size)
    value: Expr = layer(quantised(x), draw.choice((8, 16)), kernel=3, pads=1)
    for _ in range(draw.randint(1, 3)):
        before, wide = value, layer(value, draw.choice((24, 48)))
        wide = layer(wide, wide.shape[1], kernel=(k := draw.choice((3, 5))), groups=wide.shape[1], pads=k // 2)
        value = layer(wide, before.shape[1])
        if draw.random() < 0.6:
            value = quantised(call("nn.add", value, before))
        if draw.random() < 0.4:
            value = call("nn.max_pool", value, kernel=(2, 2), strides=(2, 2))
    return of_floats(draw, "blocks", x, value, drawn_core(draw, PYNQ, PYNQ, TINY, *cores()))


def codes(draw: random.Random) -> Case:
    """Weights of 4 bits."""
    made = test_weight_groups
    core = drawn_core(draw, PYNQ_W4, made.SMALL, made.OTHER_BLOCKS, *(core for core in cores() if core.weight_group))
    pixels = draw.choice((1, 1, 3))
    depth = draw.choice((1, 2, 3)) * core.weight_group - draw.choice((0, 0, 0, 5))
    x = variable(draw.randint(1, 4), depth, pixels, pixels)
    values = made.weights(draw.choice((24, 96, 130)), depth, core.weight_group, draw.randint(0, 99))
    return of_floats(draw, "codes", x, made.layer(quantised(x), values), core)


def rows(draw: random.Random) -> Case:
    """Rows with a number each, or one for each place in them."""
    made = test_numbers_of_rows
    shape = draw.choice((1, 1, 2)), draw.randint(1, 6), draw.choice((20, 24, 32, 48))
    numbers = draw.choice(((*shape[:-1], 1), (*shape[:-1], 1), (1, 1, shape[2]), shape))
    x, number = Var("x", TensorType(shape, "float32")), Var("r", TensorType(numbers, "float32"))
    value: Expr = made.quantised(x)
    if draw.random() < 0.3:
        value = made.dense(value, draw.choice((24, 32, 40)))
        numbers = (*shape[:-1], 1) if numbers[-1] == 1 else (1, 1, value.shape[2])
        number = Var("r", TensorType(numbers, "float32"))
    build = draw.choice((made.scaled, made.shifted, made.by_its_root))
    value = build(value, made.quantised(number, 0.02, 1))
    if draw.random() < 0.3:
        value = made.scaled(value, value)
    return of_floats(draw, "rows", (x, number), made.dense(value, 24), drawn_core(draw))


def flattened(draw: random.Random) -> Case:
    """A dense layer of a whole picture, whose axes may have changed their order."""
    x = variable(draw.randint(1, 2), draw.choice((1, 3, 8)), draw.randint(2, 6), draw.randint(2, 6))
    value: Expr = layer(quantised(x), draw.choice((3, 8, 12)), kernel=(k := draw.choice((1, 3))), pads=k // 2)
    if draw.random() < 0.6:
        perm = draw.choice(((0, 2, 3, 1), (0, 1, 3, 2), (0, 3, 2, 1), (1, 0, 2, 3), (2, 0, 1, 3)))
        value = call("transpose", value, perm=perm)
    value = call("reshape", value, shape=(value.shape[0], value.tensor_type.size // value.shape[0], 1, 1))
    return of_floats(draw, "flattened", x, layer(value, draw.choice((5, 12, 24))), drawn_core(draw, TINY, *cores()))


def formed(draw: random.Random) -> Case:
    """A small network in a form of some quantiser."""
    seed, name = draw.randint(0, 1 << 20), draw.choice(sorted(NETWORKS))
    return of_file(draw, f"network {name!r}", network(name, next(random_forms(seed)), seed), drawn_core(draw))


def of_litert(draw: random.Random) -> Case:
    case = draw.choice(LITERT)()
    return of_file(draw, case.name, case.model, drawn_core(draw))


def session(draw: random.Random) -> Case:
    """A decoder, whose states stay in the core's memory."""
    core = drawn_core(draw, TINY, PYNQ, *kernels.CONFIGS)
    return of_file(draw, "session", test_residents.decoder(draw.randint(1, 2)), core)


def attention(draw: random.Random) -> Case:
    """Heads whose rows, values and results are moved between dense layers and products; of whole blocks and of none."""
    core = drawn_core(draw, TINY, *cores())
    block = core.block_in
    tokens = draw.choice((block, block + 1, draw.randint(1, 64)))
    depth = draw.choice((block, 2 * block, draw.randint(1, 2 * block)))
    module = attention_layers.attention(draw.randint(1, 3), tokens, draw.randint(1, 4), depth)
    return of_file(draw, "attention", module, core)


def of_file(draw: random.Random, name: str, source: Any, core: CoreConfig) -> Case:
    model = _compiled(source, drawn_options(draw, core))
    return Case(name, model, integer_graph(source, model))


def _compiled(source: Any, options: dict[str, Any]) -> CompiledModel:
    made = weft.compile(source, cache=False, **options)
    assert isinstance(made, CompiledModel)
    return made


FORMS: dict[str, Callable[[random.Random], Case]] = {
    "layer": random_layer, "depthwise": depthwise_layer, "grouped": grouped_layer, "first": first_layer,
    "sparse": sparse_layer, "chain": chain, "tuned": tuned, "moved": moved, "concatenated": concatenated,
    "bent": bent, "gated": gated, "blocks": blocks, "signal": signal, "codes": codes, "rows": rows,
    "row elsewhere": row_elsewhere, "flattened": flattened, "formed": formed, "litert": of_litert, "session": session,
    "attention": attention,
}  # fmt: skip
SELDOM = {"litert": 10, "session": 5, "blocks": 3, "formed": 2}
OFTEN = {"chain": 4, "layer": 3, "moved": 3, "depthwise": 2, "grouped": 2, "sparse": 2, "concatenated": 2}
"""One of so many seeds of forms that take long; so many of those that are quick."""


def case_of(form: str, seed: int) -> Case | None:
    """None where nothing of it runs on the core, or where it does not fit."""
    try:
        made = FORMS[form](random.Random(f"{form} {seed}"))
    except WeftError:
        return None
    return replace(made, name=f"{form} {seed}: {made.name}, {made.model.name}") if made.model.core else None


def all_cases(seeds: range, forms: Sequence[str] = tuple(FORMS)) -> Iterator[tuple[str, int]]:
    """Form and seed, the forms in turns."""
    for seed in seeds:
        for form in forms:
            if seed % SELDOM.get(form, 1) == 0:
                times = OFTEN.get(form, 1)
                yield from ((form, seed * times + number) for number in range(times))
