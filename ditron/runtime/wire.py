"""What parent, zygote and ranks say to each other, over UNIX stream sockets.

Parent to rank: a command byte and an argument. Rank to parent: frames of a kind byte, a length and
a payload. Parent to zygote: `REQUEST` (ranks) with descriptors; zygote to parent, on a socket a
pool: the ranks' process ids, then `EXIT` (rank, wait status) for each that ends. End of file means
that the other process is gone.
"""

from __future__ import annotations

import contextlib
import socket
import struct

_COMMAND = struct.Struct("<cI")
_FRAME = struct.Struct("<cQ")
REQUEST = struct.Struct("<i")
EXIT = struct.Struct("<ii")

LAUNCH, MEASURE, TRACE = b"L", b"M", b"T"  # the argument of MEASURE is how many launches
READY, DONE, FAILED = b"R", b"D", b"F"

# Most descriptors that one message may carry on Linux, less the ones that are not a rank's.
MOST_RANKS = 250


def send_command(sock: socket.socket, command: bytes, argument: int = 0) -> None:
    """Tell a rank to do something; a rank that is gone is noticed when its answer is awaited."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        sock.sendall(_COMMAND.pack(command, argument))


def receive_command(sock: socket.socket) -> tuple[bytes, int] | None:
    """The next command, or None if the parent is gone."""
    data = exactly(sock, _COMMAND.size)
    return None if data is None else _COMMAND.unpack(data)


def send_frame(sock: socket.socket, kind: bytes, payload: bytes = b"") -> None:
    """Answer the parent."""
    sock.sendall(_FRAME.pack(kind, len(payload)) + payload)


def receive_frame(sock: socket.socket) -> tuple[bytes, bytes] | None:
    """The next answer of a rank, or None if the rank is gone."""
    header = exactly(sock, _FRAME.size)
    if header is None:
        return None
    kind, size = _FRAME.unpack(header)
    payload = exactly(sock, size) if size else b""
    return None if payload is None else (kind, payload)


def exactly(sock: socket.socket, size: int) -> bytes | None:
    """So many bytes, or None if the other side is gone."""
    parts: list[bytes] = []
    while size:
        try:
            part = sock.recv(min(size, 1 << 20))
        except ConnectionResetError:
            return None
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
