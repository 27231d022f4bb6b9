"""Faults in the functional simulator and what it is made of: typical mistakes in index arithmetic and bookkeeping."""

from __future__ import annotations

from .mutant import Mutant

FAST = ("tests/sim/test_fast.py",)

MUTANTS = (
    # Accumulation
    Mutant(
        "sum-restarts-at-the-first", "sim/accumulate.py", "first-iteration flag",
        "last = np.maximum.reduceat(", "last = np.minimum.reduceat(",
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
        "depthwise-only-src-is-checked", "sim/gemm.py", "bound",
        "a + reach >= config.inp_depth", "a >= config.inp_depth", ("tests/sim/test_microops.py",),
    ),
    Mutant(
        "depthwise-reads-only-src", "sim/gemm.py", "race set", "np.unique(read)", "np.unique(a)",
        ("tests/sim/test_microops.py",),
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
        "requantise-shift-of-five-bits", "sim/vector.py", "width",
        "(shift & 63)", "(shift & 31)",
    ),
    Mutant(
        "requantise-rounds-without-shift", "sim/vector.py", "rounding",
        "rounds = (amount > 0)", "rounds = (amount >= 0)",
    ),
    Mutant(
        "requantise-nudged-without-shift", "sim/vector.py", "rounding",
        "np.where(amount > 0, nudged(config.rounding, exact, amount), exact)", "nudged(config.rounding, exact, amount)",
    ),
    Mutant(
        "vector-targets-as-deep-as-acc", "sim/vector.py", "bound",
        "config.depth(instruction.target.memory)", "config.acc_depth",
    ),
    # DMA
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
        "fsim-misses-races-in-inp", "sim/fsim.py", "missing hazard check",
        "Engine.VECTOR, instruction.target.memory, access.written, write=True",
        "Engine.VECTOR, Memory.OUT if instruction.target else Memory.ACC, access.written, write=True",
    ),
    Mutant(
        "fsim-looks-up-signed-values", "sim/vector.py", "table index",
        "result & TABLE_ENTRIES - 1", "(result & TABLE_ENTRIES - 1) ^ 128",
    ),
    Mutant(
        "fsim-looks-up-in-one-lane", "sim/vector.py", "wrong lane",
        "np.take_along_axis(table, result & TABLE_ENTRIES - 1, axis=0)", "table[result & TABLE_ENTRIES - 1, 0]",
    ),
    Mutant(
        "fsim-stores-into-its-program", "sim/fsim.py", "overlap",
        "transfer.start < program_end and self.offset < transfer.end", "self.offset <= transfer.start < program_end",
    ),
    # Bounds of work
    Mutant(
        "work-of-one-set-of-loops", "sim/work.py", "state shared",
        "[[1] * LOOP_LEVELS for _ in range(8)]", "[[1] * LOOP_LEVELS] * 8",
    ),
    Mutant(
        "work-of-all-levels", "sim/work.py", "loop bound",
        "prod(nests[engine][: depth[opcode][number]])", "prod(nests[engine])",
    ),
    Mutant(
        "work-without-transfers", "sim/work.py", "bound",
        "total += moved[opcode][number]", "total += 0",
    ),
    # Designs in Amaranth
    Mutant(
        "registers-set-without-what-follows", "sim/fast.py", "missing step",
        "            self.model.written = self.model.runnable = True\n        value, known",
        "            self.model.runnable = True\n        value, known", FAST,
    ),
    Mutant(
        "memory-rows-at-bytes-of-a-bit", "sim/fast.py", "wrong unit",
        "address * bytes_of(self.shape.width)", "address * bytes_of(1)", FAST,
    ),
    Mutant(
        "signs-are-lost", "sim/fast.py", "sign", "return value - ((value & self.sign) << 1)", "return value", FAST,
    ),
    Mutant(
        "changes-of-driven-signals-go-unseen", "sim/fast.py", "missing step",
        "        elif self.variable.read() != self.known:", "        elif self.variable.read() == self.known:", FAST,
    ),
    Mutant(
        "a-reset-keeps-the-model", "sim/fast.py", "stale state", "        self.model.begin()\n", "", FAST,
    ),
    Mutant(
        "waits-not-for-the-last-end", "sim/relay_waits.py", "forgotten part",
        "if end < ends[last]:", "if end < 0:", ("tests/runtime/test_profile_shared.py",),
    ),
)  # fmt: skip
