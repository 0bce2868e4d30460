"""The zygote: a process that has imported everything once and forks ranks on request.

Started by `launch.Zygote` with one end of a socket. It is single-threaded, holds nothing of the
user's program, and ends when its parent does, killing its ranks. A request is the number of ranks
with the descriptors [pool socket, heap, spec, a control socket a rank]. On the pool socket it
answers with the ranks' process ids, then one (rank, wait status) for each that ends, then end of
file. End of file from the other side means: kill them.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import select
import signal
import socket
import struct
import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType

import torch

from ditron.runtime import rank, wire
from ditron.runtime.atomics import atomics

_PR_SET_PDEATHSIG = 1
# malloc.h; what is larger than a threshold of 32 MB, the most, is mapped by itself as before.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MOST_MMAP_THRESHOLD, _KEPT_BYTES = 32 << 20, 256 << 20


@dataclass
class _Pool:
    """The ranks of one pool that are alive, by process id."""

    socket: socket.socket
    alive: dict[int, int] = field(default_factory=dict[int, int])
    killed: bool = False

    def kill(self) -> None:
        self.killed = True
        for pid in self.alive:
            os.kill(pid, signal.SIGKILL)

    def ended(self, pid: int, status: int) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(wire.EXIT.pack(self.alive.pop(pid), status))


class _Zygote:
    def __init__(self, parent: socket.socket) -> None:
        self.pid = os.getpid()
        self.parent = parent
        self.pools: list[_Pool] = []
        self.child_ended, self.wakeup = socket.socketpair()
        self.wakeup.setblocking(False)
        signal.signal(signal.SIGCHLD, _nothing)
        signal.set_wakeup_fd(self.wakeup.fileno(), warn_on_full_buffer=False)

    def serve(self) -> None:
        while True:
            watched = {p.socket: p for p in self.pools if not p.killed}
            readable = select.select([self.parent, self.child_ended, *watched], [], [])[0]
            if self.child_ended in readable:
                self.child_ended.recv(4096)
                self._reap()
            for sock in readable:
                if sock in watched:  # the parent never writes here: it has hung up
                    watched[sock].kill()
            if self.parent in readable and not self._request():
                break
            for pool in self.pools:
                if not pool.alive:
                    pool.socket.close()
            self.pools = [p for p in self.pools if p.alive]
        self._end()

    def _end(self) -> None:
        """Kill all ranks and wait for them: whoever inherits children may not."""
        signal.set_wakeup_fd(-1)
        for pool in self.pools:
            pool.kill()
        with suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                for pool in self.pools:
                    if pid in pool.alive:
                        pool.ended(pid, status)

    def _request(self) -> bool:
        """Fork a pool of ranks; False when the parent is gone."""
        data, fds, _, _ = socket.recv_fds(self.parent, wire.REQUEST.size, wire.MOST_RANKS + 3)
        if not data:
            return False
        (ranks,) = wire.REQUEST.unpack(data)
        pool = _Pool(socket.socket(fileno=fds[0]))
        self.pools.append(pool)
        for index in range(ranks):
            pid = os.fork()
            if not pid:
                self._become_rank(index, fds)
            pool.alive[pid] = index
        for fd in fds[1:]:
            os.close(fd)
        with suppress(BrokenPipeError, ConnectionResetError):
            pool.socket.sendall(struct.pack(f"<{ranks}i", *pool.alive))
        return True

    def _become_rank(self, index: int, fds: list[int]) -> None:
        """In the child: keep nothing but this rank's descriptors, serve, and exit."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _die_with_parent()
            for sock in (self.parent, self.child_ended, self.wakeup):
                sock.close()
            for pool in self.pools:
                pool.socket.close()
            heap, spec, *controls = fds[1:]
            for fd in controls[:index] + controls[index + 1 :]:
                os.close(fd)
            control = socket.socket(fileno=controls[index])
            rank.serve(index, control, heap, spec, self.pid)
            status = 0
        finally:  # a failure has been told to the parent
            sys.stdout.flush()
            os._exit(status)


def _nothing(_signal: int, _frame: FrameType | None) -> None:
    """A handler, so that SIGCHLD is delivered at all."""


def _die_with_parent() -> None:
    """Where the system can (Linux): be killed when the zygote dies, even inside a kernel."""
    with suppress(AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _keep_freed_memory() -> None:
    """Have malloc keep what tasks free, where it is glibc's.

    It would give a task's temporaries of a MB or so back to the system, and fault them in again for
    the next task: that made some launches take 1.5 times as long.
    """
    with suppress(AttributeError):
        set_ = ctypes.CDLL(None).mallopt
        set_(_M_MMAP_THRESHOLD, _MOST_MMAP_THRESHOLD)
        set_(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def _warm_up() -> None:
    """Do once what every rank would otherwise do in its first launch."""
    _keep_freed_memory()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    # Torch would write past a view's box here; shapes that disagree must fail instead.
    warnings.filterwarnings("error", message="An output with one or more elements was resized")
    atomics()
    a = torch.ones(16, 16)
    torch.mm(a.bfloat16().float(), a, out=torch.empty(16, 16)).to(torch.bfloat16)
    gc.collect()
    gc.freeze()
    gc.disable()


def main(fd: int) -> None:
    """Serve the parent at the other end of a socket until it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    faulthandler.enable()
    _warm_up()
    _Zygote(socket.socket(fileno=fd)).serve()
    os._exit(0)  # torch has nothing to say and takes its time
