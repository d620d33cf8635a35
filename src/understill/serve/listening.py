"""Listening: the address taken, and given up in such a way that nobody who got through is dropped."""

from __future__ import annotations

import ctypes
import socket
import struct
import sys

from understill.errors import UserError

BACKLOG = 2048

#: A program for the kernel's packet filter: a packet with the SYN flag, which begins a connection, is dropped.
_NO_BEGINNINGS = (
    (0x30, 0, 0, 13),  # load byte 13 of the TCP header, the flags
    (0x45, 0, 1, 0x02),  # skip a step unless it is a SYN
    (0x06, 0, 0, 0),  # drop
    (0x06, 0, 0, 0xFFFFFFFF),  # let in, whole
)
_SO_ATTACH_FILTER = 26  # Linux's; the socket module does not name it


def listen(host: str, port: int) -> socket.socket:
    """Take an address and a port."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        raise UserError(f"--host {host}: there is no such address") from None
    family, kind, protocol, _, address = found[0]
    listening = socket.socket(family, kind, protocol)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
    except OSError as error:
        listening.close()
        raise UserError(f"{host}, port {port}: {error.strerror} → choose another --port or --host") from None
    listening.listen(BACKLOG)
    return listening


def let_nobody_begin(listening: socket.socket) -> None:
    """Ignore new connections from now on, without a word, while those that are being made go through.

    Whoever stops listening resets the connections that the system has made and the program has not taken yet; between
    the last look at them and the closing there is always a moment for one more. An ignored client tries again a second
    later, and finds the port closed or somebody else at it. Only Linux can do this; elsewhere the moment remains.
    """
    if sys.platform != "linux":
        return
    steps = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in _NO_BEGINNINGS))
    program = struct.pack("HP", len(_NO_BEGINNINGS), ctypes.addressof(steps))
    try:
        listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
    except OSError:  # a sandbox may not know filters
        return


def take_waiting(listening: socket.socket) -> list[socket.socket]:
    """Take the connections that the system has made and nobody has taken yet."""
    taken = []
    while True:
        try:
            taken.append(listening.accept()[0])
        except OSError:
            return taken
