"""Connections handed from one worker to another, as descriptors over a datagram socket."""

from __future__ import annotations

import array
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

MARK = b"c"  # a datagram that carries a descriptor needs a byte
MOST_AT_ONCE = 256  # connections taken in before others have their turn


class Heir:
    """Where a worker that gives way hands its connections: the path of the socket on which others take them.

    What waits in the socket is held by it, so that no connection is lost when who takes them is started again.
    """

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def takes(self, descriptor: int) -> bool:
        """Whether the connection is handed on, as a second descriptor. False where there is no room for it now."""
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))
        try:
            self._socket.sendmsg([MARK], [rights], 0, self._path)
        except OSError:
            return False
        return True


def received(listening: socket.socket) -> Iterator[socket.socket]:
    """The connections that wait at a socket that does not block, MOST_AT_ONCE at most."""
    for _ in range(MOST_AT_ONCE):
        try:
            _, descriptors, _, _ = socket.recv_fds(listening, len(MARK), 1)
        except OSError:  # nothing waits there, or no descriptor can be had
            return
        for descriptor in descriptors:
            with contextlib.suppress(OSError):
                connection = socket.socket(fileno=descriptor)
                connection.setblocking(False)
                yield connection
