"""What users hand in is checked where they hand it in: NumPy's integers become Python's, everything else that is no
number, no type or no node is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weft
from weft.compiler import graph as g
from weft.compiler import tensor as t
from weft.compiler.targets.accel.target import AccelOptions
from weft.compiler.targets.registry import find_target
from weft.compiler.targets.target import target_options
from weft.hw.config import TINY
from weft.quantise.insert import range_of
from weft.whole import truth, whole, whole_tuple

KINDS = [np.int8, np.uint8, np.int32, np.int64, np.uint64]
TYPE = g.TensorType((2, 3), "float32")
X = g.Var("x", TYPE)


@pytest.mark.parametrize("kind", KINDS)
def test_integers_of_numpy_are_whole(kind: type[np.integer[Any]]) -> None:
    for value in (kind(5), np.asarray(kind(5))):
        assert whole(value) == 5
        assert type(whole(value)) is int
    assert whole_tuple(np.array([2, 3], kind)) == (2, 3)
    assert whole_tuple([kind(2), 3]) == (2, 3)


@pytest.mark.parametrize("value", [2.0, np.float32(2), "2", b"2", None, True, np.True_, [2], np.array([2, 3]), 2j])
def test_all_else_is_not(value: object) -> None:
    assert whole(value) is None
    assert whole_tuple((1, value)) is None


@pytest.mark.parametrize("value", ["23", b"23", 23, None, 2.5])
def test_what_holds_no_numbers_is_no_tuple(value: object) -> None:
    assert whole_tuple(value) is None


@pytest.mark.parametrize("value", [True, False])
def test_truth_values_of_numpy_are_as_good_as_pythons(value: bool) -> None:
    assert truth(value) is value
    assert truth(np.bool_(value)) is value


@pytest.mark.parametrize("value", ["no", "", 0, 1, None, np.int8(1), np.array([True]), [], np.str_("False")])
def test_all_else_is_no_truth_value(value: object) -> None:
    assert truth(value) is None


def scheduled(step: Callable[[t.Schedule, t.Var, t.Var], object]) -> object:
    """The trace of a schedule of two loops after a step, as JSON gives it back."""
    a = t.placeholder((8, 16), "int8", "a")
    schedule = t.create_schedule(t.compute((8, 16), lambda i, j: a[i, j] + 1, "b"), [a])
    i, j = schedule.get_loops("b")
    step(schedule, i, j)
    return json.loads(t.trace_to_json(schedule.trace))


def aligned(schedule: t.Schedule, axis: Any, factor: Any, offset: Any) -> None:
    schedule.cache_read("b", "a", "acc")
    schedule.storage_align("a_acc", axis, factor, offset)


class Opened:
    """A model that a front end has opened, such as weft.from_torch gives."""

    def inputs(self, shapes: object) -> tuple[()]:
        return ()

    def module(self) -> g.Module:
        return network(TYPE)


TAKERS: dict[str, Callable[[Any], object]] = {
    "TensorType": lambda n: g.TensorType((n, 3), "int8").shape,
    "TupleGet": lambda n: g.TupleGet(g.Tuple((X, X, X, X, X)), n).index,
    "attributes": lambda n: g.Attrs({"axis": n})["axis"],
    "placeholder": lambda n: t.placeholder((n, 3), "int8", "a").shape,
    "Buffer": lambda n: t.Buffer("a", (n, 3), "int8").shape,
    "reduce_axis": lambda n: t.reduce_axis(n, "k").extent,
    "compute": lambda n: t.compute((n,), lambda i: i, "b").shape,
    "split": lambda n: scheduled(lambda s, i, j: s.split(j, n)),
    "split into three": lambda n: scheduled(lambda s, i, j: s.split(j, factors=(None, n, 2))),
    "split_shifted": lambda n: scheduled(lambda s, i, j: s.split_shifted(j, n)),
    "tile": lambda n: scheduled(lambda s, i, j: s.tile([i, j], (n, n))),
    "annotate": lambda n: scheduled(lambda s, i, j: s.annotate(i, "count", n)),
    "factor of storage_align": lambda n: scheduled(lambda s, i, j: aligned(s, 0, n, 1)),
    "offset of storage_align": lambda n: scheduled(lambda s, i, j: aligned(s, 0, 8, n)),
    "CoreConfig": lambda n: weft.CoreConfig(token_depth=n).to_json(),
    "DramRate": lambda n: weft.DramRate(latency=n).latency,
    "threads": lambda n: target_options(find_target("cpu"), {"threads": n}).threads,
    "vthreads": lambda n: target_options(find_target("accel"), {"vthreads": n}).vthreads,
}


def plain(value: object) -> bool:
    """Whether all numbers in it are Python's."""
    return all(map(plain, value)) if isinstance(value, (tuple, list)) else not isinstance(value, np.generic)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("taker", TAKERS)
def test_an_integer_of_numpy_is_as_good_as_pythons(taker: str, kind: type[np.integer[Any]]) -> None:
    taken = TAKERS[taker](kind(4))
    assert taken == TAKERS[taker](4)
    assert plain(taken)


@pytest.mark.parametrize("value", [4.0, "4", None, True, [4]])
@pytest.mark.parametrize("taker", TAKERS)
def test_what_is_no_integer_is_refused_at_once(taker: str, value: object) -> None:
    if (taker, type(value)) in {("split", type(None)), ("annotate", str)} or taker == "attributes":
        return  # these are meant
    with pytest.raises(
        weft.WeftError, match=r"whole number|must be an integer|must be at least|give either|factors are"
    ):
        TAKERS[taker](value)


def network(type_: g.TensorType) -> g.Module:
    x = g.Var("x", type_)
    return g.Module(g.Function((x,), g.call("nn.tanh", x), g.Attrs({"name": "main"})))


@pytest.mark.parametrize("shape", [(np.int64(2), np.int64(3)), [2, 3], np.array([2, 3]), (np.uint8(2), 3)])
def test_a_model_with_such_a_shape_is_saved_loaded_and_run(shape: Any, tmp_path: Path) -> None:
    weft.save(weft.compile(network(g.TensorType(shape, "float32")), target="cpu"), tmp_path / "m.weft")
    (result,) = weft.load(tmp_path / "m.weft").run({"x": np.ones((2, 3), np.float32)}).values()
    np.testing.assert_allclose(result, np.tanh(np.ones((2, 3))), rtol=1e-6)


def test_types_of_numpy_are_types() -> None:
    for dtype in (np.dtype("float32"), np.float32, np.str_("float32")):
        assert g.TensorType((2, 3), dtype) == TYPE  # type: ignore[arg-type]
        assert type(g.TensorType((2, 3), dtype).dtype) is str  # type: ignore[arg-type]


def test_lists_become_tuples() -> None:
    assert hash(g.TupleType([TYPE])) == hash(g.TupleType((TYPE,)))  # type: ignore[arg-type]
    assert g.Tuple([X]).fields == (X,)  # type: ignore[arg-type]
    function = g.Function([X], X, {"name": "f"})  # type: ignore[arg-type]
    assert function.params == (X,)
    assert function.name == "f"


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "type of floats": (
        lambda: g.TensorType((2.0,), "int8"),
        r"shape of a tensor is \(2.0,\), but must be a tuple of whole",
    ),  # type: ignore[arg-type]
    "type of a number": (lambda: g.TensorType(3, "int8"), "shape of a tensor is 3, but"),  # type: ignore[arg-type]
    "open size": (lambda: g.TensorType((None, 3), "int8"), r"shape of a tensor is \(None, 3\), but"),  # type: ignore[arg-type]
    "no type": (lambda: g.TensorType((2,), 3), "the type of a tensor is 3, but must be a name"),  # type: ignore[arg-type]
    "unknown type": (lambda: g.TensorType((2,), "int9"), "'int9' is not an element type"),
    "tuple of no types": (lambda: g.TupleType((3,)), "number 0 is 3, but must be of class TensorType"),  # type: ignore[arg-type]
    "name": (lambda: g.Var(3, TYPE), "name of a parameter is 3, but must be a text"),  # type: ignore[arg-type]
    "text as a type": (
        lambda: g.Var("x", "float32[2]"),
        r"type of parameter 'x' is 'float32\[2\]', but must be a Tens",
    ),  # type: ignore[arg-type]
    "tuple of numbers": (lambda: g.Tuple((X, 3)), "number 1 is 3, but must be of class Expr"),  # type: ignore[arg-type]
    "field of a number": (lambda: g.TupleGet(3, 0), "a field is taken of 3, but"),  # type: ignore[arg-type]
    "body": (lambda: g.Function((X,), 3), "body of a function is 3, but must be a value of the graph"),  # type: ignore[arg-type]
    "parameters": (lambda: g.Function((3,), X), "parameters of a function: number 0 is 3"),  # type: ignore[arg-type]
    "attributes": (lambda: g.Function((X,), X, 3), "attributes are 3, but must be values by name"),  # type: ignore[arg-type]
    "attribute's name": (lambda: g.Attrs({3: 1, "a": 2}), "attributes are {3: 1, 'a': 2}, but"),  # type: ignore[dict-item]
    "module": (lambda: g.Module(X), "main function of a module is Var.* but must be a Function"),  # type: ignore[arg-type]
    "operand": (lambda: g.call("nn.tanh", 3), "operand 0 of nn.tanh is 3, but must be a value of the graph"),  # type: ignore[arg-type]
    "operands": (lambda: g.call("nn.tanh", [X]), r"operand 0 of nn.tanh is \[Var"),  # type: ignore[arg-type]
    "callee": (lambda: g.Call(3, (X,), g.Attrs(), TYPE), "what a call calls is 3, but"),  # type: ignore[arg-type]
    "tensor's name": (lambda: t.placeholder((3,), "int8", 3), "a tensor cannot be called 3"),  # type: ignore[arg-type]
    "core": (lambda: AccelOptions(3), "config is 3, but must be a CoreConfig or the name of one"),  # type: ignore[arg-type]
    "memory": (lambda: AccelOptions("tiny", 8), "dram is 8, but must be a DramRate or a text"),  # type: ignore[arg-type]
    "device's core": (lambda: weft.FsimDevice("tiny"), "device 'fsim': config is 'tiny', but must be a CoreConfig"),  # type: ignore[arg-type]
    "passes": (lambda: weft.compile(network(TYPE), target="cpu", passes={}), "passes is {}, but must be PassOptions"),  # type: ignore[arg-type]
    "progress": (
        lambda: weft.compile(network(TYPE), target="cpu", progress=3),
        "progress is 3, but must be a function",
    ),  # type: ignore[arg-type]
    "dump": (lambda: weft.compile(network(TYPE), target="cpu", dump=3), "dump is 3, but must be the path of a folder"),  # type: ignore[arg-type]
    "saved": (lambda: weft.save(3, "x"), "what is to be saved is 3, but must be a compiled model"),  # type: ignore[arg-type]
    "path": (lambda: weft.save(weft.compile(network(TYPE), target="cpu"), 3), "the path is 3, but must be a text"),  # type: ignore[arg-type]
    "device": (lambda: weft.load(weft.compile(network(TYPE), target="cpu"), device=3), "device is 3, but must be"),  # type: ignore[call-overload]
    "traced": (lambda: weft.write_trace(3, "x"), "module is 3, but must be a loaded model"),  # type: ignore[arg-type]
    "proved": (lambda: weft.certify(None), "model is None, but must be a compiled model or the path of an artifact"),  # type: ignore[arg-type]
    "core as target": (lambda: weft.compile(network(TYPE), target=TINY), "a core is given as config"),  # type: ignore[arg-type]
    "differentiated": (lambda: weft.grad(3), "3 is no module of the graph IR"),  # type: ignore[arg-type]
    "opened": (
        lambda: weft.grad(Opened()),
        "Opened is no module of the graph IR, but a model that has one; hint: give",
    ),  # type: ignore[arg-type]
    "loss": (lambda: weft.train.cross_entropy(Opened()), "give what its .module"),  # type: ignore[arg-type]
    "dropped out": (lambda: weft.train.dropout("x", {}), "'x' is no module of the graph IR"),  # type: ignore[arg-type]
    "mixed": (lambda: weft.train.mixed(Opened()), "give what its .module"),  # type: ignore[arg-type]
    "planned": (lambda: weft.quantise.plan(Opened()), "give what its .module"),  # type: ignore[arg-type]
    "states": (lambda: weft.quantise.eight_bit_states(3), "3 is no module of the graph IR"),  # type: ignore[arg-type]
    "exported": (lambda: weft.export_onnx(3), "3 is no module of the graph IR"),  # type: ignore[arg-type]
    "lifted": (lambda: weft.lift_constants(3), "3 is no module of the graph IR"),  # type: ignore[arg-type]
    "training": (lambda: weft.train.Training(None, {}, None), "None is no step of training; hint: weft.train.sgd"),  # type: ignore[arg-type]
    "bounded": (lambda: weft.train.within(network(TYPE), "1GiB"), "is no step of training"),  # type: ignore[arg-type]
    "replaced": (lambda: weft.train.replaced_in_place(3, None), "3 is no step of training"),  # type: ignore[arg-type]
    "parameters of a step": (
        lambda: weft.train.sgd(network(TYPE), "x"),
        "parameters is 'x', but must be a list of names",
    ),
    "momentum": (lambda: weft.train.sgd(network(TYPE), ["x"], momentum=None), "momentum is None, but must be a number"),  # type: ignore[arg-type]
    "decay": (lambda: weft.train.adamw(network(TYPE), ["x"], weight_decay="x"), "weight_decay is 'x', but must be a n"),  # type: ignore[arg-type]
    "betas": (lambda: weft.train.adam(network(TYPE), ["x"], betas=0.9), "betas is 0.9, but must be two numbers"),  # type: ignore[arg-type]
    "norm": (lambda: weft.train.sgd(network(TYPE), ["x"], clip_norm=True), "clip_norm is True, but must be a number"),
    "scaled": (lambda: weft.train.sgd(network(TYPE), ["x"], loss_scaling=8), "loss_scaling is 8, but must be a Loss"),  # type: ignore[arg-type]
    "scaling": (lambda: weft.train.LossScaling("8"), "initial is '8', but must be a number"),  # type: ignore[arg-type]
    "rule": (lambda: weft.train.step_of(network(TYPE), ["x"], 3), "rule is 3, but must be a function"),  # type: ignore[arg-type]
    "random values": (lambda: weft.train.he(3), "shape of random values is 3, but must be a tuple of whole"),  # type: ignore[arg-type]
    "their size": (lambda: weft.train.normal((2,), None), "size of random values is None, but must be a number"),  # type: ignore[arg-type]
    "their gain": (lambda: weft.train.glorot((2, 2), "x"), "gain is 'x', but must be a number"),  # type: ignore[arg-type]
    "values to start": (lambda: weft.train.initialised(3), "parameters is 3, but must be values by name"),  # type: ignore[arg-type]
    "seed": (lambda: weft.train.initialised({"a": weft.train.he((2, 2))}, seed=-1), "seed is -1, but must be a whole"),
    "rates": (lambda: weft.train.dropout(network(TYPE), 0.5), "rates is 0.5, but must be values by name"),  # type: ignore[arg-type]
    "deployed": (lambda: weft.quantise.deployed(None, {}), "None is no trainable model; hint: weft.quantise.trainable"),  # type: ignore[arg-type]
    "range": (lambda: weft.quantise.Range(None, 1.0), "the low end of a range is None, but must be a number"),  # type: ignore[arg-type]
    "group": (lambda: weft.quantise.best_group(None), "None is no plan"),  # type: ignore[arg-type]
    "range of a place": (lambda: range_of({"x": None}, "x"), "the range of 'x' is None, but must be a Range"),  # type: ignore[dict-item]
    "gradient's inputs": (
        lambda: weft.grad(network(TYPE), wrt=3),
        "what is differentiated is 3, but must",
    ),  # type: ignore[arg-type]
    "seeds": (lambda: weft.grad(network(TYPE), seed=3), "seed is 3, but must be values by name"),  # type: ignore[arg-type]
    "custom": (lambda: weft.grad(network(TYPE), seed=True, custom=3), "custom is 3, but must be a list of CustomG"),  # type: ignore[arg-type]
    "constants": (lambda: weft.lift_constants(network(TYPE), 3), "names is 3, but must be a list of names"),  # type: ignore[arg-type]
    "shapes": (lambda: weft.from_onnx(b"", 3), "shapes is 3, but must be values by name"),  # type: ignore[arg-type]
    "named core": (lambda: weft.named_config([]), r"unknown configuration \[\]"),  # type: ignore[arg-type]
    "named device": (lambda: weft.open_device(None, TINY), "a device is named None, but must have a text"),  # type: ignore[arg-type]
    "schedule": (lambda: weft.build(3), "the schedule is 3, but must be a Schedule or a PrimFunc"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_of_another_kind_is_refused_where_it_is_handed_in(what: str) -> None:
    make, text = REFUSED[what]
    with pytest.raises(weft.WeftError, match=text):
        make()


def test_a_core_that_there_is_not_is_told_before_the_model_is_read(tmp_path: Path) -> None:
    for config, text in (("pinq", "unknown configuration 'pinq'"), (str(tmp_path / "no.json"), "no.json")):
        with pytest.raises((weft.WeftError, OSError), match=text):
            weft.compile(tmp_path / "no.onnx", config)
    assert weft.NullDevice(TINY).config is TINY
