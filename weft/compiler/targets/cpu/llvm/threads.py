"""The thread pool, in LLVM IR: it is compiled with the kernels, so that a run is one call from Python.

A job is a function of (argument, thread) that consists of parts; every part has a number of iterations, which whoever
takes part claims a few at a time. A thread goes on to the next part when all iterations of the last are done, not when
all threads are there: so nobody waits for a thread that the system has not woken yet, and small jobs are over before
the workers have noticed. Whoever waits spins for a while; then a worker sleeps, and others give their turn away.

Workers sleep on Linux's futex and not on a condition variable: those of glibc before 2.41 can lose a wake-up
(https://sourceware.org/bugzilla/show_bug.cgi?id=25847), after which whoever waits for the worker's end waits for ever.
A worker looks around every second in any case. On kernels of which no more is known it naps for a millisecond.

A team is ``TEAM_BYTES``, all 0 at first. ``job`` is odd while a job is open to join.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

PART_BYTES = 64
DONE_OFFSET = 8
"""Counters of a part: the next iteration that nobody has claimed, and at this offset how many are done."""

TEAM_BYTES = 256
"""Memory that the threads of a model share; all 0 at first."""

SLEEPERS = 128
"""Where in that memory the number of workers that sleep stands."""

SPINS = 4000
"""How often a thread looks before it sleeps or gives its turn away."""

POOL = """
; team: job 0, function 8, argument 16, stop 24, inside 64, sleepers 128, bell 192
DECLARED
declare i32 @sched_yield()
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define void @weft_wait(ptr %counter, i64 %wanted) {
entry:
  br label %look
look:
  %spins = phi i64 [ 0, %entry ], [ %more, %again ]
  %now = load atomic i64, ptr %counter acquire, align 8
  %there = icmp eq i64 %now, %wanted
  br i1 %there, label %done, label %spin
spin:
  %more = add i64 %spins, 1
  %long = icmp ugt i64 %more, SPINS
  br i1 %long, label %yield, label %again
yield:
  %ignored = call i32 @sched_yield()
  br label %again
again:
  PAUSE
  br label %look
done:
  ret void
}

; Whether there is a job that is not the last seen, or the end.
define internal i1 @news(ptr %team, i64 %seen) {
  %stop.at = getelementptr i8, ptr %team, i64 24
  %stop = load atomic i64, ptr %stop.at seq_cst, align 8
  %over = icmp ne i64 %stop, 0
  %job = load atomic i64, ptr %team seq_cst, align 8
  %bit = and i64 %job, 1
  %open = icmp eq i64 %bit, 1
  %other = icmp ne i64 %job, %seen
  %new = and i1 %open, %other
  %any = or i1 %over, %new
  ret i1 %any
}

define void @weft_work(ptr %team, i64 %thread) {
entry:
  %function.at = getelementptr i8, ptr %team, i64 8
  %argument.at = getelementptr i8, ptr %team, i64 16
  %stop.at = getelementptr i8, ptr %team, i64 24
  %inside.at = getelementptr i8, ptr %team, i64 64
  %sleepers.at = getelementptr i8, ptr %team, i64 128
  %bell = getelementptr i8, ptr %team, i64 192
  br label %look
look:
  %seen = phi i64 [ 0, %entry ], [ %seen, %again ], [ %seen, %awake ], [ %job, %left ]
  %spins = phi i64 [ 0, %entry ], [ %more, %again ], [ 0, %awake ], [ 0, %left ]
  %some = call i1 @news(ptr %team, i64 %seen)
  br i1 %some, label %check, label %spin
spin:
  %more = add i64 %spins, 1
  %long = icmp ugt i64 %more, SPINS
  br i1 %long, label %sleep, label %again
again:
  PAUSE
  br label %look
sleep:
  ; Whoever has news counts the sleepers after that, and rings if there are any: it is seen here, or the bell has rung.
  %rung = load atomic i32, ptr %bell seq_cst, align 4
  %sleepers = atomicrmw add ptr %sleepers.at, i64 1 seq_cst
  %woken = call i1 @news(ptr %team, i64 %seen)
  br i1 %woken, label %awake, label %rest
rest:
  REST
  br label %awake
awake:
  %fewer = atomicrmw sub ptr %sleepers.at, i64 1 seq_cst
  br label %look
check:
  %stop = load atomic i64, ptr %stop.at acquire, align 8
  %over = icmp ne i64 %stop, 0
  br i1 %over, label %done, label %join
join:
  %joined = atomicrmw add ptr %inside.at, i64 1 seq_cst
  %job = load atomic i64, ptr %team seq_cst, align 8
  %bit = and i64 %job, 1
  %open = icmp eq i64 %bit, 1
  br i1 %open, label %run, label %left
run:
  %function = load ptr, ptr %function.at
  %argument = load ptr, ptr %argument.at
  call void %function(ptr %argument, i64 %thread)
  br label %left
left:
  %gone = atomicrmw sub ptr %inside.at, i64 1 seq_cst
  br label %look
done:
  ret void
}

define internal void @wake(ptr %team) {
  %sleepers.at = getelementptr i8, ptr %team, i64 128
  %sleepers = load atomic i64, ptr %sleepers.at seq_cst, align 8
  %none = icmp eq i64 %sleepers, 0
  br i1 %none, label %done, label %some
some:
  %bell = getelementptr i8, ptr %team, i64 192
  %ring = atomicrmw add ptr %bell, i32 1 seq_cst
  RING
  br label %done
done:
  ret void
}

; Run a job, whose counters are so many bytes. It is over when nobody is inside any more.
define void @weft_run(ptr %team, ptr %function, ptr %argument, ptr %counters, i64 %bytes) {
  %function.at = getelementptr i8, ptr %team, i64 8
  %argument.at = getelementptr i8, ptr %team, i64 16
  %inside.at = getelementptr i8, ptr %team, i64 64
  call void @llvm.memset.p0.i64(ptr %counters, i8 0, i64 %bytes, i1 false)
  store ptr %function, ptr %function.at
  store ptr %argument, ptr %argument.at
  %opened = atomicrmw add ptr %team, i64 1 seq_cst
  call void @wake(ptr %team)
  call void %function(ptr %argument, i64 0)
  %closed = atomicrmw add ptr %team, i64 1 seq_cst
  call void @weft_wait(ptr %inside.at, i64 0)
  ret void
}

define void @weft_stop(ptr %team) {
  %stop.at = getelementptr i8, ptr %team, i64 24
  store atomic i64 1, ptr %stop.at seq_cst, align 8
  call void @wake(ptr %team)
  ret void
}
"""

FUTEX_PRIVATE = 128
WAIT, WAKE = 0 | FUTEX_PRIVATE, 1 | FUTEX_PRIVATE
"""Of linux/futex.h: for the threads of one process."""

ON_FUTEX = {
    "DECLARED": """declare LONG @syscall(LONG, ...)
@second = private unnamed_addr constant { LONG, LONG } { LONG 1, LONG 0 }""",
    "REST": "%rested = call LONG (LONG, ...) @syscall(LONG FUTEX, ptr %bell, i32 WAIT, i32 %rung, ptr @second)",
    "RING": "%told = call LONG (LONG, ...) @syscall(LONG FUTEX, ptr %bell, i32 WAKE, i32 2147483647)",
}
IN_NAPS = {"DECLARED": "declare i32 @usleep(i32)", "REST": "%rested = call i32 @usleep(i32 1000)", "RING": ""}
"""How a worker sleeps, and how whoever has news wakes the sleepers."""

FUTEX_CALLS = {"x86_64": (202, "i64"), "aarch64": (98, "i64"), "armv7a": (240, "i32"), "armv7l": (240, "i32")}
"""Linux's number of the system call, and C's type long."""

_PAUSES = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}


def pool_text(triple: str) -> str:
    """The pool's LLVM IR for a processor."""
    name, *system = triple.split("-")
    known = name in FUTEX_CALLS and "linux" in system
    futex, long = FUTEX_CALLS[name] if known else (0, "")
    declaration, pause = _PAUSES.get(name, ("", ""))
    text = _filled(POOL, {**(ON_FUTEX if known else IN_NAPS), "PAUSE": pause, "SPINS": SPINS})
    return declaration + _filled(text, {"LONG": long, "FUTEX": futex, "WAIT": WAIT, "WAKE": WAKE})


def _filled(text: str, words: Mapping[str, object]) -> str:
    """The text with each of the words replaced."""
    return re.sub(rf"\b({'|'.join(words)})\b", lambda found: str(words[found[0]]), text)
