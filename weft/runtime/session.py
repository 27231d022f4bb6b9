"""A sequence that a model continues token by token: what a run leaves for the next one is kept here."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..compiler.graph.dtypes import numpy_dtype
from ..compiler.model import CompiledModel, HostStep
from ..content import content_digest
from ..whole import whole
from .errors import SessionError
from .module import LoadedModule
from .residents import Kept
from .run_lock import stays_here
from .session_roles import RoleNames, Roles, State, roles_of

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Cache:
    """What a session held at a moment: for :meth:`Session.restore` of any session of the same compiled model.
    ``states`` by the input's name; ``model`` stands for the model's content."""

    model: str
    position: int
    states: Mapping[str, Array]


class Session:
    """Made by :meth:`LoadedModule.session`. One call at a time, others wait.

    After an error a session is as it was before the call, and can go on: states are kept once a run is complete.
    """

    __reduce__ = stays_here("open one of the module there: module.session()")

    def __init__(self, step: _Runner, prefill: _Runner | None, positions: int | None) -> None:
        self._step, self._prefill = step, prefill
        self._positions = positions
        self._lock = threading.Lock()
        self._states = step.empty()
        self._content = object()  # stands for the states up to the position, for a device that holds them, too
        self._position = 0
        self._cycles: int | None = 0
        self._closed = False

    def __repr__(self) -> str:
        room = "" if self._positions is None else f" of {self._positions}"
        state = ", closed" if self._closed else ""
        return f"<Session of {self._step.module.model.name!r} at position {self._position}{room}{state}>"

    @property
    def position(self) -> int:
        """Tokens that it has taken."""
        return self._position

    @property
    def positions(self) -> int | None:
        """Tokens that it takes at most; None where the model's states have no such bound."""
        return self._positions

    @property
    def vocabulary(self) -> int:
        """Tokens that there are scores for."""
        return self._step.roles.vocabulary

    @property
    def cycles(self) -> int | None:
        """Of the core in the last call of :meth:`prefill` or :meth:`step`, all its runs; ``None`` where no device
        models time. The host's part is not in it."""
        return self._cycles

    def prefill(self, tokens: Iterable[int] | Array) -> Array:
        """Take tokens, at least one; the scores ``(vocabulary,)`` of what follows the last.

        Raises :class:`SessionError` for more tokens than there is room for and for what is no token, and what
        :meth:`LoadedModule.run` raises.
        """
        row = self._tokens(tokens)
        with self._lock:
            self._refuse(len(row))
            states, position, cycles = self._states, self._position, _Sum()
            taken = 0
            scores: Array = np.empty(0)
            while taken < len(row):
                runner = self._runner(len(row) - taken, position + taken)
                piece = row[taken : taken + runner.roles.length]
                scores, states, spent = runner.run(piece, position + taken, states, self._content)
                cycles.add(spent)
                taken += len(piece)
            self._states, self._position, self._cycles = states, position + taken, cycles.total
        return scores

    def step(self, token: int) -> Array:
        """As :meth:`prefill`, of one token."""
        return self.prefill((token,))

    def rewind(self, position: int = 0) -> None:
        """Go back to an earlier position, by default to an empty session.

        Raises :class:`SessionError` for a position that was not reached, and, but for 0, where states are no rows of
        positions: of what they were before nothing is left.
        """
        with self._lock:
            self._refuse(0)
            together = any(state.axis is None for state in self._step.roles.states)
            wanted = whole(position)
            if wanted is None:
                raise SessionError(f"position is {position!r:.80}, but must be a whole number")
            if not 0 <= wanted <= self._position:
                raise SessionError(f"position {wanted} was not reached: the session is at {self._position}")
            if together and 0 < wanted < self._position:
                raise SessionError("the model's states cannot be rewound", hint="to 0, or keep a cache to restore")
            if together and wanted == 0:
                self._states = self._step.empty()
            self._position = wanted

    def cache(self) -> Cache:
        """A copy of what the session holds."""
        with self._lock:
            self._refuse(0)
            copies = {name: array.copy() for name, array in self._states.items()}
            return Cache(self._step.identity, self._position, copies)

    def restore(self, cache: Cache) -> None:
        """Go on from a cache, of this session or another one. Raises :class:`SessionError` for one of another model."""
        with self._lock:
            self._refuse(0)
            kinds = {name: (array.shape, array.dtype) for name, array in self._states.items()}
            if not isinstance(cache, Cache):
                raise SessionError(f"cache is {cache!r:.80}, but must be what Session.cache gave")
            if cache.model != self._step.identity or kinds != {
                name: (array.shape, array.dtype) for name, array in cache.states.items()
            }:
                raise SessionError("the cache is of another model", hint="run the tokens through this one")
            if self._positions is not None and not 0 <= cache.position <= self._positions:
                raise SessionError(f"the cache is at position {cache.position} of {self._positions}")
            self._states = {name: array.copy() for name, array in cache.states.items()}
            self._content = object()
            self._position = cache.position

    def close(self) -> None:
        """Give the memory back; later calls are refused. The module stays open."""
        with self._lock:
            self._closed = True
            self._states = {}

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _runner(self, left: int, position: int) -> _Runner:
        """What takes the next piece: the wide model wherever it fits or saves runs."""
        wide = self._prefill
        if wide is None or left == 1:
            return self._step
        fits = left >= wide.roles.length or (wide.takes_less and wide.may_pad(position))
        return wide if fits else self._step

    def _tokens(self, tokens: Iterable[int] | Array) -> list[int]:
        given: Array = np.empty(0)
        with suppress(TypeError, ValueError, OverflowError):
            given = np.asarray(tokens if isinstance(tokens, np.ndarray) else list(tokens)).reshape(-1)
        if not given.size or given.dtype.kind not in "iu":
            raise SessionError(f"tokens are {tokens!r:.80}, but must be whole numbers, at least one")
        row = [int(each) for each in given]
        for token in row:
            if not 0 <= token < self.vocabulary:
                raise SessionError(f"token {token} is none of the model's {self.vocabulary}",
                                   hint="use the tokenizer that the model was trained with")  # fmt: skip
        return row

    def _refuse(self, count: int) -> None:
        if self._closed:
            raise SessionError("the session is closed", hint="open another one of the module")
        if self._positions is not None and self._position + count > self._positions:
            raise SessionError(
                f"{count} tokens do not fit: the session is at position {self._position} of {self._positions}",
                hint="give fewer, rewind it, or compile the model with room for more positions",
            )


class _Sum:
    """Of cycles, as long as all are known."""

    def __init__(self) -> None:
        self.total: int | None = 0

    def add(self, cycles: int | None) -> None:
        self.total = None if self.total is None or cycles is None else self.total + cycles


class _Runner:
    """A module and what its inputs and outputs are."""

    def __init__(self, module: LoadedModule, roles: Roles) -> None:
        self.module, self.roles = module, roles
        self._identity = ""

    @property
    def takes_less(self) -> bool:
        """Whether a piece may be shorter than a run: what pads it leaves no trace."""
        roles = self.roles
        return roles.rows == roles.length and all(state.axis is not None for state in roles.states)

    def may_pad(self, position: int) -> bool:
        """Whether what pads a piece has places that the model knows: it may count them by its mask, which says nothing
        of places behind the last one."""
        roles = self.roles
        return roles.mask is None or roles.positions is None or position + roles.length <= roles.positions

    @property
    def identity(self) -> str:
        """Of the compiled model: its states' types and all its constants."""
        self._identity = self._identity or _identity(self.module.model)
        return self._identity

    def empty(self) -> dict[str, Array]:
        return {state.input.name: np.zeros(state.input.shape, numpy_dtype(state.input.dtype))
                for state in self.roles.states}  # fmt: skip

    def run(
        self, piece: list[int], position: int, states: dict[str, Array], content: object
    ) -> tuple[Array, dict[str, Array], int | None]:
        """Scores behind the last token, the states with what the run added, and its cycles. ``content`` stands for the
        states' rows before ``position``.

        Rows of positions are written into the arrays of ``states``, where nothing looks at them before the session's
        position moves on; other states are new arrays.
        """
        roles = self.roles
        axes = {state.input.name: state.axis for state in roles.states if state.axis is not None}
        for state in roles.states:
            if state.axis is not None and state.first:
                _rows(states[state.input.name], state.axis, position, len(piece))[...] = 0
        kept = Kept(content, position, axes)
        made, cycles = self.module.run_counted(self._inputs(piece, position) | states, kept)
        after = dict(states)
        for state in roles.states:
            new = made[state.output.name]
            if state.axis is None:
                after[state.input.name] = new
                continue
            padding = roles.length - len(piece)
            rows = _new_rows(state, state.axis, new, position, len(piece), padding)
            _rows(states[state.input.name], state.axis, position, len(piece))[...] = rows
        rows = made[roles.scores.name].reshape(roles.rows, -1)
        return rows[min(len(piece), roles.rows) - 1].copy(), after, cycles

    def _inputs(self, piece: list[int], position: int) -> dict[str, Array]:
        roles = self.roles
        padded = np.zeros(roles.length, numpy_dtype(roles.tokens.dtype))
        padded[: len(piece)] = piece
        given = {roles.tokens.name: padded.reshape(roles.tokens.shape)}
        if roles.places is not None:
            places = position + np.arange(roles.length)
            if roles.positions is not None:
                places = np.minimum(places, roles.positions - 1)  # those of padding may lie behind the end
            count = int(np.prod(roles.places.shape))
            given[roles.places.name] = (
                places[:count].astype(numpy_dtype(roles.places.dtype)).reshape(roles.places.shape)
            )
        if roles.mask is not None:
            seen = np.zeros(int(np.prod(roles.mask.shape)), numpy_dtype(roles.mask.dtype))
            if roles.positions is not None and len(seen) > roles.positions:
                seen[:position] = 1
                seen[roles.positions :] = 1  # what pads the piece comes behind all its tokens, which do not look there
            else:
                seen[: position + len(piece)] = 1
            given[roles.mask.name] = seen.reshape(roles.mask.shape)
        return given


def _rows(array: Array, axis: int, first: int, count: int) -> Array:
    """A view of rows along an axis."""
    return array[(*(slice(None),) * axis, slice(first, first + count))]


def _new_rows(state: State, axis: int, output: Array, position: int, count: int, padding: int) -> Array:
    """The rows of a run's tokens in an output. One that has all positions has them behind those of the input, or at
    their place among them, as ``GroupQueryAttention`` writes them; where they are not, the zeros are that were there.
    ``padding``: rows of no token that follow them, and may reach behind the input's.

    Raises `SessionError` where the output has something in both.
    """
    behind = _rows(output, axis, state.first, count)
    there = _rows(output, axis, position, count) if state.first else behind
    if state.first and there.any():
        if position + count + padding <= state.first and behind.any():
            raise SessionError(
                f"output {state.output.name!r} has values behind the {state.first} positions of "
                f"{state.input.name!r}, and others at position {position}, which was empty: which are new is not known",
                hint="a cache's output is the input with new positions at their place, or behind all of it",
            )
        return there
    return behind


def _identity(model: CompiledModel) -> str:
    constants = [step.program.constants for step in model.steps if isinstance(step, HostStep)]
    segments = () if model.core is None else model.core.constants
    return content_digest(model.name, model.inputs, model.outputs, *constants, *(each.data for each in segments))


def open_session(
    module: LoadedModule, prefill: LoadedModule | None, positions: int | None, states: Mapping[str, str] | None,
    names: RoleNames,
) -> Session:  # fmt: skip
    """As :meth:`LoadedModule.session`."""
    for each in (module, prefill):
        if isinstance(each, LoadedModule):
            each.refuse_if_gone()
    roles = roles_of(module.model.inputs, module.model.outputs, names, states)
    step = _Runner(module, roles)
    if roles.length != 1 and not step.takes_less:
        raise SessionError(f"the model takes {roles.length} tokens in each run, so none can be taken alone",
                           hint="compile it for one, and give this one as prefill")  # fmt: skip
    wide = None
    if prefill is not None:
        if not isinstance(prefill, LoadedModule):
            raise SessionError(f"prefill is {prefill!r:.80}, but must be a module that takes several tokens a run",
                               hint="weft.load of the same model, compiled for them")  # fmt: skip
        wide = _Runner(prefill, roles_of(prefill.model.inputs, prefill.model.outputs, names, states))
        kinds, others = ({each.input.name: each.input for each in runner.roles.states} for runner in (step, wide))
        if kinds != others or wide.roles.vocabulary != roles.vocabulary:
            raise SessionError(f"the states of {prefill.model.name!r} are others than those of {module.model.name!r}",
                               hint="prefill is the same model for more tokens a run")  # fmt: skip
    room = None if positions is None else whole(positions)
    if positions is not None and (room is None or room < 1 or (roles.positions is not None and room > roles.positions)):
        bound = "1 or more" if roles.positions is None else f"1 to {roles.positions}, which the states have room for"
        raise SessionError(f"positions is {positions!r:.80}, but must be {bound}")
    return Session(step, wide, room or roles.positions)
