"""Packed functions as kernels: each is lowered once, whatever passes write into its attributes."""

from __future__ import annotations

from dataclasses import replace

from weft.compiler.graph import Function
from weft.compiler.targets.accel.operators.lower import lower_function
from weft.hw.config import TINY

from ..kernels import Build


def sum_with_products(name: str = "kernel") -> Function:
    """Products of one activation and, added to them, another one."""
    build = Build(TINY)
    products = build.conv(build.input(1, 8, 5, 5), 8, 8, (1, 1))
    both = build.op("multiply_accumulate", products, build.like(products), weight=-700)
    return build.function(build.requantise(both, 8, 70_000), name)


def test_attributes_are_no_part_of_what_is_lowered() -> None:
    function = sum_with_products()
    explained = replace(function, attrs=function.attrs.replace(not_chained="its result is read twice"))
    assert explained != function
    assert lower_function(explained) is lower_function(function)


def test_name_and_parameters_are() -> None:
    function = sum_with_products()
    kernel = lower_function(function)
    turned = lower_function(replace(function, params=function.params[::-1]))
    named = lower_function(replace(function, attrs=function.attrs.replace(name="sum")))
    assert [each.name for each in turned.inputs[:2]] == [each.name for each in kernel.inputs[1::-1]]
    assert (named.name, kernel.name) == ("sum", "kernel")
