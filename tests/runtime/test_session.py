"""Sessions: a sequence given in any pieces has the scores of the whole one, and what goes wrong leaves no trace."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import weft
from weft.compiler.graph import Array, Attrs, Constant, Expr, Function, Module, TensorType, Tuple, Var, call, evaluate
from weft.runtime.errors import CoreFaultError, DeviceError, SessionError
from weft.runtime.module import LoadedModule
from weft.sim.result import RunResult

from examples.story.network import Size, cached_module, training_module

SIZE = Size(width=16, heads=2, layers=2, hidden=24, positions=12, tokens=20)


@cache
def parameters() -> dict[str, Array]:
    return weft.train.initialised(training_module(SIZE, {}, 1, 1)[1], seed=3)


@cache
def decoder(length: int = 1) -> LoadedModule:
    return weft.load(weft.compile(cached_module(SIZE, parameters(), length), target="cpu"))


@cache
def text() -> tuple[list[int], Array]:
    """Tokens, and the scores behind each of them by the model without a cache."""
    tokens = np.random.default_rng(0).integers(0, SIZE.tokens, SIZE.positions)
    whole, _ = training_module(SIZE, parameters(), 1, SIZE.positions)
    return tokens.tolist(), evaluate(whole, {"input_ids": tokens[None]})["logits"]


def close(found: Array, wanted: Array) -> None:
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("pieces", [(1,) * 12, (12,), (5, 7), (1, 4, 1, 6), (3, 8, 1)], ids=str)
@pytest.mark.parametrize("wide", [None, 3, 4], ids=str)
def test_any_pieces_give_the_scores_of_the_whole_text(pieces: tuple[int, ...], wide: int | None) -> None:
    tokens, wanted = text()
    session = decoder().session(prefill=decoder(wide) if wide else None)
    for count in pieces:
        found = session.prefill(tokens[session.position : session.position + count])
        close(found, wanted[session.position - 1])
    assert session.position == session.positions == SIZE.positions


def test_a_wide_model_steps_too() -> None:
    """Pieces that do not fill it are padded, behind the end of the cache as well."""
    tokens, wanted = text()
    session = decoder(5).session()
    for place, token in enumerate(tokens):
        close(session.step(token), wanted[place])


def test_sessions_of_one_module_are_independent() -> None:
    tokens, wanted = text()
    one, other = decoder().session(), decoder().session()
    for place in range(6):
        close(one.step(tokens[place]), wanted[place])
        other.step(tokens[-1])
    alone = decoder().session()
    np.testing.assert_array_equal(other.prefill(tokens[:3]), alone.prefill([tokens[-1]] * 6 + tokens[:3]))


def test_sessions_in_threads() -> None:
    tokens, wanted = text()
    found: dict[int, list[Array]] = {number: [] for number in range(4)}

    def run(number: int) -> None:
        session = decoder().session()
        found[number] = [session.step(token) for token in tokens]

    threads = [threading.Thread(target=run, args=(number,)) for number in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for scores in found.values():
        close(np.array(scores), wanted)


def test_a_session_goes_back_and_on() -> None:
    tokens, wanted = text()
    session = decoder().session()
    session.prefill([*tokens[:4], 1, 2, 3])
    session.rewind(4)
    close(session.step(tokens[4]), wanted[4])
    session.rewind()
    close(session.prefill(tokens[:2]), wanted[1])
    with pytest.raises(SessionError, match="position 3 was not reached: the session is at 2"):
        session.rewind(3)


def test_a_cache_goes_to_another_session() -> None:
    tokens, wanted = text()
    one, other = decoder().session(), decoder().session()
    one.prefill(tokens[:5])
    kept = one.cache()
    one.prefill([1, 2, 3])
    for session in (one, other):
        session.restore(kept)
        close(session.step(tokens[5]), wanted[5])
    for session in (one, other):
        session.restore(kept)
    other.step(tokens[5])
    one.step(7)  # in memory of its own
    close(other.step(tokens[6]), wanted[6])


def test_a_cache_of_another_model_is_refused() -> None:
    changed = {**parameters(), "head": parameters()["head"] * np.float32(2)}
    foreign = weft.load(weft.compile(cached_module(SIZE, changed), target="cpu")).session()
    foreign.prefill([1, 2])
    session, (tokens, wanted) = decoder().session(), text()
    session.step(tokens[0])
    with pytest.raises(SessionError, match="the cache is of another model"):
        session.restore(foreign.cache())
    close(session.step(tokens[1]), wanted[1])


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (range(12), "12 tokens do not fit: the session is at position 1 of 12"),
        ((), "at least one"),
        ((1, 20), "token 20 is none of the model's 20"),
        ((-1,), "token -1 is none"),
        ((0.5,), "must be whole numbers"),
        ("12", "must be whole numbers"),
        (7, "must be whole numbers"),
    ],
    ids=str,
)
def test_what_is_no_token_is_refused_and_leaves_no_trace(tokens: object, message: str) -> None:
    known, wanted = text()
    session = decoder().session()
    session.step(known[0])
    with pytest.raises(SessionError, match=message):
        session.prefill(tokens)  # type: ignore[arg-type]
    close(session.step(known[1]), wanted[1])


def test_an_error_in_the_middle_of_a_prompt_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    known, wanted = text()
    module = weft.load(decoder().model)
    session = module.session()
    session.prefill(known[:2])
    run, left = module.run_counted, 3

    def failing(inputs: dict[str, Array], kept: object = None) -> tuple[dict[str, Array], int | None]:
        nonlocal left
        left -= 1
        if not left:
            raise DeviceError("the core stopped")
        return run(inputs, kept)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "run_counted", failing)
    with pytest.raises(DeviceError, match="stopped"):
        session.prefill([7] * 6)
    assert session.position == 2
    close(session.prefill(known[2:4]), wanted[3])


def test_closed_sessions_and_modules_say_so() -> None:
    module = weft.load(decoder().model)
    with module.session() as session:
        session.step(1)
    for use in (lambda: session.step(1), session.cache, session.rewind):
        with pytest.raises(SessionError, match="the session is closed"):
            use()
    other = module.session()
    module.close()
    with pytest.raises(DeviceError, match="the module is closed"):
        other.step(1)


def test_a_closed_module_opens_no_session() -> None:
    one, wide = weft.load(decoder().model), weft.load(decoder(4).model)
    wide.close()
    with pytest.raises(DeviceError, match="the module is closed"):
        one.session(prefill=wide)
    one.close()
    with pytest.raises(DeviceError, match="the module is closed"):
        one.session()


def test_fewer_positions_than_there_is_room_for() -> None:
    session = decoder().session(positions=3)
    session.prefill([1, 2, 3])
    with pytest.raises(SessionError, match="1 tokens do not fit: the session is at position 3 of 3"):
        session.step(4)
    for positions in (0, 13):
        with pytest.raises(SessionError, match=f"positions is {positions}, but must be 1 to 12"):
            decoder().session(positions=positions)


@pytest.mark.parametrize("number", [1.5, "a", True, None, [1]], ids=str)
def test_what_is_no_whole_number_is_no_position(number: Any) -> None:
    session = decoder().session()
    session.prefill([1, 2])
    with pytest.raises(SessionError, match=r"position is .*, but must be a whole number"):
        session.rewind(number)
    assert session.position == 2
    session.rewind(np.int64(1))  # type: ignore[arg-type]
    assert type(session.position) is int
    if number is not None:
        with pytest.raises(SessionError, match=r"positions is .*, but must be 1 to 12"):
            decoder().session(positions=number)


def test_what_is_no_module_or_no_pair_of_states_is_refused() -> None:
    given: Any = "x"
    with pytest.raises(SessionError, match="prefill is 'x', but must be a module that takes several tokens"):
        decoder().session(prefill=given)
    with pytest.raises(SessionError, match=r"states is \['x'\], but must be \{OUTPUT: INPUT\}"):
        decoder().session(states=[given])  # type: ignore[arg-type]


# Other forms of models


def module_of(params: list[Var], results: dict[str, Expr]) -> LoadedModule:
    attrs = Attrs({"name": "main", "outputs": tuple(results)})
    module = Module(Function(tuple(params), Tuple(tuple(results.values())), attrs))
    return weft.load(weft.compile(module, target="cpu"))


def number(value: float) -> Constant:
    return Constant(np.array(value, np.float32))


def embedded(tokens: Var, width: int) -> Expr:
    table = np.random.default_rng(0).normal(size=(8, width)).astype(np.float32)
    return call("gather", Constant(table), tokens, axis=0)


def recurrent() -> LoadedModule:
    """A state that a run replaces as a whole: 0.5 * state + embedding."""
    tokens, state = Var("token", TensorType((1,), "int64")), Var("state_in", TensorType((1, 8), "float32"))
    after = call("nn.add", call("nn.multiply", state, number(0.5)), embedded(tokens, 8))
    return module_of([tokens, state], {"scores": call("nn.multiply", after, number(2)), "state_out": after})


def test_states_that_are_replaced_as_a_whole_have_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    module = recurrent()
    session = module.session()
    assert session.positions is None
    table = embedded_table()
    state = np.zeros(8)
    for token in (3, 1, 4, 1, 5):
        state = 0.5 * state + table[token]
        close(session.step(token)[:8], 2 * state)
    kept = session.cache()
    run = module.run_counted
    calls = 0

    def failing(inputs: dict[str, Array], kept: object = None) -> tuple[dict[str, Array], int | None]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise DeviceError("the core stopped")
        return run(inputs, kept)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "run_counted", failing)
    with pytest.raises(DeviceError):
        session.prefill([2, 2])
    close(session.step(6), 2 * (0.5 * state + table[6]))
    with pytest.raises(SessionError, match="cannot be rewound"):
        session.rewind(2)
    session.restore(kept)
    close(session.step(6), 2 * (0.5 * state + table[6]))
    session.rewind()
    close(session.step(6), 2 * table[6])


def embedded_table() -> Array:
    table: Array = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    return table


def grown(dtype: str) -> LoadedModule:
    """As exporters write caches: the output is the input with new positions behind it, and a mask says which count.
    Scores are the sum of the embeddings that are looked at."""
    tokens, mask = Var("input_ids", TensorType((1, 1), "int64")), Var("attention_mask", TensorType((1, 5), dtype))
    past = Var("past_key_values.0.key", TensorType((1, 4, 8), "float32"))
    present = call("concat", past, embedded(tokens, 8), axis=1)
    shares = call("reshape", call("nn.cast", mask, to="float32"), shape=(1, 5, 1))
    logits = call("nn.reduce_sum", call("nn.multiply", present, shares), axes=(1,), keepdims=False)
    return module_of([tokens, mask, past], {"logits": logits, "present.0.key": present})


@pytest.mark.parametrize("dtype", ["int64", "bool"])
def test_caches_that_grow_and_their_mask(dtype: str) -> None:
    session = grown(dtype).session()
    table = embedded_table()
    for turn in range(2):
        seen = np.zeros(8)
        for token in (3, 1, 4, 1)[turn:]:
            seen = seen + table[token]
            close(session.step(token), seen)
        session.rewind()


def test_a_cache_with_values_behind_and_at_their_place_is_refused() -> None:
    """Which of them are the run's cannot be known; the session goes on as if it had not run."""
    tokens, places = Var("input_ids", TensorType((1, 1), "int64")), Var("position_ids", TensorType((1,), "int64"))
    past = Var("past_key_values.0.key", TensorType((1, 4, 8), "float32"))
    first = call("reshape", call("nn.equal", Constant(np.arange(4)), places), shape=(1, 4, 1))
    filled = call("nn.where", first, Constant(np.ones((1, 4, 8), np.float32)), past)
    present = call("concat", filled, embedded(tokens, 8), axis=1)
    logits = call("nn.reduce_sum", present, axes=(1,), keepdims=False)
    session = module_of([tokens, places, past], {"logits": logits, "present.0.key": present}).session()
    with pytest.raises(SessionError, match=r"'present.0.key' has values behind the 4 .* at position 0, which"):
        session.step(3)
    assert session.position == 0


@pytest.mark.parametrize(
    ("inputs", "outputs", "options", "message"),
    [
        ({"x": ((1, 4), "float32")}, {"logits": ((1, 8), "float32")}, {}, "no input of tokens: 'x' is float32"),
        ({"token": ((1,), "int64")}, {"a": ((8,), "float32"), "b": ((8,), "float32")}, {}, "no output of scores"),
        ({"token": ((1,), "int64")}, {"y": ((8,), "int64")}, {}, "no output of scores: 'y' is int64"),
        ({"token": ((1,), "int64"), "z": ((1,), "int64")}, {"logits": ((8,), "float32")}, {}, "input .z. that is no"),
        ({"token": ((2,), "int64")}, {"logits": ((3, 8), "float32")}, {}, "3 rows of scores, but a run 2 tokens"),
        ({"token": ((2,), "int64")}, {"logits": ((1, 8), "float32")}, {}, "takes 2 tokens in each run"),
        ({"token": ((1,), "int64")}, {"logits": ((8,), "float32")}, {"states": {"logits": "no"}}, "no input 'no'"),
        ({"token": ((1,), "int64")}, {"logits": ((8,), "float32")}, {"tokens": "no"}, "no input 'no' for tokens"),
        (
            {"token": ((1,), "int64"), "past": ((4, 8), "float32")},
            {"logits": ((8,), "float32"), "present": ((3, 8), "float32")}, {}, "or have 1 or 5 positions in one axis",
        ),
        (
            {"token": ((1,), "int64"), "past": ((4, 8), "float32"), "past_b": ((6, 8), "float32")},
            {"logits": ((8,), "float32"), "present": ((1, 8), "float32"), "present_b": ((1, 8), "float32")}, {},
            r"different numbers of positions: \[4, 6\]",
        ),
        (
            {"token": ((1,), "int64"), "past": ((4, 8), "float32"), "mask": ((1, 4), "int64")},
            {"logits": ((8,), "float32"), "present": ((1, 8), "float32")}, {}, "'mask' is no mask of the cache's 4",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_models_that_cannot_continue_a_sequence_are_told_why(
    inputs: dict[str, tuple[tuple[int, ...], str]], outputs: dict[str, tuple[tuple[int, ...], str]],
    options: dict[str, object], message: str,
) -> None:  # fmt: skip
    params = [Var(name, TensorType(shape, dtype)) for name, (shape, dtype) in inputs.items()]
    results: dict[str, Expr] = {
        name: Constant(np.zeros(shape, np.dtype(dtype))) for name, (shape, dtype) in outputs.items()
    }
    with pytest.raises(SessionError, match=message):
        module_of(params, results).session(**options)  # type: ignore[arg-type]


def test_prefill_of_another_model_is_refused() -> None:
    larger = replace(SIZE, positions=16)
    other = weft.load(weft.compile(cached_module(larger, parameters(), 4), target="cpu"))
    with pytest.raises(SessionError, match="the states of 'main' are others"):
        decoder().session(prefill=other)


# On the core


def quantised_module() -> Module:
    """A decoder of one layer in 8 bits, by what it saw of a text."""
    size = replace(SIZE, layers=1, positions=6)
    module = cached_module(size, parameters())
    plan = weft.quantise.plan(module)
    recorded = weft.load(weft.compile(module, target="cpu"))
    seen: list[dict[str, Array]] = []
    run = recorded.run_counted

    def recording(inputs: dict[str, Array], kept: object = None) -> tuple[dict[str, Array], int | None]:
        seen.append({name: value.copy() for name, value in inputs.items()})
        return run(inputs)

    recorded.run_counted = recording  # type: ignore[method-assign, assignment]
    recorded.session().prefill(text()[0][:6])
    return weft.quantise.quantised(plan, weft.quantise.calibrate(plan, seen))


def test_the_core_continues_a_text_as_a_processor_does(monkeypatch: pytest.MonkeyPatch) -> None:
    module = quantised_module()
    wanted = weft.load(weft.compile(module, target="cpu")).session()
    core = weft.load(weft.compile(module, "tiny"), "fsim")
    found = core.session()
    tokens = text()[0]
    for token in tokens[:2]:
        np.testing.assert_array_equal(found.step(token), wanted.step(token))
    one = found.cycles
    np.testing.assert_array_equal(found.prefill(tokens[2:4]), wanted.prefill(tokens[2:4]))
    assert one
    assert found.cycles == 2 * one
    launch, launches = core.device.launch, 0

    def failing(offset: int, count: int, *, trace: bool = False) -> RunResult:
        nonlocal launches
        launches += 1
        if launches == 3:
            raise CoreFaultError("a fault", RunResult(None, "a fault", 0, 0))  # type: ignore[arg-type]
        return launch(offset, count, trace=trace)

    monkeypatch.setattr(core.device, "launch", failing)
    with pytest.raises(CoreFaultError):
        found.step(1)
    np.testing.assert_array_equal(found.step(tokens[4]), wanted.step(tokens[4]))
