"""The thread pool, in LLVM IR: it is compiled with the kernels, so that a run is one call from Python.

A team is 512 bytes, all 0 at first but its size. A job is a function of (argument, thread), which all threads of the
team run at once; between two of its parts they meet at a barrier. Whoever waits spins for a while, and then sleeps (a
worker without a job) or gives its turn away (at a barrier, where the others come soon).
"""

from __future__ import annotations

TEAM_BYTES = 512
NEXT_OFFSET = 384
"""Where in a team the next iteration stands that nobody has taken. Every barrier sets it back to 0."""

SPINS = MEETINGS = 4000
"""How often a worker looks for a job before it sleeps, and anybody for the others before it gives its turn away."""

POOL = """
; team: size 0, arrived 64, phase 128, job 192, function 200, argument 208, stop 216, mutex 256, condition 320, next 384
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @sched_yield()

define void @weft_barrier(ptr %team) {
entry:
  %size = load i64, ptr %team
  %arrived.at = getelementptr i8, ptr %team, i64 64
  %phase.at = getelementptr i8, ptr %team, i64 128
  %phase = load atomic i64, ptr %phase.at acquire, align 8
  %before = atomicrmw add ptr %arrived.at, i64 1 acq_rel
  %count = add i64 %before, 1
  %last = icmp eq i64 %count, %size
  br i1 %last, label %open, label %wait
open:
  %next.at = getelementptr i8, ptr %team, i64 NEXT
  store atomic i64 0, ptr %next.at release, align 8
  store atomic i64 0, ptr %arrived.at release, align 8
  %next = add i64 %phase, 1
  store atomic i64 %next, ptr %phase.at release, align 8
  ret void
wait:
  %spins = phi i64 [ 0, %entry ], [ %more, %again ]
  %now = load atomic i64, ptr %phase.at acquire, align 8
  %same = icmp eq i64 %now, %phase
  br i1 %same, label %spin, label %done
spin:
  %more = add i64 %spins, 1
  %long = icmp ugt i64 %more, MEETINGS
  br i1 %long, label %yield, label %again
yield:
  %ignored = call i32 @sched_yield()
  br label %again
again:
  PAUSE
  br label %wait
done:
  ret void
}

define void @weft_work(ptr %team, i64 %thread) {
entry:
  %job.at = getelementptr i8, ptr %team, i64 192
  %function.at = getelementptr i8, ptr %team, i64 200
  %argument.at = getelementptr i8, ptr %team, i64 208
  %stop.at = getelementptr i8, ptr %team, i64 216
  %mutex = getelementptr i8, ptr %team, i64 256
  %condition = getelementptr i8, ptr %team, i64 320
  br label %wait
wait:
  %seen = phi i64 [ 0, %entry ], [ %seen, %again ], [ %job.now, %worked ]
  %spins = phi i64 [ 0, %entry ], [ %more, %again ], [ 0, %worked ]
  %job = load atomic i64, ptr %job.at acquire, align 8
  %same = icmp eq i64 %job, %seen
  br i1 %same, label %spin, label %work
spin:
  %more = add i64 %spins, 1
  %long = icmp ugt i64 %more, SPINS
  br i1 %long, label %sleep, label %again
again:
  PAUSE
  br label %wait
sleep:
  %locked = call i32 @pthread_mutex_lock(ptr %mutex)
  br label %asleep
asleep:
  %job.asleep = load atomic i64, ptr %job.at acquire, align 8
  %nothing = icmp eq i64 %job.asleep, %seen
  br i1 %nothing, label %rest, label %awake
rest:
  %rested = call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %asleep
awake:
  %unlocked = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %work
work:
  %job.now = phi i64 [ %job, %wait ], [ %job.asleep, %awake ]
  %stop = load atomic i64, ptr %stop.at acquire, align 8
  %over = icmp ne i64 %stop, 0
  br i1 %over, label %done, label %run
run:
  %function = load ptr, ptr %function.at
  %argument = load ptr, ptr %argument.at
  call void %function(ptr %argument, i64 %thread)
  call void @weft_barrier(ptr %team)
  br label %worked
worked:
  br label %wait
done:
  ret void
}

define void @weft_announce(ptr %team) {
  %job.at = getelementptr i8, ptr %team, i64 192
  %mutex = getelementptr i8, ptr %team, i64 256
  %condition = getelementptr i8, ptr %team, i64 320
  %locked = call i32 @pthread_mutex_lock(ptr %mutex)
  %before = atomicrmw add ptr %job.at, i64 1 acq_rel
  %told = call i32 @pthread_cond_broadcast(ptr %condition)
  %unlocked = call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}

define void @weft_run(ptr %team, ptr %function, ptr %argument) {
  %function.at = getelementptr i8, ptr %team, i64 200
  %argument.at = getelementptr i8, ptr %team, i64 208
  store ptr %function, ptr %function.at
  store ptr %argument, ptr %argument.at
  call void @weft_announce(ptr %team)
  call void %function(ptr %argument, i64 0)
  call void @weft_barrier(ptr %team)
  ret void
}

define void @weft_stop(ptr %team) {
  %stop.at = getelementptr i8, ptr %team, i64 216
  store atomic i64 1, ptr %stop.at release, align 8
  call void @weft_announce(ptr %team)
  ret void
}
"""

_PAUSES = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}


def pool_text(triple: str) -> str:
    """The pool's LLVM IR for a processor."""
    declaration, pause = _PAUSES.get(triple.split("-")[0], ("", ""))
    text = POOL.replace("PAUSE", pause).replace("NEXT", str(NEXT_OFFSET))
    return declaration + text.replace("SPINS", str(SPINS)).replace("MEETINGS", str(MEETINGS))
