"""A port is given up without cutting off anybody who got through."""

from __future__ import annotations

import socket
import sys
import threading

import pytest

from understill.errors import UserError
from understill.serve.sockets import accept_waiting, drop_new_connections, listen

linux = pytest.mark.skipif(sys.platform != "linux", reason="packet filters are Linux's")


def connect(address: tuple[str, int], seconds: float) -> socket.socket:
    return socket.create_connection(address, timeout=seconds)


@pytest.fixture(params=["127.0.0.1", "::1"])
def listening(request: pytest.FixtureRequest) -> socket.socket:
    try:
        listening = listen(request.param, 0)
    except UserError:
        pytest.skip("there is no IPv6 here")
    listening.setblocking(False)
    return listening


@linux
def test_who_came_before_is_taken_and_who_comes_after_is_ignored(listening: socket.socket) -> None:
    address = listening.getsockname()[:2]
    with listening, connect(address, 5) as early:
        drop_new_connections(listening)
        with pytest.raises(TimeoutError):
            connect(address, 0.3)
        (taken,) = accept_waiting(listening)
        assert accept_waiting(listening) == []
        listening.close()
        with taken:
            early.sendall(b"asked")  # what was taken goes on, though nobody listens
            assert taken.recv(10) == b"asked"
            taken.sendall(b"answer")
            assert early.recv(10) == b"answer"
    with pytest.raises(ConnectionRefusedError):
        connect(address, 5)


@linux
def test_who_was_ignored_reaches_the_next_at_the_port(listening: socket.socket) -> None:
    address = listening.getsockname()[:2]
    connected: list[socket.socket] = []
    client = threading.Thread(target=lambda: connected.append(connect(address, 20)))
    with listening:
        drop_new_connections(listening)
        client.start()
        client.join(0.2)
        assert not connected
    with listen(*address) as following:
        following.settimeout(20)
        with following.accept()[0]:
            client.join(20)
            connected[0].close()


@linux
def test_a_system_without_filters_goes_on_without(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []

    class Plain(socket.socket):
        def setsockopt(self, *given: object) -> None:
            tried.append(given)
            raise OSError("unknown")

    with Plain() as plain:
        drop_new_connections(plain)
        assert len(tried) == 1
        monkeypatch.setattr(sys, "platform", "darwin")
        drop_new_connections(plain)
        assert len(tried) == 1, "elsewhere it is not even tried"
