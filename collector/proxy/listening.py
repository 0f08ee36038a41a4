"""A listening socket; connections wait in it while the process has no descriptor for them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

BACKLOG = 1024
MOST_AT_ONCE = 256  # connections accepted before others have their turn
PAUSE = 0.1  # seconds until the next try, after one that failed for want of descriptors or memory


class Listener:
    """Hands each connection to `take`. Where none can be accepted it calls `starved`, and tries again after PAUSE.

    libuv's own server would look at the waiting connection again and again without a pause, at the cost of a core.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listening: socket.socket,
        take: Callable[[socket.socket], None],
        starved: Callable[[OSError], None],
    ) -> None:
        self._loop = loop
        self._socket = listening
        self._take = take
        self._starved = starved
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def open(self) -> None:
        """Listen. OSError where that cannot be done."""
        self._socket.setblocking(False)
        self._socket.listen(BACKLOG)
        self._watch()

    def close(self) -> None:
        """Accept no more, and close the socket."""
        if self._closed:
            return
        self._closed = True
        if self._timer is None:
            self._loop.remove_reader(self._socket.fileno())
        else:
            self._timer.cancel()
        self._socket.close()

    def _watch(self) -> None:
        self._timer = None
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(MOST_AT_ONCE):
            try:
                connection, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:  # its client left while it waited
                continue
            except OSError as error:
                self._loop.remove_reader(self._socket.fileno())
                self._timer = self._loop.call_later(PAUSE, self._watch)
                self._starved(error)
                return
            connection.setblocking(False)
            self._take(connection)
