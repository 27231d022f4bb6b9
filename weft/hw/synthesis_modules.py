"""A core's Verilog, module by module: each is synthesised once, in whatever core it is next."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from .errors import SynthesisError
from .verilog import TOP

BATCH = "weft_batch"
"""Top module of the Verilog that :func:`batch_verilog` writes."""

BATCH_CHARACTERS = 200_000
"""Verilog that one run of Yosys takes: large enough that its start does not count, small enough to lose if stopped."""

_MODULE = re.compile(r"^module \\?(\S+)\s?\(.*?^endmodule\n?", re.MULTILINE | re.DOTALL)
_INSTANCE = re.compile(r"^  \\?(\S+) +\S+ *\(", re.MULTILINE)
_PORT = re.compile(r"^  (?:input|output) .*\n", re.MULTILINE)
_SERIAL_NUMBER = re.compile(r"(?<=\w)\$(\d+)")


@dataclass(frozen=True)
class VerilogModule:
    """One module; ``children`` counts the modules that it instantiates."""

    name: str
    text: str
    children: Mapping[str, int]

    @property
    def identity(self) -> str:
        """Text that modules of the same content share: without its own name, with its own numbers in tools' names."""
        return self.without_numbers(self.text.replace(self.name, "@"))

    @cached_property
    def _numbers(self) -> list[str]:
        """Those in tools' names, in the order in which they first stand in the text."""
        return list(dict.fromkeys(_SERIAL_NUMBER.findall(self.text.replace(self.name, "@"))))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {number: place for place, number in enumerate(self._numbers)}

    def without_numbers(self, text: str) -> str:
        """A name of this module's as all modules of its content have it."""
        return _SERIAL_NUMBER.sub(lambda match: f"${self._places[match[1]]}", text)

    def with_numbers(self, text: str) -> str:
        """A name that :meth:`without_numbers` gave of another module of this content, as it is in this one."""
        return _SERIAL_NUMBER.sub(lambda match: f"${self._numbers[int(match[1])]}", text)

    @property
    def stub(self) -> str:
        """The module's ports alone."""
        head = self.text[: self.text.index(";") + 1]
        return f"(* blackbox *)\n{head}\n{''.join(_PORT.findall(self.text))}endmodule\n"


def split_modules(verilog: str) -> dict[str, VerilogModule]:
    """Modules by name; :class:`SynthesisError` if there is no core among them."""
    texts = {match[1]: match[0] for match in _MODULE.finditer(verilog)}
    if TOP not in texts:
        raise SynthesisError(f"the Verilog has no module {TOP}")
    return {
        name: VerilogModule(name, text, Counter(child for child in _INSTANCE.findall(text) if child in texts))
        for name, text in texts.items()
    }


def batches(modules: Iterable[VerilogModule]) -> Iterator[list[VerilogModule]]:
    """Lists of modules of at most :data:`BATCH_CHARACTERS`, or of a single larger one."""
    batch: list[VerilogModule] = []
    for module in sorted(modules, key=lambda module: len(module.text)):
        if batch and sum(len(other.text) for other in batch) + len(module.text) > BATCH_CHARACTERS:
            yield batch
            batch = []
        batch.append(module)
    if batch:
        yield batch


def batch_verilog(batch: list[VerilogModule], modules: Mapping[str, VerilogModule]) -> str:
    """Verilog in which the modules of a batch stand side by side; those that they instantiate are only ports."""
    names = {module.name for module in batch}
    below = dict.fromkeys(child for module in batch for child in module.children if child not in names)
    texts = [modules[child].stub for child in below] + [module.text for module in batch]
    instances = [f"  (* keep *) \\{name}  part_{number} ();\n" for number, name in enumerate(sorted(names))]
    return "".join([*texts, f"module {BATCH};\n", *instances, "endmodule\n"])
