"""What transports do not say or do by themselves."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import struct
import sys
import termios

_RESET = struct.pack("ii", 1, 0)  # linger for no time: what is unsent is dropped, RST instead of FIN


def not_taken(transport: asyncio.Transport) -> int:
    """Bytes that wait here or in the kernel: it takes more from us only when much of its buffer is free."""
    waiting = bytearray(4)
    with contextlib.suppress(OSError, ValueError):  # a system that does not tell, a socket that is gone
        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, waiting)
    return transport.get_write_buffer_size() + int.from_bytes(waiting, sys.byteorder)


def has_failed(transport: asyncio.Transport) -> bool:
    """A reset has come that nobody has read yet. Asking clears it."""
    with contextlib.suppress(OSError):
        client = transport.get_extra_info("socket")
        return bool(client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    return True


def reset(transport: asyncio.Transport) -> None:
    """End it so that the other side sees a break, not an end."""
    with contextlib.suppress(OSError):  # the other side was faster
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    transport.abort()
