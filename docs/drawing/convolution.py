"""One convolution on its way through the compiler, in four stages: texts that the compiler really makes."""

from __future__ import annotations

import re

import numpy as np
from weft.compiler.graph import Attrs, Constant, Function, Module, TensorType, Var, call, calls
from weft.compiler.graph.text import to_text
from weft.compiler.passes import integer_passes
from weft.compiler.passes.pipeline import PassOptions, run_passes
from weft.compiler.targets.accel.link.compile_kernel import generate
from weft.compiler.targets.accel.operators.lower import lower_function
from weft.compiler.targets.accel.operators.packed_layout import Blocks
from weft.compiler.targets.accel.passes import accel_passes
from weft.compiler.targets.accel.stream.conflicts import conflicts_of
from weft.compiler.targets.accel.stream.rows import columns_of_rows
from weft.compiler.targets.accel.stream.tokens import tokens_of
from weft.compiler.targets.accel.walk.emit import Emitter
from weft.compiler.targets.accel.walk.emit_nest import DramBuffer
from weft.hw.assembly import format_instruction
from weft.hw.config import CoreConfig
from weft.hw.dram_rate import USUAL_RATE
from weft.hw.programs import assemble_columns, disassemble

from .svg import COLOURS, SOFT, Sheet, width_of

WIDTH, MARGIN, STEP, SIZE = 980, 24, 15, 10.5
COLUMNS = int((WIDTH - 2 * MARGIN - 24) / width_of("x", SIZE, mono=True))
WINDOW_BYTES = 4096
"""Room for each buffer in the window."""


def draw(config: CoreConfig) -> str:
    """The picture as SVG."""
    panels = stages(config)
    height = 60 + sum(len(lines) * STEP + 76 for _, _, lines, _ in panels)
    sheet = Sheet(WIDTH, height, "One convolution, from graph to instructions")
    sheet.text(MARGIN, 36, "One convolution, from graph to instructions", size=18, bold=True)
    sheet.text(MARGIN, 58, f"8 channels to 4, 3 x 3, on the core {config.name!r}", colour=SOFT)
    y = 76.0
    for number, (title, about, lines, kind) in enumerate(panels, 1):
        inside = len(lines) * STEP + 18
        fill, edge = COLOURS[kind]
        sheet.text(MARGIN, y + 16, f"{number}  {title}", size=14, bold=True)
        sheet.text(MARGIN + width_of(f"{number}  {title}", 17), y + 16, about, size=11.5, colour=SOFT)
        sheet.box(MARGIN, y + 26, WIDTH - 2 * MARGIN, inside, fill, edge)
        for line, text in enumerate(lines):
            sheet.text(MARGIN + 12, y + 26 + 20 + STEP * line, text, size=SIZE, mono=True)
        if number < len(panels):
            sheet.line([(WIDTH / 2, y + 26 + inside), (WIDTH / 2, y + 26 + inside + 22)], arrow=True)
        y += inside + 58
    return sheet.svg()


def stages(config: CoreConfig) -> list[tuple[str, str, list[str], str]]:
    """Title, explanation, lines and colour of each stage."""
    module = quantised_convolution()
    passes = [*integer_passes(), *accel_passes(Blocks.of(config), config.bus_bytes)]
    packed = run_passes(module, passes, PassOptions(), "")
    functions = [node.op for node in calls(packed.main.body) if isinstance(node.op, Function) and node.op.is_primitive]
    kernel = lower_function(functions[0])
    buffers = [*kernel.inputs, *(tensor for tensor, _ in kernel.constants), kernel.output]
    emitter = Emitter(config)
    dram = {tensor.name: DramBuffer(number * WINDOW_BYTES) for number, tensor in enumerate(buffers)}
    generated = generate(emitter, kernel, dram, USUAL_RATE, threads=2)
    rows, conflicts = emitter.rows, conflicts_of(emitter.rows)
    columns = columns_of_rows(config, rows, *tokens_of(config, rows.engines, conflicts))
    *program, _ = disassemble(config, assemble_columns(config, columns))
    instructions = [format_instruction(each) for each in program]
    return [
        ("Graph", "as the front end reads it from a quantised model", _graph(to_text(module)), "none"),
        (
            "Packed function",
            "integers in the core's layout, convolution and requantisation fused",
            _graph(_function_text(to_text(packed), functions[0])),
            "memory",
        ),
        ("Loops", "tiled, two virtual threads, tensorized (left out: loops of one iteration, shapes of tiles)",
         _loops(str(generated.schedule)), "field"),
        ("Instructions", "in program order; wait and send are tokens", [_cut(line) for line in instructions], "engine"),
    ]  # fmt: skip


def quantised_convolution() -> Module:
    """A convolution between DequantizeLinear and QuantizeLinear."""
    generator = np.random.default_rng(0)
    x = Var("x", TensorType((1, 8, 6, 6), "int8"))
    weights = Constant(generator.integers(-128, 128, (4, 8, 3, 3)).astype(np.int8))
    real = call("dequantise", x, Constant(np.float32(0.0625)), Constant(np.int8(3)))
    factors = call("dequantise", weights, Constant(np.float32(0.015625)), Constant(np.int8(0)))
    result = call("nn.conv2d", real, factors, pads=(1, 1, 1, 1))
    result = call("quantise", result, Constant(np.float32(0.25)), Constant(np.int8(-128)))
    return Module(Function((x,), result, Attrs({"name": "main", "outputs": ("y",)})))


def _function_text(text: str, function: Function) -> str:
    """The part of a module's text that is one function."""
    start = text.index(f"fn @{function.name}(")
    return text[start : text.index("}\n", text.index("return", start)) + 2]


def _cut(line: str) -> str:
    return line if len(line) <= COLUMNS else f"{line[: COLUMNS - 2]} …"


def _graph(text: str) -> list[str]:
    return [_cut(line) for line in text.splitlines() if line.strip()]


def _loops(text: str) -> list[str]:
    """Lines of loop IR without the loops of one iteration, each call on one line, tiles as their first elements."""
    joined = re.sub(r",?\n *\)", ")", re.sub(r",\n +", ", ", re.sub(r"\(\n +", "(", text)))
    joined = re.sub(r"tile\((\w+\[[^\]]*\]), \[[^\]]*\], \[[^\]]*\]\)", r"\1", joined)
    joined = re.sub(r'\("\w+", ', "(", joined)
    lines: list[str] = []
    dropped: list[int] = []  # indentation of the loops left out around the line
    for line in joined.splitlines():
        indent = len(line) - len(line.lstrip())
        dropped = [level for level in dropped if level < indent]
        if re.search(r"for \w+ in range\(1\):", line):
            dropped.append(indent)
        elif line.strip():
            lines.append(_cut(" " * ((indent - 4 * len(dropped)) // 2) + line.strip()))
    return lines
