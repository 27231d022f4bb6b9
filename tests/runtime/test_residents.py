"""Keys and values stay in the core's memory between the runs of a session, and nothing else changes by that."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Array, Module
from weft.compiler.model import CompiledModel, HostStep, Resident
from weft.runtime.artifact import from_bytes, to_bytes
from weft.runtime.artifact_check import check_model
from weft.runtime.errors import ArtifactError, CoreFaultError, DeviceError, SessionError
from weft.runtime.module import LoadedModule
from weft.runtime.session import Session
from weft.sim.result import RunResult

from examples.story.network import Size, cached_module, training_module

SIZE = Size(width=16, heads=2, layers=1, hidden=24, positions=20, tokens=20)
TOKENS = np.random.default_rng(0).integers(0, SIZE.tokens, 40).tolist()


@cache
def decoder(length: int = 1) -> Module:
    """In 8 bits, with an int8 cache."""
    parameters = weft.train.initialised(training_module(SIZE, {}, 1, 1)[1], seed=3)
    module = cached_module(SIZE, parameters, length)
    plan = weft.quantise.plan(module)
    random = np.random.default_rng(1)
    seen = [
        {param.name: np.zeros(param.shape, np.int64) + number if param.dtype == "int64"
         else random.normal(0, 1, param.shape).astype(np.float32) for param in module.main.params}
        for number in range(4)
    ]  # fmt: skip
    ranges = weft.quantise.calibrate(plan, seen, symmetric_products=True)
    return weft.quantise.eight_bit_states(weft.quantise.quantised(plan, ranges))


@cache
def compiled(core: str = "tiny", length: int = 1) -> CompiledModel:
    model = weft.compile(decoder(length), core)
    assert isinstance(model, CompiledModel)
    return model


def loaded(core: str = "tiny", length: int = 1) -> LoadedModule:
    return weft.load(compiled(core, length), weft.FsimDevice(compiled(core).config, timing=False))


def without(module: LoadedModule) -> LoadedModule:
    """The same, but every state is put together by the host in every run."""
    module.residents.takes = lambda name, kept: False  # type: ignore[method-assign]
    return module


def residents(model: CompiledModel) -> list[Resident]:
    return [step.resident for step in model.steps if isinstance(step, HostStep) and step.resident is not None]


def states_bytes(model: CompiledModel) -> int:
    return sum(model.on_core.slots[step.outputs[0]].nbytes for step in model.steps
               if isinstance(step, HostStep) and step.resident is not None)  # fmt: skip


@pytest.mark.parametrize("core", ["tiny", "pynq"])
def test_keys_and_values_are_found_each_element_once(core: str) -> None:
    found = residents(compiled(core))
    assert sorted(each.state for each in found) == ["past_key_values.0.key", "past_key_values.0.value"]
    for each in found:
        assert [len(table) for table in each.places] == [1, SIZE.heads, SIZE.positions + 1, SIZE.depth]
        total: Array = np.zeros((), np.int64)
        for table in each.places:
            total = np.add.outer(total, np.array(table))
        assert len(np.unique(total)) == total.size


@given(st.lists(st.sampled_from(["step", "other", "rewind", "restore", "keep", "run", "piece"]), max_size=9))
@settings(max_examples=6, deadline=None)
def test_scores_are_those_of_a_host_that_writes_all(actions: list[str]) -> None:
    """Whatever two sessions and plain runs do in turn."""
    modules = loaded(), without(loaded())
    pairs = [(modules[0].session(), modules[1].session()) for _ in range(2)]
    kept: list[Any] = [session.cache() for session in pairs[0]]

    def step(pair: tuple[Session, Session], *tokens: int) -> None:
        np.testing.assert_array_equal(*(session.prefill(tokens) for session in pair))

    for number, action in enumerate(["step", *actions, "step", "other"]):
        token = TOKENS[number]
        match action:
            case "step" | "other":
                step(pairs[action == "other"], token)
            case "piece":
                step(pairs[0], token, TOKENS[number + 1])
            case "rewind":
                for session in pairs[0]:
                    session.rewind(session.position // 2)
            case "keep":
                kept = [session.cache() for session in pairs[0]]
            case "restore":
                for session, cache_ in zip(pairs[0], kept, strict=True):
                    session.restore(cache_)
            case "run":
                shapes = {each.name: (each.shape, each.dtype) for each in modules[0].model.inputs}
                modules[0].run({name: np.ones(shape, dtype) for name, (shape, dtype) in shapes.items()})


def test_a_token_more_writes_its_rows_and_not_the_cache() -> None:
    module = loaded("pynq")
    session = module.session()
    session.step(TOKENS[0])
    whole = module.residents.written
    assert whole == states_bytes(module.model)
    session.step(TOKENS[1])
    first = module.residents.written - whole
    assert 0 < first < whole
    assert residents(module.model)


def test_prompts_in_pieces_of_several_tokens() -> None:
    pairs = [module.session(prefill=wide) for module, wide in (
        (loaded(), loaded(length=3)), (without(loaded()), without(loaded(length=3))))]  # fmt: skip
    for pieces in (TOKENS[:7], TOKENS[7:8], TOKENS[8:12]):
        np.testing.assert_array_equal(*(session.prefill(pieces) for session in pairs))


def test_after_a_fault_or_a_lost_write_all_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    module = loaded()
    session, wanted = module.session(), without(loaded()).session()
    for token in TOKENS[:3]:
        np.testing.assert_array_equal(session.step(token), wanted.step(token))

    def fault(offset: int, count: int, *, trace: bool = False) -> RunResult:
        module.device.write(0, np.ones(module.model.on_core.window_bytes, np.uint8))  # what a fault may leave
        raise CoreFaultError("a fault", RunResult(None, "a fault", 0, 0))  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(module.device, "launch", fault)
        with pytest.raises(CoreFaultError):
            session.step(9)
    np.testing.assert_array_equal(session.step(TOKENS[3]), wanted.step(TOKENS[3]))
    write = module.device.write
    slots = [module.model.on_core.slots[step.outputs[0]] for step in module.model.steps
             if isinstance(step, HostStep) and step.resident is not None]  # fmt: skip

    def lost(offset: int, data: Array) -> None:
        if any(slot.offset <= offset < slot.offset + slot.nbytes for slot in slots):
            raise DeviceError("the board is gone")
        write(offset, data)

    with monkeypatch.context() as patch:
        patch.setattr(module.device, "write", lost)
        with pytest.raises(DeviceError, match="gone"):
            session.step(9)
    np.testing.assert_array_equal(session.step(TOKENS[4]), wanted.step(TOKENS[4]))


def test_states_stay_apart_in_the_window() -> None:
    """Nothing that the core or the host writes meanwhile lies on them."""
    slots = compiled().on_core.slots
    names = [step.outputs[0] for step in compiled().steps if isinstance(step, HostStep) and step.resident is not None]
    for name in names:
        own = slots[name]
        for other in slots.values():
            if other.name != name:
                assert other.offset + other.nbytes <= own.offset or own.offset + own.nbytes <= other.offset


def test_a_file_has_them_too() -> None:
    assert residents(from_bytes(to_bytes(compiled()))) == residents(compiled())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda each: replace(each, state="x"), "state 'x' is no input"),
        (lambda each: replace(each, rows="nothing"), "'nothing' of its state is none of its inputs"),
        (lambda each: replace(each, places=each.places[1:]), "the places of state"),
        (lambda each: replace(each, axis=1), "the places of state"),
        (lambda each: replace(each, places=((1 << 20,), *each.places[1:])), "ends outside of its slot"),
    ],
)
def test_a_file_whose_places_do_not_fit_is_refused(change: Any, message: str) -> None:
    steps = [replace(step, resident=change(step.resident)) if isinstance(step, HostStep) and step.resident else step
             for step in compiled().steps]  # fmt: skip
    with pytest.raises(ArtifactError, match=re.escape(message)):
        check_model(replace(compiled(), steps=tuple(steps)))


BAD = {
    "a cache of another model": (
        lambda session, other: session.restore(other.cache()),
        "the cache is of another model",
    ),
    "no cache": (lambda session, other: session.restore(other), "must be what Session.cache gave"),
    "a cache behind the bound": (
        lambda session, other: session.restore(replace(session.cache(), position=SIZE.positions + 1)),
        f"the cache is at position {SIZE.positions + 1} of {SIZE.positions}",
    ),
    "a prompt that is too long": (
        lambda session, other: session.prefill(TOKENS[: SIZE.positions]),
        f"{SIZE.positions} tokens do not fit: the session is at position 3 of {SIZE.positions}",
    ),
    "a position that was not reached": (lambda session, other: session.rewind(4), "position 4 was not reached"),
    "a position before the first": (lambda session, other: session.rewind(-1), "position -1 was not reached"),
    "a token that there is not": (lambda session, other: session.step(SIZE.tokens), "is none of the model's"),
    "no token": (lambda session, other: session.prefill([]), "must be whole numbers, at least one"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused_leaves_the_cache_unharmed(name: str) -> None:
    """The states on the host, those on the core, and the session, which goes on."""
    bad, message = BAD[name]
    module, alone = loaded(), loaded()
    session, wanted, other = module.session(), alone.session(), loaded("pynq").session()
    for token in TOKENS[:3]:
        np.testing.assert_array_equal(session.step(token), wanted.step(token))
    before, written = session.cache(), module.residents.written
    with pytest.raises(SessionError, match=re.escape(message)):
        bad(session, other)
    after = session.cache()
    assert (after.position, module.residents.written) == (before.position, written)
    for state, value in before.states.items():
        np.testing.assert_array_equal(after.states[state], value)
    np.testing.assert_array_equal(session.prefill(TOKENS[3:6]), wanted.prefill(TOKENS[3:6]))


def test_a_session_that_is_full_or_closed_says_so_and_the_others_go_on() -> None:
    module = loaded()
    full, other = module.session(), module.session()
    full.prefill(TOKENS[: SIZE.positions])
    with pytest.raises(SessionError, match="1 tokens do not fit: the session is at position 20 of 20"):
        full.step(1)
    full.close()
    with pytest.raises(SessionError, match="the session is closed; hint: open another one"):
        full.step(1)
    np.testing.assert_array_equal(other.prefill(TOKENS[:3]), loaded().session().prefill(TOKENS[:3]))
