"""What is proved at once is what the checker lets pass step by step: random programs, whole and broken."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.targets.accel.check import Range, check_instructions
from weft.compiler.targets.accel.check_at_once import proved
from weft.compiler.targets.errors import ProgramError
from weft.hw.config import PYNQ, TINY, CoreConfig
from weft.hw.errors import InstructionError
from weft.hw.isa import Engine, Finish, Instruction, Load, Scratchpad, Store, mask_engines
from weft.hw.programs import assemble, columns_of
from weft.sim.fuzz import random_case, seeded

CORES = (
    TINY,
    PYNQ,
    replace(TINY, name="shallow", queue_depth=2, token_depth=1),
    replace(PYNQ, name="tables", tables=2),
    replace(TINY, name="batch", batch=8, block_in=4, block_out=4),  # a matrix is half of what addresses count
)


def passes(config: CoreConfig, program: Sequence[Instruction], window: int, constants: Sequence[Range]) -> bool:
    try:
        check_instructions(config, list(program), window, tuple(constants))
    except ProgramError:
        return False
    return True


def proved_at_once(config: CoreConfig, program: Sequence[Instruction], window: int, constants: Sequence[Range]) -> bool:
    pairs = [(each.start, each.stop) for each in constants]
    return proved(config, columns_of(config, assemble(config, program)), window, pairs)


def broken(program: Sequence[Instruction], draw: random.Random) -> list[Instruction]:
    """One end of a token less or more, a whole token less, two instructions exchanged, one left out, or another value
    in a field."""
    changed = list(program)
    place = draw.randrange(len(changed) - 1)
    item = changed[place]
    match draw.randrange(5):
        case 0:
            name = draw.choice(("wait", "send"))
            mask = getattr(item, name) ^ 1 << draw.randrange(5)
            changed[place] = replace(item, **{name: mask & ~(1 << item.engine)})
        case 1:
            other = draw.randrange(len(changed) - 1)
            changed[place], changed[other] = changed[other], changed[place]
        case 2:
            del changed[place]
        case 4:
            waits = [(number, source) for number, each in enumerate(changed) for source in mask_engines(each.wait)]
            if waits:
                taker, source = draw.choice(waits)
                target = changed[taker].engine
                before = sum(each.engine == target and each.wait >> source & 1 for each in changed[:taker])
                senders = [number for number, each in enumerate(changed)
                           if each.engine == source and each.send >> target & 1]  # fmt: skip
                if before < len(senders):
                    sender = senders[before]
                    changed[taker] = replace(changed[taker], wait=changed[taker].wait & ~(1 << source))
                    changed[sender] = replace(changed[sender], send=changed[sender].send & ~(1 << target))
        case 3:
            names = [name for name in ("index", "offset", "dst", "a", "b", "src", "wgt", "rows", "columns", "extent")
                     if hasattr(item, name)]  # fmt: skip
            if names:
                name = draw.choice(names)
                changed[place] = replace(item, **{name: max(getattr(item, name) + draw.choice((-1, 1, 4)), 0)})
    return changed


@settings(max_examples=250, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(CORES), st.integers(0, 3))
def test_the_verdict_is_the_checkers(seed: int, config: CoreConfig, faults: int) -> None:
    case, draw = random_case(config, seeded(seed)), random.Random(seed)
    program: list[Instruction] = [each for each in case.instructions if not isinstance(each, Finish)] + [Finish()]
    for _ in range(faults):
        program = broken(program, draw) if len(program) > 1 else program
    window = draw.choice((case.window_bytes, 1 << 14))
    areas = sorted(draw.sample(range(0, 1 << 15, 64), 4))
    constants = [Range(*areas[:2]), Range(*areas[2:])] if draw.random() < 0.5 else []
    try:
        at_once = proved_at_once(config, program, window, constants)
    except InstructionError:
        return  # of no program
    right = passes(config, program, window, constants)
    assert right or not at_once
    # Where an instruction waits for a later one, it is for the checker to find out that this is met.
    assert at_once or not right or not _one_by_one(config, program)


def _one_by_one(config: CoreConfig, program: Sequence[Instruction]) -> bool:
    """Whether the instructions can run in the order of the program."""
    tokens = dict.fromkeys(product(Engine, Engine), 0)
    for each in program:
        for source in mask_engines(each.wait):
            tokens[source, each.engine] -= 1
        for target in mask_engines(each.send):
            tokens[each.engine, target] += 1
        if not all(0 <= count <= config.token_depth for count in tokens.values()):
            return False
    return True


def test_both_verdicts_are_met() -> None:
    """The random programs above are neither all right nor all wrong."""
    verdicts = []
    for seed in range(40):
        case, draw = random_case(TINY, seeded(seed)), random.Random(seed)
        program = [*(each for each in case.instructions if not isinstance(each, Finish)), Finish()]
        verdicts.append(passes(TINY, program, case.window_bytes, ()))
        if len(program) > 1:
            try:
                verdicts.append(passes(TINY, broken(program, draw), case.window_bytes, ()))
            except InstructionError:
                continue
    assert 10 < sum(verdicts) < len(verdicts) - 10


def test_constants_are_read_without_order_and_never_written() -> None:
    area = [Range(0, 256)]
    load = Load(scratchpad=Scratchpad.INP, index=0, offset=0, rows=1, columns=1)
    store = Store(index=0, offset=0, rows=1, columns=1)
    assert proved_at_once(TINY, [load, Finish()], 4096, area)
    assert not proved_at_once(TINY, [store, Finish()], 4096, area)
    assert proved_at_once(TINY, [load, store, Finish()], 4096, []) is passes(TINY, [load, store, Finish()], 4096, [])


def test_matrices_smaller_than_addresses_count_are_in_the_window_and_in_order() -> None:
    config = CORES[-1]
    window = 16 * config.granule_bytes
    loaded = Load(engine=Engine.LOADW, scratchpad=Scratchpad.WGT, index=0, offset=10, rows=3, columns=1, stride=5)
    store = Store(index=0, offset=15, rows=1, columns=1)
    assert proved_at_once(config, [loaded, Finish()], window, ())
    assert proved_at_once(config, [loaded, replace(store, offset=9), Finish()], window, ())
    assert not proved_at_once(config, [replace(loaded, stride=6), Finish()], window, ())
    assert not proved_at_once(config, [loaded, store, Finish()], window, ())
