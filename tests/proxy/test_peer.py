"""Whether the other end is held, as the kernel knows it."""

from __future__ import annotations

import socket

import pytest

from collector.proxy.peer import is_held


@pytest.mark.parametrize(("listen", "dial"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1")])
def test_a_half_closed_socket_is_held_and_a_closed_one_is_not(listen: str, dial: str) -> None:
    family = socket.AF_INET6 if ":" in listen else socket.AF_INET
    with socket.create_server((listen, 0), family=family, dualstack_ipv6=listen == "::") as server:
        client = socket.create_connection((dial, server.getsockname()[1]))
        connection, _ = server.accept()
        with connection:
            peer, own = connection.getpeername()[:2], connection.getsockname()[:2]
            assert is_held(peer, own)
            client.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""
            assert is_held(peer, own)
            client.close()
            assert not is_held(peer, own)


def test_a_peer_elsewhere_counts_as_not_held() -> None:
    assert not is_held(("192.0.2.1", 40_000), ("127.0.0.1", 1))
    assert not is_held(("not an address", 1), ("127.0.0.1", 1))
