"""Starts rank processes: one zygote a process of the user's, shared by all executables.

The zygote is a clean interpreter, so a script needs no `__main__` guard, and ranks are forks of
it, so a pool starts in milliseconds once the zygote is up. Nothing outlives its parent: every
process watches a socket whose other end closes with the one before it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ditron.errors import LaunchError, PlanError
from ditron.runtime import wire

# Ranks need the runtime alone: an empty package stands for `ditron`, whose front end imports xDSL.
_BOOTSTRAP = """
import json, sys, types
sys.path[:] = json.loads(sys.argv[2])
sys.modules["ditron"] = types.ModuleType("ditron")
sys.modules["ditron"].__path__ = [sys.argv[3]]
from ditron.runtime.zygote import main
main(int(sys.argv[1]))
"""
_START_BOUND_S = 120.0  # until the zygote has imported torch, on a busy machine
_EXIT_BOUND_S = 5.0
_STOPPED_BOUND_S = 3.0
_LOOK_S = 0.25


class Zygote:
    """The process that forks ranks (see `ditron.runtime.zygote`)."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        threads = {f"{lib}_NUM_THREADS": "1" for lib in ("OMP", "MKL", "OPENBLAS")}
        path = json.dumps([entry or os.getcwd() for entry in sys.path])
        package = str(Path(__file__).resolve().parent.parent)
        with _sigint_blocked(), theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _BOOTSTRAP, str(theirs.fileno()), path, package],
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **threads},
            )
        self.stop = weakref.finalize(self, _stop_zygote, self._socket, self._process, os.getpid())

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def usable(self) -> bool:
        """Whether it is there to fork."""
        return self.stop.alive and self._process.poll() is None

    def fork(self, ranks: int, heap_fd: int, spec_fd: int) -> RankProcesses:
        """Fork ranks that run the plan in `spec_fd` on the memory of `heap_fd`.

        Raises:
            LaunchError: the zygote is gone.
        """
        if ranks > wire.MOST_RANKS:
            msg = f"the CPU target runs up to {wire.MOST_RANKS} ranks, the plan has {ranks}"
            raise PlanError(msg)
        pool, their_pool = socket.socketpair()
        pairs = [socket.socketpair() for _ in range(ranks)]
        theirs = [their_pool, *(pair[1] for pair in pairs)]
        fds = [their_pool.fileno(), heap_fd, spec_fd, *(pair[1].fileno() for pair in pairs)]
        with suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self._socket, [wire.REQUEST.pack(ranks)], fds)
        for sock in theirs:
            sock.close()
        why = self._wait_for(pool)
        pids = None if why else wire.exactly(pool, 4 * ranks)
        if pids is None:
            for sock in (pool, *(pair[0] for pair in pairs)):
                sock.close()
            self.stop()
            raise LaunchError(why or "the process that starts ranks ended; it tells why on stderr")
        return RankProcesses(pool, [pair[0] for pair in pairs], list(memoryview(pids).cast("i")))

    def _wait_for(self, pool: socket.socket) -> str:
        """Wait until a pool's ranks are started; returns why they are not."""
        begin = running = time.monotonic()
        while not select.select([pool], [], [], _LOOK_S)[0]:
            now = time.monotonic()
            if now - begin > _START_BOUND_S:
                return f"process {self.pid}, which starts ranks, did not in {_START_BOUND_S:g} s"
            running = running if _is_stopped(self.pid) else now
            if now - running > _STOPPED_BOUND_S:
                self._process.kill()
                return (
                    f"process {self.pid}, which starts ranks, was stopped (SIGSTOP) and is ended;"
                    " the next call starts another"
                )
        return ""


@dataclass
class RankProcesses:
    """The running ranks of one pool: a control socket and a process id each."""

    pool: socket.socket
    controls: Sequence[socket.socket]
    pids: Sequence[int]
    exits: dict[int, int] = field(default_factory=dict[int, int])
    parent: int = field(default_factory=os.getpid)

    def exit_status(self, rank: int) -> int | None:
        """How a dead rank ended (a wait status); None if the zygote does not say so in time."""
        self.pool.settimeout(_EXIT_BOUND_S)
        with suppress(TimeoutError):
            while rank not in self.exits and self._read_exit():
                pass
        return self.exits.get(rank)

    def _read_exit(self) -> bool:
        note = wire.exactly(self.pool, wire.EXIT.size)
        if note is not None:
            rank, status = wire.EXIT.unpack(note)
            self.exits[rank] = status
        return note is not None

    def stop(self) -> None:
        """Kill them and wait until they are gone."""
        if os.getpid() == self.parent:  # a fork of the user's process owns none of this
            with suppress(OSError):
                self.pool.shutdown(socket.SHUT_WR)
            self.pool.settimeout(_EXIT_BOUND_S)
            with suppress(TimeoutError):
                while self._read_exit():
                    pass
        for sock in (self.pool, *self.controls):
            sock.close()


def zygote() -> Zygote:
    """This process's zygote; started by the first call, which may come early and does not wait."""
    with _lock:
        if not _current or not _current[0].usable:
            _current[:] = [Zygote()]
        return _current[0]


_current: list[Zygote] = []
_lock = threading.Lock()


def _forget() -> None:
    """In a fork of the user's process: the zygote is the parent's, let its sockets go."""
    for started in _current:
        started.stop()
    _current.clear()


os.register_at_fork(after_in_child=_forget)


def _is_stopped(child: int) -> bool:
    """Whether a child of this process is stopped by a signal."""
    look = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
    with suppress(ChildProcessError):
        found = os.waitid(os.P_PID, child, look)
        return found is not None and found.si_code in (os.CLD_STOPPED, os.CLD_TRAPPED)
    return False


def _stop_zygote(sock: socket.socket, process: subprocess.Popen[bytes], owner: int) -> None:
    sock.close()
    if os.getpid() != owner:
        process.returncode = 0  # not ours to wait for
        return
    try:
        process.wait(_EXIT_BOUND_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def _sigint_blocked() -> Generator[None]:
    """A process started inside ignores Ctrl-C from its first instruction on."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
