"""The processes of ranks on GPUs: what they find in their environment, how they start and end."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection

RANK_MODULE = "ditron.runtime.cuda_rank"
END_BOUND_S = 10.0  # for all ranks to let go of their memory, before they are killed


def rank_environment(share: int) -> dict[str, str]:
    """What is set for the process of a rank where the user has not, if `share` ranks have its GPU.

    Alone it has all hardware queues, so that no stream is behind another's wait. Under MPS each
    rank has its share of the SMs, so that all can run at once, and the driver's 2 queues: all
    clients of a server share 120, and where these do not reach, torch says in `set_device` that it
    is out of memory or that the GPU is busy.
    """
    if share == 1:
        return {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}
    return {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(100 // share)}


def start_rank(theirs: socket.socket, heap_fd: int, share: int) -> subprocess.Popen[bytes]:
    """A process that runs a rank, with the other end of its socket and the host's memory."""
    environment = {**rank_environment(share), **os.environ}
    with theirs:
        return subprocess.Popen(
            [sys.executable, "-m", RANK_MODULE, str(theirs.fileno())],
            pass_fds=(theirs.fileno(), heap_fd),
            env=environment,
            stdin=subprocess.DEVNULL,
        )


def end_ranks(
    processes: list[subprocess.Popen[bytes]],
    connections: list[Connection],
    folder: tempfile.TemporaryDirectory[str],
) -> None:
    """Hang up, wait for the ranks to end and end those that do not."""
    for connection in connections:
        connection.close()
    until = time.monotonic() + END_BOUND_S
    for process in processes:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    folder.cleanup()
