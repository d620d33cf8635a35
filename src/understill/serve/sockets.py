"""Sockets: the address taken, and given up in such a way that no client that got through is cut off."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
from contextlib import suppress

from understill.errors import UserError

BACKLOG = 2048

#: A program for the kernel's packet filter: a packet with the SYN flag, which begins a connection, is dropped.
_DROP_SYN = (
    (0x30, 0, 0, 13),  # load byte 13 of the TCP header, the flags
    (0x45, 0, 1, 0x02),  # skip a step unless it is a SYN
    (0x06, 0, 0, 0),  # drop
    (0x06, 0, 0, 0xFFFFFFFF),  # accept whole
)
_SO_ATTACH_FILTER = 26  # Linux's; the socket module does not name it


def listen(host: str, port: int) -> socket.socket:
    """Take an address and a port."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        raise UserError(f"--host {host}: there is no such address") from None
    family, _, _, _, address = addresses[0]
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    try:
        return socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise UserError(f"{host}, port {port}: {reason} → choose another --port or --host") from None


def drop_new_connections(listening: socket.socket) -> None:
    """Ignore new connections from now on, while those that are being made go through.

    Closing a listening socket resets the connections that the system has made and the program has not accepted yet;
    between the last look at them and the closing there is always a moment for one more. An ignored client tries again a
    second later, and finds the port closed or the next server. Only Linux can do this; elsewhere the moment remains.
    """
    if sys.platform != "linux":
        return
    steps = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in _DROP_SYN))
    program = struct.pack("HP", len(_DROP_SYN), ctypes.addressof(steps))
    with suppress(OSError):  # a sandbox may not know filters
        listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


def accept_waiting(listening: socket.socket) -> list[socket.socket]:
    """Accept the connections that the system has made and nobody has accepted yet."""
    accepted = []
    while True:
        try:
            accepted.append(listening.accept()[0])
        except OSError:
            return accepted
