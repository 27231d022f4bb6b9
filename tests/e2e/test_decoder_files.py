"""Decoders as the tools of others write them, in sessions: the scores are onnxruntime's, whatever the pieces."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import weft
from onnx import TensorProto, helper, numpy_helper
from weft.cli import app
from weft.cli.errors import run
from weft.cli.output import err
from weft.compiler.frontends import read
from weft.runtime.module import LoadedModule
from weft.runtime.session_sizes import session_shapes

from examples.precise import precise_session

Array = npt.NDArray[Any]

WIDTH, HEADS, SHARED, HIDDEN, VOCABULARY, POSITIONS, BLOCK = 64, 4, 2, 64, 24, 12, 32
DEPTH = WIDTH // HEADS


class _File:
    """Nodes and constants of an ONNX file."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.random = np.random.default_rng(5)

    def constant(self, name: str, value: Array) -> str:
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def node(self, op: str, inputs: list[str], outputs: list[str], domain: str = "", **attrs: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, outputs, name=outputs[0], domain=domain, **attrs))
        return outputs[0]

    def product(self, name: str, x: str, depth: int, outputs: int) -> str:
        """By weights of 4 bits."""
        shape = outputs, depth // BLOCK
        codes = self.random.integers(0, 256, (*shape, BLOCK // 2)).astype(np.uint8)
        scales = (self.random.uniform(0.5, 1.5, shape) * depth**-0.5 / 4.6).astype(np.float32)
        operands = [x, self.constant(f"{name}.codes", codes), self.constant(f"{name}.scales", scales)]
        return self.node("MatMulNBits", operands, [name], "com.microsoft", K=depth, N=outputs, bits=4, block_size=BLOCK)

    def gains(self, name: str) -> str:
        return self.constant(name, self.random.uniform(0.5, 1.5, WIDTH).astype(np.float32))


def genai_file(*, packed: bool, layers: int = 2) -> bytes:
    """As onnxruntime-genai's builder writes a decoder of Llama's form: weights of 4 bits, norms with their residual,
    and a ``GroupQueryAttention`` that counts positions by the mask and writes them at their place in the cache."""
    file = _File()
    mask = helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch_size", "total_length"])
    tokens = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch_size", "length"])
    inputs, outputs = [tokens, mask], [_floats("logits", "batch_size", "length", VOCABULARY)]
    file.constant("one", np.array([1]))
    file.constant("last", np.array(1))
    file.node("ReduceSum", ["attention_mask", "one"], ["written"])
    file.node("Sub", ["written", "one"], ["behind"])
    file.node("Cast", ["behind"], ["seqlens_k"], to=TensorProto.INT32)
    file.node("Shape", ["attention_mask"], ["mask_shape"])
    file.node("Gather", ["mask_shape", "last"], ["mask_length"], axis=0)
    file.node("Cast", ["mask_length"], ["total"], to=TensorProto.INT32)
    angles = np.arange(2 * POSITIONS)[:, None] * 10000.0 ** (-np.arange(0, DEPTH, 2) / DEPTH)
    file.constant("cosine", np.cos(angles).astype(np.float32))
    file.constant("sine", np.sin(angles).astype(np.float32))
    file.constant("table", file.random.normal(size=(VOCABULARY, WIDTH)).astype(np.float32))
    residual = file.node("Gather", ["table", "input_ids"], ["embedded"])
    rows = file.node("SimplifiedLayerNormalization", [residual, file.gains("first")], ["rows"], axis=-1, epsilon=1e-5)
    for layer in range(layers):
        name = f"layer{layer}"
        past, present = ([f"{where}.{layer}.{what}" for what in ("key", "value")]
                         for where in ("past_key_values", "present"))  # fmt: skip
        inputs += [_floats(each, "batch_size", SHARED, "past_length", DEPTH) for each in past]
        outputs += [_floats(each, "batch_size", SHARED, "total_length", DEPTH) for each in present]
        if packed:
            queries = [file.product(f"{name}.all", rows, WIDTH, WIDTH + 2 * SHARED * DEPTH), "", ""]
        else:
            sizes = {"query": WIDTH, "key": SHARED * DEPTH, "value": SHARED * DEPTH}
            queries = [file.product(f"{name}.{what}", rows, WIDTH, size) for what, size in sizes.items()]
        attended = file.node(
            "GroupQueryAttention", [*queries, *past, "seqlens_k", "total", "cosine", "sine"],
            [f"{name}.attended", *present], "com.microsoft", num_heads=HEADS, kv_num_heads=SHARED, do_rotary=1,
        )  # fmt: skip
        out = file.product(f"{name}.out", attended, WIDTH, WIDTH)
        rows = _joined(file, residual, out, f"{name}.second")
        gate, up = (file.product(f"{name}.{what}", rows, WIDTH, HIDDEN) for what in ("gate", "up"))
        share = file.node("Sigmoid", [gate], [f"{name}.share"])
        gated = file.node("Mul", [file.node("Mul", [gate, share], [f"{name}.silu"]), up], [f"{name}.gated"])
        down = file.product(f"{name}.down", gated, HIDDEN, WIDTH)
        residual = f"{name}.second.residual"
        rows = _joined(file, residual, down, f"{name}.next")
        residual = f"{name}.next.residual"
    file.product("logits", rows, WIDTH, VOCABULARY)
    graph = helper.make_graph(file.nodes, "decoder", inputs, outputs, file.constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    made: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return made


def _floats(name: str, *shape: int | str) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))


def _joined(file: _File, residual: str, x: str, name: str) -> str:
    operands = [residual, x, file.gains(f"{name}.gains")]
    return file.node("SkipSimplifiedLayerNormalization", operands, [name, "", "", f"{name}.residual"], "com.microsoft",
                     epsilon=1e-5)  # fmt: skip


def wanted_of(file: bytes, tokens: list[int]) -> Array:
    """onnxruntime's scores behind each token, with caches that grow as it gives them."""
    session = precise_session(file)
    past = {each.name: np.zeros((1, SHARED, 0, DEPTH), np.float32)
            for each in session.get_inputs() if each.name.startswith("past")}  # fmt: skip
    names = [each.name for each in session.get_outputs()]
    rows = []
    for place, token in enumerate(tokens):
        given = {"input_ids": np.array([[token]]), "attention_mask": np.ones((1, place + 1), np.int64)}
        made = dict(zip(names, session.run(None, given | past), strict=True))
        past = {name: made[name.replace("past_key_values", "present")] for name in past}
        rows.append(made["logits"].reshape(-1))
    return np.array(rows)


@cache
def decoder(packed: bool, length: int = 1) -> LoadedModule:
    file = genai_file(packed=packed)
    shapes = session_shapes(read(file).inputs({}), POSITIONS, length)
    return weft.load(weft.compile(file, target="cpu", shapes=shapes))


@pytest.mark.parametrize("packed", [False, True], ids=["apart", "packed"])
@pytest.mark.parametrize("wide", [None, 4, 5], ids=str)
@pytest.mark.parametrize("pieces", [(1,) * 12, (6, 1, 5), (9, 3), (12,)], ids=str)
def test_a_file_of_onnxruntime_genai(packed: bool, wide: int | None, pieces: tuple[int, ...]) -> None:
    """Its cache holds new positions at their place, not behind the room that it has."""
    tokens = np.random.default_rng(1).integers(0, VOCABULARY, POSITIONS).tolist()
    wanted = wanted_of(genai_file(packed=packed), tokens)
    session = decoder(packed).session(prefill=decoder(packed, wide) if wide else None)
    for turn in range(2):
        for count in pieces:
            found = session.prefill(tokens[session.position : session.position + count])
            np.testing.assert_allclose(found, wanted[session.position - 1], rtol=0, atol=2e-5, err_msg=f"turn {turn}")
        session.rewind()


def test_a_wide_model_of_it_steps_alone_to_the_end_of_its_room() -> None:
    """What pads a piece is written behind it, also behind the room."""
    tokens = np.random.default_rng(1).integers(0, VOCABULARY, POSITIONS).tolist()
    wanted = wanted_of(genai_file(packed=True), tokens)
    session = decoder(True, 5).session()
    for place, token in enumerate(tokens):
        np.testing.assert_allclose(session.step(token), wanted[place], rtol=0, atol=2e-5, err_msg=f"token {place}")


def test_generate_says_that_the_core_has_nothing_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its weights are integers, but what they meet is not."""
    (tmp_path / "decoder.onnx").write_bytes(genai_file(packed=True, layers=1))
    words = ["generate", str(tmp_path / "decoder.onnx"), "-p", "\x01\x02", "-n", "2", "--positions", "6"]
    texts = []
    for options, told in ((["--config", "tiny"], True), (["--target", "cpu"], False)):
        assert run(app, [*words, *options], err) == 0
        shown = capsys.readouterr()
        texts.append(shown.out)
        assert ("nothing of the model runs on the core" in " ".join(shown.err.split())) == told
    assert texts[0] == texts[1]
