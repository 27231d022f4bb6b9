"""``weft generate``: a text that a language model continues."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from ..api import load
from ..compiler.graph import Module
from ..compiler.model import CoreStep
from ..progress import Updates, progress
from ..runtime.device import device_forms
from ..runtime.errors import InputError, SessionError
from ..runtime.module import LoadedModule
from ..runtime.sampling import Generated, Sampling, generate
from ..runtime.session import Session
from ..runtime.session_roles import KNOWN
from ..runtime.session_sizes import depends_on_room, hides_by_room, require_tokens, session_shapes
from ..runtime.tokenisers import BYTES, Tokeniser, tokeniser
from .app import app
from .output import (
    CacheOption,
    JsonOption,
    KernelsOption,
    ShapeOption,
    SignatureOption,
    err,
    input_file,
    out,
    parse_shapes,
    print_json,
)
from .run import compiled_source
from .source import given_file, is_artifact
from .target_options import Chosen, with_target_options

ACCEL = "accel"
DEFAULT_CLOCK = 100.0
"""MHz of a simulated core whose clock was not said."""


@app.command("generate")
@with_target_options
def generate_text(
    model: Annotated[
        Path, typer.Argument(help="A model that takes a token and a cache: a file, or what 'weft compile' wrote.")
    ],
    prompt: Annotated[str, typer.Option("--prompt", "-p", help="The text to continue.")],
    tokenizer: Annotated[
        str, typer.Option("--tokenizer", help="A tokenizer.json, or bytes: a token is a byte in UTF-8.")
    ] = BYTES,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Tokens to write at most.")] = 100,
    temperature: Annotated[
        float, typer.Option("--temperature", min=0, help="0: always the best token. 1: drawn as the model says.")
    ] = 0.0,
    top_k: Annotated[int | None, typer.Option("--top-k", min=1, help="Draw among the best so many.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of what is drawn.")] = 0,
    stop: Annotated[list[str] | None, typer.Option("--stop", help="A token that ends the text; repeat.")] = None,
    prefill: Annotated[
        Path | None, input_file("--prefill", help="The same model for several tokens a run, for the prompt.")
    ] = None,
    positions: Annotated[
        int | None, typer.Option("--positions", min=1, help="Room for tokens, where the model leaves it open.")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", "-d", help=f"What runs the core: {', '.join(device_forms())}.")
    ] = None,
    target: Annotated[str | None, typer.Option("--target", help="What to compile a model for. Default: accel.")] = None,
    clock: Annotated[
        float | None,
        typer.Option("--clock", min=0.001, help=f"MHz of the core. Default: a board's own, else {DEFAULT_CLOCK:g}."),
    ] = None,
    shape: ShapeOption = None,
    kernels: KernelsOption = None,
    signature: SignatureOption = None,
    cache: CacheOption = True,
    as_json: JsonOption = False,
    *,
    chosen: Chosen,
) -> None:
    """Continue a text with a language model, token by token, and print what a token costs.

    The text goes to standard output, the figures behind it to standard error.
    """
    sampling = Sampling(temperature, top_k, seed)
    words = tokeniser(tokenizer)
    stops = [_stop(words, text) for text in stop or ()]
    tokens = words.encode(prompt)
    with ExitStack() as open_modules:  # a board is given back at the end
        with progress("reading", err) as status:
            how = _How(target, shape, positions, device, chosen, cache, kernels, signature)
            loaded = open_modules.enter_context(_loaded(model, how, status))
            wide = None if prefill is None else open_modules.enter_context(_loaded(prefill, how, status))
            session = loaded.session(prefill=wide)
            _check_vocabulary(session, words)
        told = _Told(loaded, len(tokens))
        pieces = _Pieces(prompt, words, stops, printed=not as_json)
        with pieces:
            for each in generate(session, tokens, count, sampling, stop=stops, vocabulary=words.vocabulary):
                told.add(each)
                pieces.add(each.token)
        if as_json:
            record = {"model": loaded.model.name, "target": loaded.model.target, "tokenizer": words.name}
            print_json(record | told.record(clock) | {"text": pieces.text})
            return
        for line in told.lines(clock, session):
            err.print(line, highlight=False)


class _Pieces:
    """The text, as it comes: printed piece by piece if so wanted, with the end of its line whatever happens."""

    def __init__(self, prompt: str, words: Tokeniser, stops: list[int], *, printed: bool) -> None:
        self._read, self._stops, self._printed = words.reader(), stops, printed
        self.text = ""
        self._add(prompt)

    def add(self, token: int) -> None:
        self._add("" if token in self._stops else self._read(token))

    def _add(self, piece: str) -> None:
        self.text += piece
        if self._printed:
            out.print(piece, end="", soft_wrap=True, highlight=False)
            out.file.flush()

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        if self._printed:
            out.print()


@dataclass
class _Told:
    """What was generated, and when."""

    module: LoadedModule
    prompt: int
    made: list[Generated] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    last: float = field(default_factory=time.perf_counter)

    def add(self, token: Generated) -> None:
        self.made.append(token)
        now = time.perf_counter()
        self.seconds.append(now - self.last)
        self.last = now

    def record(self, given: float | None) -> dict[str, Any]:
        """``cycles`` and ``seconds``: of the prompt, and of a token behind it on average; None where there is none.
        ``given``: MHz, where they were said."""
        cycles = [each.cycles for each in self.made if each.cycles is not None]
        known = bool(cycles) and self.module.model.core is not None
        clock = given or self.real_clock or DEFAULT_CLOCK
        later = len(self.made) - 1
        a_token = sum(cycles[1:]) / later if known and later else None
        return {
            "prompt_tokens": self.prompt,
            "tokens": [each.token for each in self.made],
            "prompt_cycles": cycles[0] if known else None,
            "cycles_a_token": a_token,
            "programs_a_token": sum(isinstance(step, CoreStep) for step in self.module.model.steps),
            "clock_mhz": clock if known else None,
            "tokens_a_second_of_the_core": clock * 1e6 / a_token if a_token else None,
            "prompt_seconds": self.seconds[0],
            "seconds_a_token": sum(self.seconds[1:]) / later if later else None,
        }

    @property
    def real_clock(self) -> float | None:
        """MHz of a core that is no simulator; None for others."""
        return None if self.module.model.core is None else getattr(self.module.device, "clock_mhz", None)

    def lines(self, clock: float | None, session: Session) -> list[str]:
        record = self.record(clock)
        lines = [f"{self.prompt} tokens of the prompt, {len(self.made)} written"]
        if session.position == session.positions:
            lines[0] += f"; the model's {session.positions} positions are full"
        if record["prompt_cycles"] is not None:
            lines.append(f"prompt: {record['prompt_cycles']:,} cycles of the core")
        if record["cycles_a_token"] is not None:
            speed = record["tokens_a_second_of_the_core"]
            lines.append(f"a token: {record['cycles_a_token']:,.0f} cycles of the core in "
                         f"{record['programs_a_token']} programs, {speed:,.1f} tokens/s at {record['clock_mhz']:g} "
                         f"MHz; the host's part is not in it")  # fmt: skip
        each = record["seconds_a_token"]
        if each is not None and self.module.model.core is None:
            lines.append(f"a token: {each * 1e3:.2f} ms on this machine, {1 / each:,.1f} tokens/s")
        if each is not None and self.real_clock is not None:
            lines.append(f"a token with the host's part and the link: {each * 1e3:.2f} ms, {1 / each:,.1f} tokens/s")
        if self.module.model.target == ACCEL and self.module.model.core is None:
            lines.append("nothing of the model runs on the core: what its products read is in floats, of which "
                         "weft.quantise makes 8 bits; --target cpu is faster for such a model")  # fmt: skip
        return lines


class _How(NamedTuple):
    """A model's way onto its device, as it was asked for."""

    target: str | None
    shape: list[str] | None
    positions: int | None
    device: str | None
    chosen: Chosen
    cache: bool
    kernels: str | None
    signature: str | None


def _session_shapes(source: Path, how: _How) -> dict[str, tuple[int, ...]]:
    """Sizes that a model leaves open; SessionError in the words of the command line."""
    from ..compiler.frontends import read

    file, given = read(given_file(source, how.kernels, how.signature)), parse_shapes(how.shape)
    inputs = file.inputs(given)
    require_tokens(inputs)
    try:
        shapes = session_shapes(inputs, how.positions)
        if how.positions is not None:
            counted = any(each.name in KNOWN["places"] for each in inputs)
            sizes = (how.positions,) if counted else (how.positions, how.positions + 1)
            modules = [file.module(given | session_shapes(inputs, size), require_quantised=False) for size in sizes]
            _warn_of_room(how.positions, *modules)
        return shapes
    except SessionError as error:
        raise SessionError(
            error.message, hint="--shape gives an input's shape, --positions the room for tokens"
        ) from None


def _warn_of_room(positions: int, module: Module, wider: Module | None = None) -> None:
    """``wider``: with room for a position more, of a model without an input of places."""
    if wider is not None and depends_on_room(module, wider):
        err.print("warning: the model has no input of places and computes with the size of its cache. If it takes a "
                  "token's place from that, its scores are wrong here, where the cache has room for all positions from "
                  "the beginning: export it with position_ids", highlight=False)  # fmt: skip
    if hides_by_room(module, positions):
        err.print("warning: the model hides positions by the size of its cache, as a sliding window does that is "
                  "counted from its end. Here the cache has room for all positions from the beginning, so others are "
                  "hidden than meant: export the mask by position_ids, or attention as GroupQueryAttention with "
                  "local_window_size", highlight=False)  # fmt: skip


def _loaded(source: Path, how: _How, status: Updates) -> LoadedModule:
    """The model in a file; sizes that it leaves open are those of one token and of room for positions."""
    shapes = list(how.shape or ())
    if not is_artifact(source):
        found = _session_shapes(source, how)
        shapes += [f"{name}={'x'.join(map(str, sizes))}" for name, sizes in found.items()]
    compiled = compiled_source(source, how.target, shapes or None, None, [], how.chosen, status, cache=how.cache,
                               kernels=how.kernels, signature=how.signature)  # fmt: skip
    status.update("loading")
    loaded = load(compiled, how.device, progress=status.update)
    assert isinstance(loaded, LoadedModule)  # all sizes are known
    return loaded


def _check_vocabulary(session: Session, words: Tokeniser) -> None:
    if words.name == BYTES and session.vocabulary > words.vocabulary:
        raise InputError(f"the model has scores for {session.vocabulary:,} tokens, which are no bytes",
                         hint="give its tokenizer.json by --tokenizer")  # fmt: skip


def _stop(words: Tokeniser, text: str) -> int:
    token = words.token(text)
    if token is None:
        raise InputError(f"--stop {text!r} is no token of {words.name}", hint="give one token as it is written there")
    return token
