"""Forms of differentiable operators: what their attributes and shapes make of them, beside their samples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..graph.ir import Call, Constant, Expr
from ..graph.registry import call
from .build import contract, nn
from .samples import indices, variable

Make = Callable[[Callable[..., Expr]], Call]
_IMAGE = (2, 4, 6, 5)
_ROWS = indices([[0, -1], [2, 2]])
_INTEGERS = Constant(np.arange(-6, 6, dtype=np.int8).reshape(2, 3, 2))
FORMS: tuple[tuple[str, Make], ...] = (
    ("nn.add, both broadcast", lambda v: nn.add(v(2, 1, 3), v(4, 1, name="y"))),
    ("nn.add of itself", lambda v: nn.add(v(2, 3), v(2, 3))),
    ("nn.multiply, a scalar", lambda v: nn.multiply(v(2, 3), v(name="y"))),
    ("nn.multiply of itself", lambda v: nn.multiply(v(2, 3), v(2, 3))),
    ("nn.multiply, empty", lambda v: nn.multiply(v(0, 3), v(1, 3, name="y"))),
    ("nn.divide, both broadcast", lambda v: nn.divide(v(3, 1), v(1, 4, name="y"))),
    ("nn.power of an integer", lambda v: nn.power(v(2, 3), indices([3, 0, 2]))),
    ("nn.modulo, truncated", lambda v: nn.modulo(v(2, 3), v(3, name="y"), truncated=True)),
    ("nn.where, all broadcast", lambda v: nn.where(variable("bool", 2, 1, name="c"), v(3), v(1, 1, name="y"))),
    ("nn.clip, below", lambda v: nn.clip(v(3, 4), high=0.5)),
    ("nn.clip, above (relu)", lambda v: nn.clip(v(3, 4), low=0.0)),
    ("nn.cast there and back", lambda v: nn.cast(nn.cast(v(2, 3), to="float64"), to=v(1).dtype)),
    *(
        (f"nn.reduce_{kind}, {form}", lambda v, kind=kind, shape=shape, attrs=attrs: getattr(nn, f"reduce_{kind}")(
            v(*shape), **attrs))
        for kind in ("sum", "mean", "max", "min", "product")
        for form, shape, attrs in (
            ("of all", (3, 4), {"axes": (0, 1)}), ("kept", (2, 3, 4), {"axes": (1,), "keepdims": True}),
            ("of one element", (2, 1, 3), {"axes": (1,)}), ("along no axis", (2, 3), {"axes": ()}),
        )
    ),
    ("nn.reduce_sum, empty", lambda v: nn.reduce_sum(v(2, 0), axes=(1,))),
    ("nn.reduce_mean, empty", lambda v: nn.reduce_mean(v(0, 2), axes=(1,))),
    *(
        (f"nn.cumulative_{kind}, exclusive={exclusive}, reverse={reverse}",
         lambda v, kind=kind, exclusive=exclusive, reverse=reverse: getattr(nn, f"cumulative_{kind}")(
             v(3, 4), axis=1, exclusive=exclusive, reverse=reverse))
        for kind in ("sum", "product") for exclusive in (False, True) for reverse in (False, True)
    ),
    ("nn.matmul of matrices", lambda v: nn.matmul(v(3, 4), v(4, 5, name="y"))),
    ("nn.matmul, one matrix for all", lambda v: nn.matmul(v(2, 3, 4), v(4, 2, name="y"))),
    ("nn.matmul of itself", lambda v: nn.matmul(v(3, 3), v(3, 3))),
    ("nn.matmul, nothing summed", lambda v: nn.matmul(v(2, 0), v(0, 3, name="y"))),
    *(
        (f"nn.einsum {equation}", lambda v, equation=equation, shapes=shapes: nn.einsum(
            *(v(*shape, name=f"x{i}") for i, shape in enumerate(shapes)), equation=equation))
        for equation, shapes in (
            ("ij->ji", [(2, 3)]), ("ij->", [(2, 3)]), ("ii->i", [(3, 3)]), ("ii->", [(3, 3)]), ("iji->j", [(2, 3, 2)]),
            ("iii->i", [(2, 2, 2)]), ("i,j->ij", [(2,), (3,)]), ("bij,bjk->bik", [(2, 3, 4), (2, 4, 2)]),
            ("ij,k->i", [(2, 3), (4,)]), ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]), ("bhid,bhjd->bhij",
            [(1, 2, 3, 4), (1, 2, 5, 4)]), (",i->i", [(), (3,)]),
        )
    ),
    ("nn.inverse of one", lambda v: nn.inverse(v(3, 3))),
    *(
        (f"nn.conv2d, {form}", lambda v, w=w, attrs=attrs: nn.conv2d(v(*_IMAGE), v(*w, name="w"), **attrs))
        for form, w, attrs in (
            ("plain", (3, 4, 3, 3), {}), ("padded", (3, 4, 3, 3), {"pads": (1, 1, 1, 1)}),
            ("steps", (3, 4, 3, 2), {"strides": (2, 2)}),
            ("steps beyond the kernel", (3, 4, 1, 2), {"strides": (3, 3)}),
            ("dilated", (3, 4, 2, 3), {"dilations": (3, 2)}),
            ("steps and dilated", (2, 4, 2, 2), {"strides": (2, 3), "dilations": (2, 1), "pads": (0, 1, 2, 1)}),
            ("padded beyond the kernel", (2, 4, 1, 2), {"pads": (2, 3, 1, 2)}),
            ("groups", (6, 2, 3, 3), {"groups": 2, "pads": (1, 0, 0, 1)}), ("depthwise", (4, 1, 3, 3), {"groups": 4}),
            ("depthwise, more channels", (8, 1, 3, 2), {"groups": 4, "strides": (2, 1)}),
            ("pointwise", (5, 4, 1, 1), {}),
        )
    ),
    *(
        (f"nn.grid_sample, {mode}, {padding}, align_corners={corners}",
         lambda v, mode=mode, padding=padding, corners=corners: nn.grid_sample(
             v(2, 2, 4, 5), v(2, 3, 2, 2, name="grid"), mode=mode, padding=padding, align_corners=corners))
        for mode in ("linear", "nearest", "cubic") for padding in ("zeros", "border", "reflection")
        for corners in (False, True)
    ),
    ("nn.grid_sample of a volume", lambda v: nn.grid_sample(v(1, 2, 3, 4, 3), v(1, 2, 2, 2, 3, name="grid"))),
    *(
        (f"nn.roi_align, {mode}, half_pixel={half}", lambda v, mode=mode, half=half: nn.roi_align(
            v(2, 2, 6, 5), v(3, 4, name="rois"), indices([0, 1, 1]), size=(2, 3), sampling_ratio=2, mode=mode,
            half_pixel=half, spatial_scale=1.5))
        for mode in ("avg", "max") for half in (False, True)
    ),
    *(
        (f"nn.roi_align, a sample a pixel, half_pixel={half}", lambda v, half=half: nn.roi_align(
            v(2, 2, 6, 5), Constant(np.array([[0.3, 0.2, 3.1, 1.7], [1.1, -0.6, 4.4, 5.3], [0.1, 0.4, 2.8, 1.3]],
                                             v(1).dtype)), indices([0, 1, 1]), size=(2, 2), half_pixel=half))
        for half in (False, True)
    ),
    ("nn.deform_conv2d, steps and dilated", lambda v: nn.deform_conv2d(
        v(1, 4, 6, 5), v(4, 2, 2, 3, name="w"), v(1, 24, 3, 3, name="offset"), v(1, 12, 3, 3, name="mask"), groups=2,
        offset_groups=2, strides=(2, 2), dilations=(1, 2), pads=(0, 2, 0, 2))),
    ("nn.conv2d over one axis", lambda v: nn.conv2d(v(2, 3, 1, 9), v(4, 3, 1, 3, name="w"), strides=(1, 2),
                                                    pads=(0, 1, 0, 1))),
    ("nn.conv2d, transposed", lambda v: nn.conv2d(contract.dilate(v(1, 3, 4, 3), factors=(2, 3)),
                                                  v(2, 3, 3, 3, name="w"), pads=(2, 2, 2, 2))),
    *(
        (f"nn.conv3d, {form}", lambda v, w=w, attrs=attrs: nn.conv3d(v(1, 2, 4, 5, 4), v(*w, name="w"), **attrs))
        for form, w, attrs in (
            ("plain", (3, 2, 2, 3, 2), {}),
            ("steps", (3, 2, 2, 2, 2), {"strides": (2, 1, 2), "pads": (1, 0, 1, 0, 1, 0)}),
            ("dilated", (3, 2, 2, 2, 2), {"dilations": (2, 1, 3)}), ("depthwise", (2, 1, 3, 2, 2), {"groups": 2}),
        )
    ),
    *(
        (f"nn.{kind}, {form}", lambda v, kind=kind, shape=shape, attrs=attrs: getattr(nn, kind)(v(*shape), **attrs))
        for kind in ("max_pool", "average_pool")
        for form, shape, attrs in (
            ("apart", _IMAGE, {"kernel": (2, 2), "strides": (2, 2)}),
            ("overlapping", _IMAGE, {"kernel": (3, 3), "pads": (1, 1, 1, 1)}),
            ("dilated", _IMAGE, {"kernel": (2, 3), "dilations": (2, 2), "strides": (2, 1)}),
            ("uneven pads", _IMAGE, {"kernel": (3, 2), "strides": (2, 3), "pads": (1, 0, 2, 1)}),
            ("of volumes", (1, 2, 4, 3, 4), {"kernel": (2, 2, 2), "strides": (2, 1, 2), "pads": (1, 0, 0, 0, 1, 0),
                                             "dilations": (1, 1, 1)}),
        )
    ),
    ("nn.average_pool, padding counts", lambda v: nn.average_pool(v(*_IMAGE), kernel=(3, 3), strides=(2, 1),
                                                                  pads=(1, 1, 1, 0), count_include_pad=True)),
    ("nn.softmax, first axis", lambda v: nn.softmax(v(3, 4), axis=0)),
    ("nn.softmax of a scalar", lambda v: nn.softmax(v(), axis=0)),
    ("nn.batch_norm of images", lambda v: nn.batch_norm(v(2, 3, 2, 2), *(v(3, name=f"p{i}") for i in range(3)),
                                                        nn.exp(v(3, name="p3")))),
    ("gather, last axis", lambda v: contract.gather(v(3, 4), _ROWS, axis=1)),
    ("gather of nothing", lambda v: contract.gather(v(3, 4), indices(np.zeros((0,))), axis=0)),
    ("gather of one", lambda v: contract.gather(v(3, 4), indices(1), axis=0)),
    ("gather_elements, first axis", lambda v:
     contract.gather_elements(v(3, 4), indices([[0, 2, -1], [1, 1, 0]]), axis=0)),
    ("gather_nd, in batches", lambda v:
     contract.gather_nd(v(2, 3, 4), indices([[[0], [2]], [[-1], [0]]]), batch_dims=1)),
    ("gather_nd of slices", lambda v: contract.gather_nd(v(3, 4), indices([[0], [2], [0]]))),
    *(
        (f"scatter_elements, {how}", lambda v, how=how: contract.scatter_elements(
            v(3, 4), indices([[0, 3], [2, 2]]), v(2, 2, name="u"), axis=1, reduction=how))
        for how in ("none", "add", "multiply", "maximum", "minimum")
    ),
    *(
        (f"scatter_nd, {how}", lambda v, how=how: contract.scatter_nd(
            v(3, 4), indices([[2], [0], [2]]), v(3, 4, name="u"), reduction=how))
        for how in ("none", "add", "multiply", "maximum", "minimum")
    ),
    ("slice in steps", lambda v: contract.slice(v(7, 5), starts=(1, 4), sizes=(3, 2), steps=(2, -3))),
    ("slice of nothing", lambda v: contract.slice(v(4, 3), starts=(1, 0), sizes=(0, 3), steps=(1, 1))),
    ("slice of one", lambda v: contract.slice(v(4, 3), starts=(3, 1), sizes=(1, 1), steps=(5, -2))),
    ("concat of three", lambda v: contract.concat(v(2, 3), v(0, 3, name="y"), v(2, 3), axis=0)),
    ("pad with a number", lambda v: contract.pad(v(2, 3, 2), pads=(1, 0, 0, 2), value=3.0)),
    ("expand to more axes", lambda v: contract.expand(v(3, 1), shape=(2, 3, 4))),
    ("expand to nothing", lambda v: contract.expand(v(1, 3), shape=(0, 3))),
    ("reshape to a scalar", lambda v: contract.reshape(v(1, 1), shape=())),
    ("dilate one axis", lambda v: contract.dilate(v(2, 3), factors=(3,))),
    ("transpose of four axes", lambda v: contract.transpose(v(2, 1, 3, 4), perm=(3, 1, 0, 2))),
    *(
        (f"dequantise, {form}", lambda v, shape=shape: call(
            "dequantise", _INTEGERS, variable("float32", *shape), Constant(np.full(shape, 3, np.int8))))
        for form, shape in (("one scale", ()), ("a scale for each channel", (3,)))
    ),
    ("dequantise, a scale for each block, the last one short", lambda v: call(
        "dequantise", _INTEGERS, variable("float32", 2, 2, 2), Constant(np.full((2, 2, 2), 3, np.int8)), block=2)),
)  # fmt: skip
"""Forms of operators beside those of their samples: what is special, and the call on variables of one float type."""
