"""What every engine of the core has in common: commands, tokens, faults, accounting, trace."""

from __future__ import annotations

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import CoreConfig
from .cycle_class import CycleClass
from .isa import TAP_ROWS, Engine, Fault
from .pipelines import NUMBER_BITS

ENGINES = len(Engine)


def command_layout(config: CoreConfig) -> data.StructLayout:
    """An instruction on its way to an engine, with its number in the program."""
    return data.StructLayout({"number": NUMBER_BITS, "word": config.instruction_bits})


class FaultSignature(wiring.Signature):
    """``valid`` for at least one cycle with the cause and the instruction's number."""

    def __init__(self) -> None:
        super().__init__({"valid": Out(1), "cause": Out(Fault), "number": Out(NUMBER_BITS)})


class EventSignature(wiring.Signature):
    """One-cycle event about instruction ``number`` (start or retirement), for traces."""

    def __init__(self) -> None:
        super().__init__({"valid": Out(1), "number": Out(NUMBER_BITS)})


class EngineSignature(wiring.Signature):
    """Engine as seen by the core.

    commands
        Instructions in order. The engine may look at ``payload`` as long as it likes before ``ready``.
    tokens, take
        Bit ``e`` of ``tokens``: a token from engine ``e`` is there. ``take`` (same cycle, one cycle long) removes one
        of each named.
    send
        Masks in program order, each once the writes of its instruction are visible; the token matrix accepts a mask
        when all its counters have room. Must not depend combinationally on ``send.ready``.
    sending
        Number of the instruction whose mask ``send`` holds (for the watchdog).
    holding
        Number of the instruction that waits to start, or else of the last that did (for the watchdog).
    stop
        The core has faulted: start no new instruction, micro-op or burst; finish what the bus requires.
    idle
        Nothing in progress: no instruction started and not retired, no write or response outstanding, no send
        pending.
    activity
        Class of this cycle (the engine does not know whether more instructions come: it reports INSTRUCTION when its
        queue is empty and nothing is in progress; the core turns that into IDLE once fetch has seen FINISH).
    progress
        Something moved in this cycle (feeds the watchdog).
    started, retired
        Trace events.
    """

    def __init__(self, config: CoreConfig) -> None:
        super().__init__(
            {
                "commands": In(stream.Signature(command_layout(config))),
                "tokens": In(ENGINES),
                "take": Out(ENGINES),
                "send": Out(stream.Signature(ENGINES)),
                "sending": Out(NUMBER_BITS),
                "holding": Out(NUMBER_BITS),
                "fault": Out(FaultSignature()),
                "stop": In(1),
                "idle": Out(1),
                "activity": Out(CycleClass),
                "progress": Out(1),
                "started": Out(EventSignature()),
                "retired": Out(EventSignature()),
            }
        )


class ReadPortSignature(wiring.Signature):
    """Scratchpad read, from the reader's side: ``data`` is valid two cycles after ``enable``."""

    def __init__(self, index_bits: int, data_bits: int) -> None:
        super().__init__({"enable": Out(1), "index": Out(index_bits), "data": In(data_bits)})


class RowsReadPortSignature(wiring.Signature):
    """Like :class:`ReadPortSignature`; ``above`` has the entries at ``index - 2*pitch`` and ``index - pitch``.

    Where ``pitch`` is even, only ``data`` means anything.
    """

    def __init__(self, index_bits: int, data_bits: int) -> None:
        super().__init__(
            {
                **ReadPortSignature(index_bits, data_bits).members,
                "pitch": Out(index_bits),
                "above": In(data_bits).array(TAP_ROWS - 1),
            }
        )


class ArbitratedReadPortSignature(wiring.Signature):
    """Like :class:`ReadPortSignature`, but the read happens only in a cycle with ``enable`` and ``ready``.

    ``ready`` may depend on ``enable`` and ``index`` in the same cycle.
    """

    def __init__(self, index_bits: int, data_bits: int) -> None:
        super().__init__({"enable": Out(1), "ready": In(1), "index": Out(index_bits), "data": In(data_bits)})


class WritePortSignature(wiring.Signature):
    """Scratchpad write, from the writer's side: ``mask`` has one bit for each ``chunk_bits`` of the entry.

    The write happens in a cycle with ``enable`` and ``ready``; a port that never has to wait ties ``ready`` to 1.
    ``data`` is the whole entry; chunks whose mask bit is 0 keep their content. A read whose ``enable`` comes in the
    cycle after the write sees it.
    """

    def __init__(self, index_bits: int, data_bits: int, chunk_bits: int) -> None:
        super().__init__(
            {
                "enable": Out(1),
                "ready": In(1),
                "index": Out(index_bits),
                "data": Out(data_bits),
                "mask": Out(max(1, data_bits // chunk_bits)),
            }
        )


def chunk_bits(config: CoreConfig, entry_bytes: int) -> int:
    """Bits that one write-mask bit covers in a scratchpad that the bus fills: a bus word, or a smaller entry."""
    return min(config.bus_bits, 8 * entry_bytes)
