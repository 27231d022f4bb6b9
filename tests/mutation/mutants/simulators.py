"""Faults in the functional simulator and what it is made of: typical mistakes in index arithmetic and bookkeeping."""

from __future__ import annotations

from .mutant import Mutant

MUTANTS = (
    # Accumulation
    Mutant(
        "sum-restarts-at-the-first", "sim/accumulate.py", "first-iteration flag",
        "last = np.maximum.reduceat(", "last = np.minimum.reduceat(",
    ),
    Mutant(
        "sum-ignores-a-restart-at-once", "sim/accumulate.py", "off by one",
        "old[last >= 0] = identity", "old[last > 0] = identity",
    ),
    Mutant(
        "sum-drops-what-restarts", "sim/accumulate.py", "off by one",
        "terms[order < np.repeat(last, sizes)]", "terms[order <= np.repeat(last, sizes)]",
    ),
    # Gemm
    Mutant(
        "gemm-sums-in-float32", "sim/gemm.py", "precision",
        "EXACT_FLOAT32 = 1024", "EXACT_FLOAT32 = 1 << 20",
    ),
    Mutant(
        "gemm-rows-written-twice", "sim/gemm.py", "condition",
        "np.bincount(acc_entries).max() > 1", "np.bincount(acc_entries).max() > 2",
    ),
    Mutant(
        "gemm-fault-counted-in-its-block", "sim/gemm.py", "wrong number in record",
        "bad = start + stop", "bad = stop",
    ),
    # Vector
    Mutant(
        "vector-fault-counted-in-its-block", "sim/vector.py", "wrong number in record",
        "bad = begin + count", "bad = count",
    ),
    Mutant(
        "vector-reads-before-the-last-write", "sim/vector.py", "missing hazard check",
        "first_write[written[::-1]] = np.arange(never - 1, -1, -1)", "first_write[written] = np.arange(never)",
    ),
    Mutant(
        "requantise-shift-of-five-bits", "sim/vector.py", "width",
        "(shift & 63, 62)", "(shift & 31, 62)",
    ),
    Mutant(
        "requantise-rounds-without-shift", "sim/vector.py", "rounding",
        "half = np.where(amount > 0,", "half = np.where(amount >= 0,",
    ),
    Mutant(
        "requantise-clamps-high-first", "sim/vector.py", "clamp order",
        "np.minimum(np.maximum(rounded + instruction.zero_point, instruction.low), instruction.high)",
        "np.maximum(np.minimum(rounded + instruction.zero_point, instruction.high), instruction.low)",
    ),
    Mutant(
        "shift-left-by-32", "sim/vector.py", "shift amount",
        "np.where(amount < -31, 0,", "np.where(amount < -32, 0,",
    ),
    # Loops
    Mutant(
        "first-of-the-outermost-level", "sim/loops.py", "first-iteration flag",
        "first &= iteration == 0", "first = iteration == 0",
    ),
    Mutant(
        "loop-levels-turned-around", "sim/loops.py", "order",
        "for level in reversed(self.levels):", "for level in self.levels:",
    ),
    # DMA
    Mutant(
        "dma-window-exclusive", "sim/dma.py", "window limit off by one",
        "transfer.end > window_bytes", "transfer.end >= window_bytes",
    ),
    Mutant(
        "dma-ends-with-a-stride", "sim/dma.py", "off by one",
        "self.start + (self.rows - 1) * self.stride_bytes + self.row_bytes",
        "self.start + self.rows * self.stride_bytes",
    ),
    Mutant(
        "dma-pads-swapped", "sim/dma.py", "swapped operands",
        "inner_columns = slice(instruction.pad_left, instruction.pad_left + instruction.columns)",
        "inner_columns = slice(instruction.pad_right, instruction.pad_right + instruction.columns)",
    ),
    Mutant(
        "dma-aligned-to-entries", "sim/dma.py", "alignment",
        "alignment = min(transfer.entry_bytes, config.bus_bytes)", "alignment = transfer.entry_bytes",
    ),
    Mutant(
        "dma-granule-behind-a-row", "sim/dma.py", "off by one",
        "(starts + transfer.row_bytes - 1) // size", "(starts + transfer.row_bytes) // size",
    ),
    Mutant(
        "dma-last-granule-forgotten", "sim/dma.py", "rounding",
        "-(-transfer.end // size)", "transfer.end // size",
    ),
    # Races
    Mutant(
        "race-of-a-write-with-reads", "sim/races.py", "missing hazard check",
        "seen if write else seen[:1]", "seen[:1]",
    ),
    Mutant(
        "race-clock-of-the-last-token", "sim/races.py", "vector clock",
        "clock[:] = map(max, clock, other)", "clock[:] = other",
    ),
    Mutant(
        "race-with-the-run-before", "sim/races.py", "state between runs",
        "self._clocks = [[self._base] * len(Engine) for _ in Engine]",
        "self._clocks = [[0] * len(Engine) for _ in Engine]",
    ),
    # Programs
    Mutant(
        "fsim-one-token-more", "sim/fsim.py", "queue depth",
        ">= self.config.token_depth", "> self.config.token_depth",
    ),
    Mutant(
        "fsim-one-instruction-more", "sim/fsim.py", "queue depth",
        "== self.config.queue_depth:", "== self.config.queue_depth + 1:",
    ),
    Mutant(
        "fsim-executes-one-more", "sim/fsim.py", "queue depth",
        "MOST_SENDING = IN_FLIGHT - 1", "MOST_SENDING = IN_FLIGHT",
    ),
    Mutant(
        "fsim-errors-of-its-own-bytes", "sim/fsim.py", "bus error lost",
        "self._check_bus(start // word * word, -(-end // word) * word, engine, number, write=write)",
        "self._check_bus(start, end, engine, number, write=write)",
    ),
    Mutant(
        "fsim-program-in-all-of-the-window", "sim/fsim.py", "window limit off by one",
        "self.offset + self.count * size > self.window_bytes", "self.offset + self.count * size >= self.window_bytes",
    ),
    Mutant(
        "fsim-stores-into-its-program", "sim/fsim.py", "overlap",
        "transfer.start < program_end and self.offset < transfer.end", "self.offset <= transfer.start < program_end",
    ),
    Mutant(
        "fsim-waits-are-not-taken", "sim/fsim.py", "deadlock record",
        "records.append(FaultRecord(Fault.WATCHDOG, engine, number, text))\n            if missing:",
        "records.append(FaultRecord(Fault.WATCHDOG, engine, number, text))\n            if not missing:",
    ),
    # Bounds of work
    Mutant(
        "work-of-one-set-of-loops", "sim/work.py", "state shared",
        "loops.setdefault(int(engines[number]), [1] * LOOP_LEVELS)", "loops.setdefault(0, [1] * LOOP_LEVELS)",
    ),
    Mutant(
        "work-of-all-levels", "sim/work.py", "loop bound",
        "prod(nest[: depth[Opcode(opcode)][number]])", "prod(nest)",
    ),
    Mutant(
        "work-without-transfers", "sim/work.py", "bound",
        "total += int(moved[Opcode(opcode)][number])", "total += 0",
    ),
)  # fmt: skip
