"""The few calls of the CUDA driver that torch has no name for, by ctypes."""

from __future__ import annotations

import ctypes
import functools

from ditron.errors import LaunchError

_SM_COUNT = 16
_WAIT_GEQ = 0  # cyclic: (int32)(word - value) >= 0
_REGISTER_PORTABLE = 1
_UNIFIED = 4


@functools.cache
def _driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise LaunchError(f"no CUDA driver here: {error}") from error


def call(name: str, *args: object) -> None:
    """Call a function of the driver.

    Raises:
        LaunchError: it failed.
    """
    code = getattr(_driver(), name)(*args)
    if code:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(code, ctypes.byref(text))
        reason = text.value.decode() if text.value else "unknown"
        raise LaunchError(f"{name} failed: {reason} ({code})")


def sm_count(device: int) -> int:
    """SMs of a GPU, without making a context on it."""
    count = ctypes.c_int()
    call("cuInit", ctypes.c_uint(0))
    call("cuDeviceGetAttribute", ctypes.byref(count), ctypes.c_int(_SM_COUNT), ctypes.c_int(device))
    return count.value


class _Copy2d(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = (
        ("source_x", ctypes.c_size_t),
        ("source_y", ctypes.c_size_t),
        ("source_kind", ctypes.c_uint),
        ("source_host", ctypes.c_void_p),
        ("source_device", ctypes.c_uint64),
        ("source_array", ctypes.c_void_p),
        ("source_pitch", ctypes.c_size_t),
        ("target_x", ctypes.c_size_t),
        ("target_y", ctypes.c_size_t),
        ("target_kind", ctypes.c_uint),
        ("target_host", ctypes.c_void_p),
        ("target_device", ctypes.c_uint64),
        ("target_array", ctypes.c_void_p),
        ("target_pitch", ctypes.c_size_t),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    )


class StreamCalls:
    """What is enqueued on a stream: addresses are of any memory that the device reaches."""

    def copy(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        """Copy bytes that lie one after another, by a copy engine."""
        call(
            "cuMemcpyAsync",
            ctypes.c_uint64(target),
            ctypes.c_uint64(source),
            ctypes.c_size_t(size_bytes),
            ctypes.c_void_p(stream),
        )

    def copy_lines(
        self,
        target: int,
        target_pitch: int,
        source: int,
        source_pitch: int,
        width: int,
        height: int,
        stream: int,
    ) -> None:
        """Copy `height` lines of `width` bytes, one every pitch."""
        what = _Copy2d(
            source_kind=_UNIFIED,
            source_device=source,
            source_pitch=source_pitch,
            target_kind=_UNIFIED,
            target_device=target,
            target_pitch=target_pitch,
            width=width,
            height=height,
        )
        call("cuMemcpy2DAsync_v2", ctypes.byref(what), ctypes.c_void_p(stream))

    def wait(self, word: int, value: int, stream: int) -> None:
        """Hold a stream until an int32 word has reached a value, cyclically; not in a capture."""
        call(
            "cuStreamWaitValue32_v2",
            ctypes.c_void_p(stream),
            ctypes.c_uint64(word),
            ctypes.c_uint32(value & 0xFFFFFFFF),
            ctypes.c_uint(_WAIT_GEQ),
        )


def register_host(address: int, size_bytes: int) -> None:
    """Pin pages of this process, so that copy engines reach them at their own address."""
    call(
        "cuMemHostRegister_v2",
        ctypes.c_void_p(address),
        ctypes.c_size_t(size_bytes),
        ctypes.c_uint(_REGISTER_PORTABLE),
    )


def unregister_host(address: int) -> None:
    """Undo `register_host`."""
    call("cuMemHostUnregister", ctypes.c_void_p(address))
