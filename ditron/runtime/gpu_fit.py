"""Whether kernels that may wait for each other can be on a GPU at once, from what they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ditron.errors import LaunchError
from ditron.runtime.gpu_program import Launch

# Of an SM (compute capability 8.0 and 9.0): registers, threads, blocks; bytes of shared memory of
# 9.0, and what the driver keeps of them for each block.
REGISTERS, THREADS, BLOCKS = 65536, 2048, 32
SHARED_BYTES, KEPT_BYTES = 228 << 10, 1 << 10
WARP = 32


@dataclass(frozen=True)
class Need:
    """What one program takes of an SM."""

    registers: int
    threads: int
    shared_bytes: int

    @staticmethod
    def of(launch: Launch, facts: Mapping[str, int]) -> Need:
        """Of a kernel as it was compiled; registers are given out by eights."""
        threads = launch.warps * WARP
        each = -(-facts["registers"] // 8) * 8
        return Need(each * threads, threads, facts["shared_bytes"] + KEPT_BYTES)

    def times(self, sms: int, beside: Need | None = None) -> int:
        """Programs that fit on so many SMs, each with one of `beside` on it."""
        used = beside or Need(0, 0, 0)
        each = min(
            (REGISTERS - used.registers) // max(self.registers, 1),
            (THREADS - used.threads) // self.threads,
            (SHARED_BYTES - used.shared_bytes) // self.shared_bytes,
            BLOCKS - (beside is not None),
        )
        return sms * max(each, 0)


def check_beside(
    launches: Sequence[Launch], facts: Mapping[str, Mapping[str, int]], sms: int
) -> None:
    """Refuse kernels that compute and kernels that copy which do not fit beside each other.

    And a persistent kernel that does not fit by itself.

    Raises:
        LaunchError: the programs that wait could keep those that they wait for from starting.
    """
    for whole in (launch for launch in launches if launch.cooperative):
        room = Need.of(whole, facts[whole.kernel]).times(sms)
        if whole.programs > room:
            raise LaunchError(
                f"@{whole.kernel} has {whole.programs} programs, which all have to stay, and {sms}"
                f" SMs hold {room} of them: compile with Options(workers={max(room, 1)})"
            )
    for compute in (launch for launch in launches if not launch.copies and launch.waits):
        for copy in (launch for launch in launches if launch.copies):
            one, other = (Need.of(launch, facts[launch.kernel]) for launch in (compute, copy))
            taken = min(copy.programs, sms)
            room = one.times(sms - taken) + one.times(taken, other)
            if compute.programs > room:
                raise LaunchError(
                    f"@{compute.kernel} has {compute.programs} programs that may wait for"
                    f" @{copy.kernel}, and {sms} SMs hold {room} of them beside its"
                    f" {copy.programs}: compile with Options(workers={max(room, 1)})"
                )
