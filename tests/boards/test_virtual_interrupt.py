"""The interrupt controller and the UIO device of virtual boards, by what their manuals say of the real ones."""

from __future__ import annotations

import builtins
import os
import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from weft.boards.virtual_interrupt import Controller, InterruptPath, KernelFiles, UioDevice

ON = Controller.MER, 3


def controller(*writes: tuple[int, int]) -> Controller:
    made = Controller()
    for offset, value in writes:
        made.write(offset, value)
    return made


def test_nothing_comes_through_before_the_controller_is_on_and_the_input_enabled() -> None:
    for writes in ((), (ON,), ((Controller.SIE, 1),), ((Controller.SIE, 1), (Controller.MER, 1))):
        made = controller(*writes)
        made.drive(True)
        assert not made.output
    made = controller(ON, (Controller.SIE, 1))
    assert not made.output
    made.drive(True)
    assert made.output
    assert [made.read(offset) for offset in (Controller.ISR, Controller.IPR, Controller.IER)] == [1, 1, 1]


def test_an_interrupt_stays_until_it_is_acknowledged_and_comes_again_while_its_level_is_high() -> None:
    made = controller(ON, (Controller.IER, 1))
    made.drive(True)
    made.write(Controller.IAR, 1)
    assert made.output  # the level is high
    made.drive(False)
    made.write(Controller.IAR, 2)
    assert made.output  # nobody has acknowledged it
    made.write(Controller.IAR, 1)
    assert not made.output


def test_a_disabled_input_is_latched_but_not_pending() -> None:
    made = controller(ON, (Controller.SIE, 1), (Controller.CIE, 1))
    made.drive(True)
    assert (made.output, made.read(Controller.ISR), made.read(Controller.IPR)) == (False, 1, 0)
    made.write(Controller.SIE, 1)
    assert made.output


def test_the_hardware_bit_stays_once_it_is_set() -> None:
    made = controller(ON, (Controller.MER, 0))
    assert made.read(Controller.MER) == 2
    assert controller((Controller.MER, 1)).read(Controller.MER) == 1


def readable(file: object) -> bool:
    return bool(select.select([file], [], [], 0)[0])


def test_a_uio_device_tells_of_an_interrupt_once_and_masks_it() -> None:
    uio = UioDevice()
    file = uio.open()
    assert uio.take_orders()  # as the kernel leaves it
    uio.interrupt()
    assert not uio.take_orders()
    assert readable(file)
    assert file.read(4) == b"\1\0\0\0"
    assert not readable(file)
    file.write(bytes([0, 0, 0, 1]))  # what pynq writes
    assert uio.take_orders()
    uio.interrupt()
    assert file.read(4) == b"\2\0\0\0"
    file.write(bytes(4))
    assert not uio.take_orders()


def test_time_passes_for_the_core_while_somebody_waits() -> None:
    """The pin rises after ten steps, and no step is made once the interrupt was told."""
    steps = 0

    def advance() -> tuple[bool, bool]:
        nonlocal steps
        steps += 1
        return steps >= 10, steps < 10

    path = InterruptPath(advance)
    file = path.uio.open()
    for offset, value in (ON, (Controller.SIE, 1)):
        path.controller.write(offset, value)
    assert file.read(4) == b"\1\0\0\0"
    seen = steps
    assert seen >= 10
    time.sleep(0.1)
    assert steps - seen <= 1


def test_each_order_brings_one_interrupt_whoever_looks_first() -> None:
    """The thread that lets time pass and the one that uses the core see the same orders."""
    path = InterruptPath(lambda: (True, True))
    file = path.uio.open()
    with path.lock:
        for offset, value in (ON, (Controller.SIE, 1)):
            path.controller.write(offset, value)
        path.settle(True)
    told = [file.read(4)]

    def use() -> None:
        for _ in range(2000):
            file.write(bytes([0, 0, 0, 1]))
            with path.lock:
                path.settle(True)
            told.append(file.read(4))

    thread = threading.Thread(target=use, daemon=True)
    thread.start()
    thread.join(60)
    assert [int.from_bytes(each, "little") for each in told] == list(range(1, 2002))


@pytest.mark.parametrize("wire", [True, False])
def test_a_broken_wire_has_its_own_level(wire: bool) -> None:
    path = InterruptPath(lambda: (not wire, False), wire)
    file = path.uio.open()
    with path.lock:
        for offset, value in (ON, (Controller.SIE, 1)):
            path.controller.write(offset, value)
        path.settle(not wire)
    assert readable(file) == wire


@contextmanager
def installed(driver: str) -> Iterator[UioDevice]:
    before = builtins.open, os.listdir
    uio = UioDevice()
    try:
        KernelFiles(61, driver, uio).install()
        yield uio
    finally:
        builtins.open, os.listdir = before


def test_the_kernel_s_files_are_as_pynq_reads_them() -> None:
    for driver, listed in (("uio", True), ("other", True), ("none", False)):
        with installed(driver), open("/proc/interrupts") as file:
            columns = [line.split() for line in file.read().splitlines()]
            found = [each for each in columns if len(each) >= 7 and each[-3] == "61"]
            assert bool(found) == listed
            if driver != "uio":
                with pytest.raises(FileNotFoundError):
                    os.listdir("/sys/class/uio")
                continue
            (device,) = os.listdir("/sys/class/uio")
            with open(f"/sys/class/uio/{device}/name") as name:
                assert name.read().strip() == found[0][-1]
            assert open(f"/dev/{device}", "r+b", buffering=0).fileno() > 0  # noqa: SIM115
    with open("/proc/self/stat") as other:
        assert other.read()
