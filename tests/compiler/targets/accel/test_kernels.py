"""Every kind of kernel, of any shape, on cores of any shape: the program's integers are NumPy's."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Expr, Function
from weft.compiler.operators.numerics import output_size
from weft.compiler.targets.errors import CompileError
from weft.hw.config import PYNQ, TINY, CoreConfig

from .kernels import CONFIGS, Build, check, compile_function, program_of

KINDS = ("conv", "residual", "depthwise", "max_pool", "sum_pool", "add", "mul", "gate", "shifted", "requantise")


@dataclass(frozen=True)
class Case:
    """One kernel; fields that a kind does not use are ignored."""

    kind: str
    config: CoreConfig
    threads: int = 2
    batch: int = 1
    channels: int = 8
    filters: int = 8
    size: tuple[int, int] = (6, 5)
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    dilations: tuple[int, int] = (1, 1)
    seed: int = 0

    @property
    def output(self) -> tuple[int, int]:
        """Height and width of a window's output; 0 or less where it does not fit."""
        dilations = (1, 1) if self.kind == "sum_pool" else self.dilations
        return tuple(  # type: ignore[return-value]
            output_size(self.size[axis], self.kernel[axis], self.strides[axis], self.pads[axis], self.pads[axis + 2],
                        dilations[axis])
            for axis in (0, 1)
        )  # fmt: skip

    def function(self) -> Function:
        build = Build(self.config, self.seed)
        x = build.input(self.batch, self.channels, *self.size)
        return build.function(getattr(self, f"_{self.kind}")(build, x))

    def _window(self) -> dict[str, object]:
        return {"strides": self.strides, "pads": self.pads}

    def _spread(self) -> float:
        return 74 * 74 * (self.channels * self.kernel[0] * self.kernel[1]) ** 0.5

    def _conv(self, build: Build, x: Expr) -> Expr:
        acc = build.conv(x, self.channels, self.filters, self.kernel, dilations=self.dilations, pad_value=-9,
                         **self._window())  # fmt: skip
        return build.requantise(acc, self.filters, self._spread())

    def _residual(self, build: Build, x: Expr) -> Expr:
        acc = build.conv(x, self.channels, self.filters, self.kernel, pad_value=7, dilations=self.dilations,
                         **self._window())  # fmt: skip
        wide = build.requantise(acc, self.filters, self._spread(), zero_point=0, low=-200, high=190, left_shift=9,
                                out="int32")  # fmt: skip
        both = build.op("multiply_accumulate", wide, build.like(acc), weight=-700)
        return build.requantise(both, self.filters, 150_000)

    def _depthwise(self, build: Build, x: Expr) -> Expr:
        acc = build.depthwise(x, self.channels, self.kernel, dilations=self.dilations, pad_value=3, **self._window())
        return build.requantise(acc, self.channels, 74 * 74 * 3)

    def _max_pool(self, build: Build, x: Expr) -> Expr:
        return build.op("max_pool", x, kernel=self.kernel, dilations=self.dilations, **self._window())

    def _sum_pool(self, build: Build, x: Expr) -> Expr:
        acc = build.op("sum_pool", x, kernel=self.kernel, pad_value=-20, **self._window())
        return build.requantise(acc, self.channels, 128 * self.kernel[0] * self.kernel[1])

    def _add(self, build: Build, x: Expr) -> Expr:
        scaled = build.op("multiply_immediate", x, weight=1234)
        both = build.op("multiply_accumulate", scaled, build.like(scaled), weight=-4321)
        return build.requantise(both, self.channels, 300_000)

    def _mul(self, build: Build, x: Expr) -> Expr:
        a = build.op("subtract_immediate", x, value=5)
        b = build.op("subtract_immediate", build.like(a), value=-7)
        return build.requantise(build.op("multiply", a, b), self.channels, 8000)

    def _gate(self, build: Build, x: Expr) -> Expr:
        product = build.op("multiply", x, build.input(self.batch, self.channels, 1, 1))
        product = build.op("multiply_accumulate", product, x, weight=-77)
        return build.requantise(product, self.channels, 8000)

    def _shifted(self, build: Build, x: Expr) -> Expr:
        """A number for each channel, and where a pixel is one accumulator entry, one for each pixel."""
        acc = build.conv(x, self.channels, self.filters, self.kernel, dilations=self.dilations, pad_value=5,
                         **self._window())  # fmt: skip
        small = build.op("multiply_immediate", build.input(self.batch, self.filters, 1, 1), weight=-300)
        small = build.op("multiply_accumulate", small, build.like(small), weight=70)
        acc = build.op("add", acc, small)
        if self.config.block_in <= self.config.block_out:
            rows = build.input(self.batch, 1, *acc.shape[2:4])
            acc = build.op("add", acc, build.op("multiply_immediate", rows, weight=123))
        return build.requantise(acc, self.filters, self._spread())

    def _requantise(self, build: Build, x: Expr) -> Expr:
        return build.requantise(x, self.channels, 128, low=-100, high=90)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    small = st.integers(0, 3)
    case = Case(
        kind=draw(st.sampled_from(KINDS)),
        config=draw(st.sampled_from(CONFIGS)),
        threads=draw(st.integers(1, 3)),
        batch=draw(st.integers(1, 3)),
        channels=draw(st.integers(1, 20)),
        filters=draw(st.integers(1, 20)),
        size=draw(st.tuples(st.integers(1, 20), st.integers(1, 20))),
        kernel=draw(st.tuples(st.integers(1, 4), st.integers(1, 4))),
        strides=draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        pads=draw(st.tuples(small, small, small, small) | st.tuples(*[st.integers(0, 18)] * 4)),
        dilations=draw(st.tuples(st.integers(1, 2), st.integers(1, 2))),
        seed=draw(st.integers(0, 1000)),
    )
    grown = 3 * max(0, 1 - min(case.output))  # the largest stride for every output that is missing: the window fits
    return replace(case, size=(case.size[0] + grown, case.size[1] + grown))


@given(cases())
@settings(max_examples=40)
def test_a_kernel_of_any_shape_equals_numpy(case: Case) -> None:
    check(case.function(), case.config, case.threads, case.seed)


@pytest.mark.long
@given(cases())
@settings(max_examples=2000)
def test_many_kernels_of_any_shape_equal_numpy(case: Case) -> None:
    check(case.function(), case.config, case.threads, case.seed)


EDGES = {
    "one pixel": Case("conv", TINY, size=(1, 1), kernel=(1, 1), pads=(0, 0, 0, 0)),
    "pads beyond the field": Case("conv", TINY, size=(3, 3), pads=(17, 20, 16, 31), kernel=(5, 5)),
    "a picture that no window meets": Case(
        "conv", TINY, size=(7, 2), kernel=(3, 4), strides=(2, 3), pads=(18, 7, 1, 0), threads=2
    ),
    "a kernel as large as the picture": Case("conv", TINY, channels=12, size=(9, 9), kernel=(9, 9), pads=(0, 0, 0, 0)),
    "stride larger than the kernel": Case("conv", TINY, size=(11, 10), kernel=(1, 1), strides=(2, 3), pads=(0,) * 4),
    "three batch groups": Case("residual", CONFIGS[1], batch=5),
    "global average": Case("sum_pool", TINY, channels=20, size=(7, 7), kernel=(7, 7), pads=(0, 0, 0, 0)),
    "wide picture": Case("depthwise", TINY, channels=4, size=(2, 150)),
    "real core": Case("residual", PYNQ, channels=33, filters=40, size=(14, 14), threads=2),
    "real core, strided": Case("max_pool", PYNQ, channels=64, size=(28, 28), strides=(2, 2)),
}


@pytest.mark.parametrize("name", EDGES)
def test_an_edge_case_equals_numpy(name: str) -> None:
    case = EDGES[name]
    check(case.function(), case.config, case.threads)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_every_kind_runs_with_any_number_of_virtual_threads(kind: str, threads: int) -> None:
    case = Case(kind, TINY, channels=12, filters=12, size=(12, 12), threads=threads)
    check(case.function(), case.config, threads)


def test_compiling_twice_gives_the_same_program() -> None:
    function = Case("conv", TINY, channels=16, filters=16, size=(10, 10)).function()
    first, second = (program_of(compile_function(function, TINY)) for _ in range(2))
    assert first.program.tobytes() == second.program.tobytes()


def test_a_kernel_that_cannot_fit_is_refused_by_name() -> None:
    config = replace(TINY, acc_depth=16, acc_banks=1)
    function = Case("depthwise", config, kernel=(4, 4)).function()
    with pytest.raises(CompileError, match=r"function 'kernel': not even the smallest tile .* hint: use a config"):
        compile_function(function, config)
