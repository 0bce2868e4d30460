"""Runs emitted code on this machine's CPU, interleaved: an executor for tests and debugging.

The interpreter changes Triton for good, so it runs in a process of its own, which serves one job
after another: `python -m ditron.backends.triton.interpreted FD`.
"""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import tempfile
import traceback
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from ditron.errors import DeadlockError, LaunchError
from ditron.plan.tables import Plan, Role
from ditron.runtime.gpu_program import TritonProgram
from ditron.runtime.gpu_source import write_source

Shards = Mapping[tuple[str, int], torch.Tensor]


@dataclass(frozen=True)
class Job:
    """Launches to run; the last one's inputs are `shards`, earlier ones get them rolled.

    States begin as they are in `shards`, as zeros where they are not.
    """

    plan: Plan
    program: TritonProgram
    shards: Shards
    seed: int = 0
    launches: int = 1
    epoch: int = 0


# Outputs and states of the last launch by (buffer, rank); of each rank, int64 [tasks, 2]: when its
# tasks began and ended then, in ns, where the program has stamps.
Done = tuple[dict[tuple[str, int], torch.Tensor], list[torch.Tensor]]


class Worker:
    """A process that runs jobs under Triton's interpreter.

    Args:
        python: the interpreter of an environment with Triton, `greenlet` and `ml_dtypes`.
    """

    def __init__(self, python: str = sys.executable) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [python, "-m", "ditron.backends.triton.interpreted", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                env={**os.environ, "TRITON_INTERPRET": "1", "OPENBLAS_NUM_THREADS": "1"},
            )
        self._connection = Connection(ours.detach())
        self.close = weakref.finalize(self, _end, self._process, self._connection)

    def run(self, job: Job) -> Done:
        """Run a job to its end.

        Raises:
            DeadlockError: no program could go on.
            LaunchError: anything else that stops it.
        """
        self._connection.send_bytes(pickle.dumps(job))
        try:
            kind, answer = pickle.loads(self._connection.recv_bytes())
        except EOFError:
            raise LaunchError(f"the interpreter died: {self._process.wait()}") from None
        if kind == "deadlock":
            raise DeadlockError(answer)
        if kind == "failed":
            raise LaunchError(answer)
        return answer


class InterpretedExecutor:
    """The executor of one plan in a worker.

    Attributes:
        seed, launches, epoch: as in `Job`.
        stamps: as in `Done`, of the last launch.
    """

    def __init__(self, plan: Plan, program: TritonProgram, worker: Worker) -> None:
        self._plan, self._program, self._worker = plan, program, worker
        self._shards: dict[tuple[str, int], torch.Tensor] = {}
        self._outputs: dict[tuple[str, int], torch.Tensor] = {}
        self.stamps: list[torch.Tensor] = []
        self.seed, self.launches, self.epoch = 0, 1, 0

    def write(self, buffer: str, rank: int, tensor: torch.Tensor) -> None:
        """Put a rank's shard of an input or weight in place."""
        self._shards[buffer, rank] = tensor

    def read(self, buffer: str, rank: int) -> torch.Tensor:
        """What a rank holds of an output or a state after the last launch."""
        return self._outputs[buffer, rank]

    def launch(self) -> None:
        """Run the launches.

        Raises:
            DeadlockError: no program could go on.
        """
        job = Job(self._plan, self._program, self._shards, self.seed, self.launches, self.epoch)
        self._outputs, self.stamps = self._worker.run(job)
        states = {b.name for b in self._plan.buffers if b.role is Role.STATE}
        self._shards |= {key: found for key, found in self._outputs.items() if key[0] in states}

    def measure(self, repeats: int) -> list[float]:
        """Not in the interpreter."""
        raise LaunchError(f"the interpreter cannot measure {repeats} launches")

    def trace(self, path: str | Path) -> None:
        """Not in the interpreter."""
        raise LaunchError(f"the interpreter writes no trace {path}")

    def reset(self) -> None:
        """Nothing is left of a launch."""

    def close(self) -> None:
        """The worker is closed by whoever made it."""


def _end(process: subprocess.Popen[bytes], connection: Connection) -> None:
    connection.close()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _run(job: Job, folder: Path) -> Done:
    from ditron.backends.triton.interpreter import run_interpreted  # noqa: PLC0415 - changes Triton

    last = job.launches - 1

    def feed(name: str, rank: int, launch: int) -> torch.Tensor | None:
        shard = job.shards.get((name, rank))
        return shard if shard is None or launch == last else torch.roll(shard, launch + 1, 0)

    source = write_source(job.program.source, folder)
    outputs, stamps = run_interpreted(
        job.plan, job.program, source, feed, seed=job.seed, launches=job.launches, epoch=job.epoch
    )
    ends = {(name, rank): t for (launch, name, rank), t in outputs.items() if launch == last}
    return ends, stamps


def serve(connection: Connection) -> None:
    """Run jobs until the other side hangs up."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="ditron-") as folder:
        while True:
            try:
                job = pickle.loads(connection.recv_bytes())
            except EOFError:
                return
            connection.send_bytes(pickle.dumps(_answer(job, Path(folder))))


def _answer(job: Job, folder: Path) -> tuple[str, object]:
    try:
        return ("ok", _run(job, folder))
    except DeadlockError as error:
        return ("deadlock", str(error))
    except Exception:  # noqa: BLE001 - all that emitted code may raise is told to the other side
        return ("failed", traceback.format_exc())


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
