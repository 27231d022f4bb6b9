"""Decoders of many kinds in the primitive operators that exporters write, in sessions: the scores are onnxruntime's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import weft
from onnx import TensorProto, helper, numpy_helper
from weft.compiler.frontends import read
from weft.runtime.module import LoadedModule
from weft.runtime.session_sizes import session_shapes

from examples.precise import precise_session

Array = npt.NDArray[Any]

WIDTH, HEADS, SHARED, DEPTH, HIDDEN, VOCABULARY, POSITIONS = 16, 2, 1, 8, 24, 12, 6


@dataclass(frozen=True)
class Kind:
    """``turned``: values of a head that positions turn; 0: positions have rows of a table. ``cap``: of scores."""

    layer_norm: bool = False
    bias: bool = False
    turned: int = DEPTH
    parallel: bool = False
    gelu: bool = False
    gated: bool = True
    one_more: bool = False
    cap: float = 0.0
    window: int = 0
    hidden: float = float(np.finfo(np.float32).min)


KINDS = {
    "llama": Kind(),
    "qwen2": Kind(bias=True),
    "gemma2": Kind(gelu=True, one_more=True, cap=2.0, window=3),
    "phi": Kind(layer_norm=True, bias=True, turned=DEPTH // 2, parallel=True, gelu=True, gated=False),
    "gpt2": Kind(layer_norm=True, bias=True, turned=0, gelu=True, gated=False, hidden=-np.inf),
    "mistral": Kind(window=3),
}


class _File:
    """Nodes and constants; a method for each operator, whose operands are names or constants."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.random = np.random.default_rng(4)

    def constant(self, value: Any) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(value), f"c{len(self.constants)}"))
        name: str = self.constants[-1].name
        return name

    def floats(self, *shape: int, scale: float = 1.0) -> str:
        return self.constant(self.random.normal(0, scale, shape).astype(np.float32))

    def op(self, kind: str, *operands: Any, out: str = "", **attrs: Any) -> str:
        names = [each if isinstance(each, str) else self.constant(each) for each in operands]
        self.nodes.append(helper.make_node(kind, names, [out or f"t{len(self.nodes)}"], **attrs))
        name: str = self.nodes[-1].output[0]
        return name

    def slice(self, x: str, start: int, stop: int) -> str:
        return self.op("Slice", x, np.array([start]), np.array([stop]), np.array([3]))


class _Decoder(_File):
    """One layer of a kind, with a cache that grows."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.kind = kind

    def linear(self, x: str, depth: int, outputs: int) -> str:
        made = self.op("MatMul", x, self.floats(depth, outputs, scale=depth**-0.5))
        return self.op("Add", self.floats(outputs, scale=0.1), made) if self.kind.bias else made

    def norm(self, x: str) -> str:
        gains = self.floats(WIDTH)
        if self.kind.layer_norm:
            return self.op("LayerNormalization", x, gains, self.floats(WIDTH), axis=-1, epsilon=1e-5)
        mean = self.op("ReduceMean", self.op("Pow", x, np.float32(2)), axes=[-1], keepdims=1)
        root = self.op("Sqrt", self.op("Add", mean, np.float32(1e-5)))
        if self.kind.one_more:
            gains = self.op("Add", gains, np.float32(1))
        return self.op("Mul", gains, self.op("Mul", x, self.op("Div", np.float32(1), root)))

    def heads(self, x: str, count: int) -> str:
        return self.op("Transpose", self.op("Reshape", x, np.array([0, 0, count, DEPTH])), perm=[0, 2, 1, 3])

    def turn(self, x: str, cosine: str, sine: str) -> str:
        size = self.kind.turned
        turned, rest = self.slice(x, 0, size), self.slice(x, size, 2**62)
        crossed = self.op("Concat", self.op("Neg", self.slice(turned, size // 2, size)),
                          self.slice(turned, 0, size // 2), axis=-1)  # fmt: skip
        turned = self.op("Add", self.op("Mul", turned, cosine), self.op("Mul", crossed, sine))
        return turned if size == DEPTH else self.op("Concat", turned, rest, axis=-1)

    def angles(self) -> tuple[str, str]:
        size = self.kind.turned
        rates = (10000.0 ** (-np.arange(0, size, 2) / size)).astype(np.float32)[None, :, None]
        places = self.op("Cast", self.op("Unsqueeze", "position_ids", np.array([1])), to=TensorProto.FLOAT)
        angle = self.op("Transpose", self.op("MatMul", rates, places), perm=[0, 2, 1])
        both = self.op("Unsqueeze", self.op("Concat", angle, angle, axis=-1), np.array([1]))
        return self.op("Cos", both), self.op("Sin", both)

    def mask(self) -> str:
        """Of the cache's positions by their place, and of the run's by ``position_ids``; added to scores."""
        total, length = (self.op("Gather", self.op("Shape", name), np.array(1), axis=0)
                         for name in ("attention_mask", "input_ids"))  # fmt: skip
        behind = self.op("Sub", total, length)
        old = self.op("Unsqueeze", self.op("Range", np.array(0), behind, np.array(1)), np.array([0]))
        places = self.op("Concat", old, "position_ids", axis=1)
        apart = self.op("Sub", self.op("Unsqueeze", "position_ids", np.array([2])),
                        self.op("Unsqueeze", places, np.array([1])))  # fmt: skip
        given = self.op("Cast", self.op("Unsqueeze", "attention_mask", np.array([1])), to=TensorProto.BOOL)
        seen = self.op("And", self.op("GreaterOrEqual", apart, np.array(0)), given)
        if self.kind.window:
            seen = self.op("And", seen, self.op("Less", apart, np.array(self.kind.window)))
        hidden = self.op("Where", seen, np.float32(0), np.float32(self.kind.hidden))
        return self.op("Unsqueeze", hidden, np.array([1]))

    def capped(self, x: str) -> str:
        cap = np.float32(self.kind.cap)
        return self.op("Mul", self.op("Tanh", self.op("Div", x, cap)), cap) if self.kind.cap else x

    def attention(self, x: str) -> str:
        query, key, value = (self.heads(self.linear(x, WIDTH, count * DEPTH), count)
                             for count in (HEADS, SHARED, SHARED))  # fmt: skip
        if self.kind.turned:
            cosine, sine = self.angles()
            query, key = self.turn(query, cosine, sine), self.turn(key, cosine, sine)
        key = self.op("Concat", "past_key_values.0.key", key, axis=2, out="present.0.key")
        value = self.op("Concat", "past_key_values.0.value", value, axis=2, out="present.0.value")
        key, value = (self.op("Expand", each, np.array([1, HEADS, 1, 1])) for each in (key, value))
        scores = self.op("MatMul", query, self.op("Transpose", key, perm=[0, 1, 3, 2]))
        scores = self.capped(self.op("Mul", scores, np.float32(DEPTH**-0.5)))
        shares = self.op("Softmax", self.op("Add", scores, self.mask()), axis=-1)
        rows = self.op("Transpose", self.op("MatMul", shares, value), perm=[0, 2, 1, 3])
        return self.linear(self.op("Reshape", rows, np.array([0, 0, HEADS * DEPTH])), HEADS * DEPTH, WIDTH)

    def mixed(self, x: str) -> str:
        gate = self.linear(x, WIDTH, HIDDEN)
        if self.kind.gelu:
            share = self.op("Add", self.op("Erf", self.op("Div", gate, np.float32(2**0.5))), np.float32(1))
            active = self.op("Mul", self.op("Mul", gate, share), np.float32(0.5))
        else:
            active = self.op("Mul", gate, self.op("Sigmoid", gate))
        return self.linear(self.op("Mul", active, self.linear(x, WIDTH, HIDDEN)) if self.kind.gated else active,
                           HIDDEN, WIDTH)  # fmt: skip

    def file(self) -> bytes:
        x = self.op("Gather", self.floats(VOCABULARY, WIDTH), "input_ids")
        if not self.kind.turned:
            x = self.op("Add", x, self.op("Gather", self.floats(POSITIONS, WIDTH), "position_ids"))
        rows = self.norm(x)
        attended = self.attention(rows)
        if self.kind.parallel:
            x = self.op("Add", x, self.op("Add", attended, self.mixed(rows)))
        else:
            x = self.op("Add", x, attended)
            x = self.op("Add", x, self.mixed(self.norm(x)))
        self.op("Identity", self.capped(self.linear(self.norm(x), WIDTH, VOCABULARY)), out="logits")
        whole, floats = TensorProto.INT64, TensorProto.FLOAT
        inputs = [helper.make_tensor_value_info(name, whole, ["batch", size]) for name, size in
                  (("input_ids", "length"), ("attention_mask", "all"), ("position_ids", "length"))]  # fmt: skip
        outputs = [helper.make_tensor_value_info("logits", floats, ["batch", "length", VOCABULARY])]
        for what in ("key", "value"):
            for names, where, size in ((inputs, "past_key_values", "past"), (outputs, "present", "all")):
                shape = ["batch", SHARED, size, DEPTH]
                names.append(helper.make_tensor_value_info(f"{where}.0.{what}", floats, shape))
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, self.constants)
        made: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                                        ir_version=8).SerializeToString()  # fmt: skip
        return made


def wanted_of(file: bytes, tokens: list[int]) -> Array:
    """onnxruntime's scores behind each token, with a cache that grows."""
    session = precise_session(file)
    names = [each.name for each in session.get_outputs()]
    past = {f"past_key_values.0.{what}": np.zeros((1, SHARED, 0, DEPTH), np.float32) for what in ("key", "value")}
    rows = []
    for place, token in enumerate(tokens):
        given = {"input_ids": np.array([[token]]), "attention_mask": np.ones((1, place + 1), np.int64),
                 "position_ids": np.array([[place]])}  # fmt: skip
        made = dict(zip(names, session.run(None, given | past), strict=True))
        past = {name: made[name.replace("past_key_values", "present")] for name in past}
        rows.append(made["logits"].reshape(-1))
    return np.array(rows)


def loaded(file: bytes, length: int) -> LoadedModule:
    made = weft.load(weft.compile(file, target="cpu", shapes=session_shapes(read(file).inputs({}), POSITIONS, length)))
    assert isinstance(made, LoadedModule)
    return made


@pytest.mark.parametrize(
    "name", [name if name == "gemma2" else pytest.param(name, marks=pytest.mark.long) for name in KINDS]
)
def test_scores_of_a_kind_of_decoder(name: str) -> None:
    """Token by token; and a prompt in pieces of four, the second one with padding."""
    file = _Decoder(KINDS[name]).file()
    tokens = np.random.default_rng(1).integers(0, VOCABULARY, POSITIONS).tolist()
    wanted = wanted_of(file, tokens)
    step = loaded(file, 1)
    session = step.session()
    for place, token in enumerate(tokens):
        np.testing.assert_allclose(session.step(token), wanted[place], rtol=0, atol=2e-5, err_msg=f"token {place}")
    if name != "gemma2":
        wide = step.session(prefill=loaded(file, 4))
        np.testing.assert_allclose(wide.prefill(tokens), wanted[-1], rtol=0, atol=2e-5)
