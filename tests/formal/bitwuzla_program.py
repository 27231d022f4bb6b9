"""Bitwuzla as a program that reads SMT-LIB and answers: ``python -m tests.formal.bitwuzla_program``.

PyPI has it as a library for Python alone, while yosys-smtbmc asks a process, by its standard input and output.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator
from typing import TextIO

from bitwuzla import BitwuzlaException, Option, Options, Parser, TermManager

HELP = "--lang smt2: the language, which is the only one"
"""By this option yosys-smtbmc knows a version that reads all commands as they come."""

_QUOTED = re.compile(r'\|[^|]*\||"[^"]*"|;.*')


def commands(lines: TextIO) -> Iterator[str]:
    """Each command of the input, once its last bracket is there."""
    text, depth = "", 0
    for line in lines:
        plain = _QUOTED.sub("", line)
        text, depth = text + line, depth + plain.count("(") - plain.count(")")
        if depth == 0:
            yield text
            text = ""


def main(arguments: list[str]) -> int:
    if "--help" in arguments:
        print(HELP)
        return 0
    options = Options()
    options.set(Option.PRODUCE_MODELS, True)
    parser = Parser(TermManager(), options)
    output = ctypes.CDLL(None)  # where the library writes: a buffer that Python knows nothing of
    for command in commands(sys.stdin):
        if command.strip() == "(exit)":
            break
        try:
            parser.parse(command, False, False)
        except BitwuzlaException as error:
            print(f'(error "{error}")', flush=True)
            return 1
        output.fflush(None)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
