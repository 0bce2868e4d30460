"""shmem: OpenSHMEM's operations in a grid, one for each of the device dialect's.

Made by `lower-to-shmem` only, and not optimised on: each op stands for one call of the transport's
library, with the operands of the device op that it came from.
"""

from __future__ import annotations

from typing import ClassVar

from xdsl.ir import Dialect
from xdsl.irdl import irdl_op_definition

from ditron.ir.device_body import Notify, Transfer, Wait


@irdl_op_definition
class PutmemOp(Transfer):
    """`shmem_putmem`: copy to a PE's symmetric memory."""

    name = "shmem.putmem"
    REMOTE: ClassVar[tuple[bool, bool]] = (False, True)


@irdl_op_definition
class GetmemOp(Transfer):
    """`shmem_getmem`: copy from a PE's symmetric memory."""

    name = "shmem.getmem"
    REMOTE: ClassVar[tuple[bool, bool]] = (True, False)


@irdl_op_definition
class SignalWaitUntilOp(Wait):
    """`shmem_signal_wait_until(..., SHMEM_CMP_GE, ...)`, cyclic on 32 bits."""

    name = "shmem.signal_wait_until"


@irdl_op_definition
class SignalOp(Notify):
    """`shmem_signal_add` or `_set`, after a put, a fence or a quiet where it says so."""

    name = "shmem.signal"


Shmem = Dialect("shmem", [PutmemOp, GetmemOp, SignalWaitUntilOp, SignalOp])
