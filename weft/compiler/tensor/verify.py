"""What every function of the loop IR must satisfy; checked by tests after every schedule step."""

from __future__ import annotations

from collections.abc import Iterable

from .errors import IRError
from .ir import Allocate, Block, Buffer, Expr, For, If, IntrinsicCall, PrimFunc, Seq, Stmt, Store, Var
from .visitor import free_vars, loads, walk_exprs


def verify(func: PrimFunc) -> None:
    """IRError unless names are unique, and variables and buffers are used where they exist."""
    seen: set[str] = set()
    for buffer in func.params:
        _claim(seen, buffer.name, "parameter")
    _Verifier(seen).statement(func.body, {}, {buffer.name: buffer for buffer in func.params})


def _claim(seen: set[str], name: str, what: str) -> None:
    if name in seen:
        raise IRError(f"{what} {name!r} is declared twice")
    seen.add(name)


class _Verifier:
    def __init__(self, seen: set[str]) -> None:
        self.seen = seen
        self.blocks: set[str] = set()

    def statement(self, stmt: Stmt, loops: dict[Var, Expr], buffers: dict[str, Buffer]) -> None:
        match stmt:
            case For(var=var, extent=extent, body=body):
                _claim(self.seen, var.name, "loop")
                self._expressions([extent], loops, buffers, f"loop {var.name!r}")
                self.statement(body, {**loops, var: extent}, buffers)
            case Allocate(buffer, body):
                _claim(self.seen, buffer.name, "buffer")
                self.statement(body, loops, {**buffers, buffer.name: buffer})
            case Seq(body):
                if len(body) < 2 or any(isinstance(child, Seq) for child in body):
                    raise IRError("a Seq must hold at least two statements, none of them a Seq")
                for child in body:
                    self.statement(child, loops, buffers)
            case If(cond, then):
                self._expressions([cond], loops, buffers, "if")
                self.statement(then, loops, buffers)
            case Block(name=name, body=store, reduce_vars=reduce_vars):
                self._block(name, reduce_vars, loops)
                self.statement(store, loops, buffers)
            case Store(buffer, indices, value):
                self._visible(buffer, buffers, f"store to {buffer.name!r}")
                self._expressions([*indices, value], loops, buffers, f"store to {buffer.name!r}")
            case IntrinsicCall(operands=operands, scalars=scalars, block=block, reduce_vars=reduce_vars, init=init):
                self._block(block, (*reduce_vars, *(init or ())), loops)
                for region in operands:
                    self._visible(region.buffer, buffers, f"block {block!r}")
                    self._expressions(region.indices, loops, buffers, f"block {block!r}")
                self._expressions([value for _, value in scalars], loops, buffers, f"block {block!r}")

    def _block(self, name: str, reduce_vars: Iterable[Var], loops: dict[Var, Expr]) -> None:
        if name in self.blocks:
            raise IRError(f"block {name!r} occurs twice")
        self.blocks.add(name)
        for var in reduce_vars:
            if var not in loops:
                raise IRError(f"block {name!r} reduces over {var.name!r}, which is not a loop around it")

    def _expressions(
        self, exprs: Iterable[Expr], loops: dict[Var, Expr], buffers: dict[str, Buffer], place: str
    ) -> None:
        for expr in exprs:
            if not free_vars(expr) <= loops.keys():
                name = next(node.name for node in walk_exprs(expr) if isinstance(node, Var) and node not in loops)
                raise IRError(f"variable {name!r} is not a loop around it", at=place)
            for load in loads(expr):
                self._visible(load.buffer, buffers, place)

    def _visible(self, buffer: Buffer, buffers: dict[str, Buffer], place: str) -> None:
        if buffers.get(buffer.name) != buffer:
            raise IRError(f"buffer {buffer.name!r} does not exist there in that shape", at=place)
