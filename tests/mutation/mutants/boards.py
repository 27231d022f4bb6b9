"""Faults in boards: the model of an SDRAM chip, which has to know its rules, and the driver of a system of cores."""

from __future__ import annotations

from .mutant import Mutant

CHIP = ("tests/hw/standalone/test_sdram.py",)
DRIVER = ("tests/boards/link/test_system.py",)
SYSTEM = ("tests/boards/test_system_device.py",)
BATCHES = ("tests/runtime/test_pipeline_module.py",)
GOWIN = ("tests/boards/standalone/test_gowin.py",)
GOWIN_CELLS = ("tests/boards/standalone/test_gowin_netlist.py",)
BUILT = ("tests/boards/test_build.py", "tests/boards/test_fit.py")

MUTANTS = (
    Mutant(
        "sdram-chip-forgets-who-drove", "boards/standalone/sdram_model.h", "check ignored",
        "!(driven && (now || drove_))", "!(driven && now)", CHIP,
    ),
    Mutant(
        "sdram-chip-lets-reads-be-cut", "boards/standalone/sdram_model.h", "off by one",
        "edge_ >= column_at_ + burst_", "edge_ >= column_at_ + burst_ - 1", CHIP,
    ),
    Mutant(
        "sdram-chip-waits-for-no-startup", "boards/standalone/sdram_model.h", "check ignored",
        "now_ >= f_.startup", "true", CHIP,
    ),
    Mutant(
        "board-system-starts-all-cores", "boards/link/system.py", "forgotten part",
        """        self._write("GROUP_MEMBERS", members)\n""", "", DRIVER,
    ),
    Mutant(
        "board-system-gives-all-cores-one-window", "boards/link/system.py", "forgotten part",
        "start = window.address + program.start", "start = window.address", DRIVER,
    ),
    Mutant(
        "board-system-with-too-few-cores-passes", "boards/link/system.py", "check ignored",
        "if found != (1 << len(cores)) - 1:", "if not found:", DRIVER,
    ),
    Mutant(
        "board-relay-leaves-its-buffer", "boards/link/system.py", "check ignored",
        "window.check(program.start, program.size + reach)", "window.check(program.start, program.size)", DRIVER,
    ),
    Mutant(
        "board-relay-sets-any-register", "boards/link/system.py", "check ignored",
        "if address not in self._constants.relay_settings]", "if address < 0]", DRIVER,
    ),
    Mutant(
        "board-relay-over-once-one-core-is", "boards/link/system.py", "wrong condition",
        "or min(ended) >= runs", "or max(ended) >= runs", DRIVER,
    ),
    Mutant(
        "board-relay-without-the-other-turns", "boards/system_device.py", "forgotten part",
        "        settings += settings_of_turns([[(each.offset, each.count) for each in own] for own in programs])\n",
        "", SYSTEM,
    ),
    Mutant(
        "board-system-of-other-wires-passes", "boards/system_device.py", "check ignored",
        "if system_digits(there) != system_digits(config):",
        "if [core.hash64 for core in there.cores] != [core.hash64 for core in config.cores]:", SYSTEM,
    ),
    Mutant(
        "board-with-one-core-taken-for-a-system", "boards/link/overlay.py", "check ignored",
        "if any(each.startswith(tuple(wanted.others)) for each in of_type.values()):", "if False:", SYSTEM,
    ),
    Mutant(
        "relay-batch-counts-the-last-one-alone", "sim/relay_run.py", "forgotten part",
        "cycles=sum(each.cycles or 0 for each in results))", "cycles=results[-1].cycles)", BATCHES,
    ),
    Mutant(
        "relay-batch-without-its-results", "runtime/pipeline_module.py", "forgotten part",
        "for item in range(0 if self.device.serves else len(values)):",
        "for item in range(0 if self.device.serves else len(values) - 1):", BATCHES,
    ),
    Mutant(
        "board-system-takes-no-arbiter", "boards/fit.py", "forgotten part",
        "if len(members := system.cores_of(port)) > 1]", "if len(members := system.cores_of(port)) > 9]", BUILT,
    ),
    Mutant(
        "board-system-with-half-its-interrupts", "boards/ip_core.py", "off by one",
        "last = len(held.cores) + held.relay - 1", "last = len(held.cores) + held.relay - 2", BUILT,
    ),
    Mutant(
        "gowin-clock-above-what-was-asked", "boards/standalone/gowin.py", "wrong condition",
        ".mhz <= mhz\n", ".mhz <= 2 * mhz\n", GOWIN,
    ),
    Mutant(
        "gowin-clock-past-its-network", "boards/standalone/gowin.py", "forgotten part",
        "{counter}  BUFG clock_network(.I({source}), .O(clk));", "{counter}  assign clk = {source};", GOWIN,
    ),
    Mutant(
        "gowin-data-that-come-too-early-pass", "boards/standalone/flow.py", "check ignored",
        "if refused := family.refused(log.read_text()):", "if refused := family.refused(''):", GOWIN,
    ),
    Mutant(
        "gowin-register-starts-with-0", "boards/standalone/gowin_netlist.py", "constant",
        "f\"1'b{int('SET' in cell.pins)}\"", "\"1'b0\"", GOWIN_CELLS,
    ),
    Mutant(
        "gowin-difference-is-a-sum", "boards/standalone/gowin_netlist.py", "sign",
        "{first} ^ {second} ^ ~{cell.pin('I3')}", "{first} ^ {second}", GOWIN_CELLS,
    ),
    Mutant(
        "gowin-memory-of-zeros", "boards/standalone/gowin_netlist.py", "off by one",
        "value << place * row_bits", "value << (place + 1) * row_bits", GOWIN_CELLS,
    ),
    Mutant(
        "gowin-memory-written-in-whole-words", "boards/standalone/gowin_cells.v", "check ignored",
        "BYTES == 2 ? {2'd0, address[1:0]}", "BYTES == 2 ? 4'd3", GOWIN_CELLS,
    ),
    Mutant(
        "gowin-memory-shows-what-it-writes", "boards/standalone/gowin_cells.v", "wrong condition",
        "(!WREB || WRITE_MODE_B == 2)", "(1'b1 || WRITE_MODE_B == 2)", GOWIN_CELLS,
    ),
)  # fmt: skip
