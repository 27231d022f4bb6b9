"""Runs the tutorials as a newcomer would, each from top to bottom in an empty folder.

    python docs/tutorial_pages.py                 runs all, and writes the pictures that they draw
    python docs/tutorial_pages.py 01-core         one of them
    python docs/tutorial_pages.py --check 01-core fails too if a picture is not as the page draws it

A block of ``python`` runs, behind those before it; one that begins with ``# name.py`` is written to that file.
A block of ``text`` is what the block before it must print; ``...`` stands for anything. In a block of ``console`` the
lines behind ``$`` are commands, and the others what they must print.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import linecache
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
import types
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "tutorials"
PICTURES = Path(__file__).parent / "pictures"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: what kind it says it is, its text, and the line where that begins."""

    kind: str
    text: str
    line: int


def pages() -> list[str]:
    """The tutorials, in reading order."""
    return sorted(path.stem for path in FOLDER.glob("[0-9]*.md"))


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page."""
    found = re.finditer(r"^```(\w+)\n(.*?)^```$", text, flags=re.M | re.S)
    return [Block(each[1], each[2], text[: each.start(2)].count("\n") + 1) for each in found]


def drawn(text: str) -> list[str]:
    """The pictures that a page draws itself: file names."""
    return re.findall(r"\]\(\.\./pictures/(tutorial-[\w-]+\.svg)\)", text)


def run(text: str, name: str) -> list[str]:
    """Run a page's blocks in the current folder. What went wrong, with the line; empty if all is as the page says."""
    module = types.ModuleType("tutorial")
    sys.modules["tutorial"] = module
    printed = ""
    for block in blocks(text):
        place = f"{name}.md, line {block.line}"
        if block.kind == "python":
            if file := re.match(r"# (\w+\.py)\b", block.text):
                Path(file[1]).write_text(block.text)
                continue
            try:
                printed = _executed(block, f"<{name}.md:{block.line}>", module)
            except Exception:
                return [f"{place}: {traceback.format_exc()}"]
        elif block.kind == "text" and not _same(block.text, printed):
            return [f"{place}: the page says\n{block.text}\nbut the code prints\n{printed}"]
        elif block.kind == "console":
            for command, expected in _commands(block.text):
                done = _shell(command)
                if done.returncode != 0 or not _same(expected, done.stdout):
                    seen = f"exit status {done.returncode}; it prints\n{done.stdout}{done.stderr}"
                    return [f"{place}: $ {command}\n{seen}"]
    return []


def _executed(block: Block, name: str, module: types.ModuleType) -> str:
    """What a block prints."""
    linecache.cache[name] = (len(block.text), None, block.text.splitlines(keepends=True), name)
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(block.text, name, "exec"), module.__dict__)
    return output.getvalue()


def _same(expected: str, printed: str) -> bool:
    """Whether a text is as the page has it: spaces at ends of lines and numbers of them count for nothing."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return not expected.strip() or doctest.OutputChecker().check_output(expected.strip(), printed.strip(), flags)


def _commands(text: str) -> list[tuple[str, str]]:
    """Commands behind ``$``, each with what stands below it."""
    parts = re.split(r"^\$ (.*)\n", text, flags=re.M)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def _shell(command: str) -> subprocess.CompletedProcess[str]:
    """A command line as a user types it, with the ``weft`` of this checkout."""
    folder = Path(".bin")
    folder.mkdir(exist_ok=True)
    script = folder / "weft"
    guard = 'if __name__ == "__main__":'  # for processes that a command starts
    script.write_text(f"#!{sys.executable}\nfrom weft.cli import main\n\n{guard}\n    main()\n")
    script.chmod(0o755)
    path = os.pathsep.join([str(folder.resolve()), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "COLUMNS": "120", "TERM": "dumb", "NO_COLOR": "1"}
    return subprocess.run(command, shell=True, capture_output=True, text=True, env=environment, check=False)


def main(arguments: list[str]) -> int:
    """Run pages; the number of those that are not as they say."""
    check, names = "--check" in arguments, [each for each in arguments if each != "--check"]
    wrong = 0
    for name in names or pages():
        text = (FOLDER / f"{name}.md").read_text()
        started, home = sum(os.times()[:4]), Path.cwd()
        clock = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                faults = run(text, name)
                faults += [] if faults else _pictures(text, name, check)
            finally:
                os.chdir(home)
        wrong += bool(faults)
        seconds = f"{sum(os.times()[:4]) - started:.1f} s of a processor, {time.perf_counter() - clock:.1f} s"
        print("\n".join(faults) or f"{name}: {seconds}", file=sys.stderr)
    return wrong


def _pictures(text: str, name: str, check: bool) -> list[str]:
    """Write or compare the pictures that a page has drawn into the current folder."""
    if not drawn(text):
        return [f"{name}.md shows no picture that its code draws"]
    faults = []
    command = f"python docs/tutorial_pages.py {name}"
    for picture in drawn(text):
        if not Path(picture).exists():
            faults.append(f"{name}.md: its code does not draw {picture}")
        elif not check:
            (PICTURES / picture).write_text(Path(picture).read_text())
        elif not (PICTURES / picture).exists() or (PICTURES / picture).read_text() != Path(picture).read_text():
            faults.append(f"{picture} is not as {name}.md draws it; after a change: {command}")
    return faults


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
