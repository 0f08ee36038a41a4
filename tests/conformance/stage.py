"""Plays a case twice, straight to a scripted upstream and through a sidecar, and compares what both ends were told."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from itertools import zip_longest
from typing import NamedTuple

from .wires import PATIENCE, Head, Told, Wire

Script = Callable[[Wire], None]


class Heard(NamedTuple):
    """What either end was told in one play."""

    client: list[Told]
    upstream: list[Told]


class Served(NamedTuple):
    """A connection to the upstream; idle while it waits for a request."""

    wire: Wire
    thread: threading.Thread
    is_idle: threading.Event


class Listener:
    """Accepts connections in a thread, and serves each in one of its own."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.create_server((host, port), family=family, backlog=64)
        self.port = int(self._listening.getsockname()[1])
        self.authority = b"%b:%d" % (f"[{host}]".encode() if ":" in host else host.encode(), self.port)
        self.accepted = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def serve(self, connection: socket.socket) -> None:
        raise NotImplementedError  # each kind of upstream says how it serves

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.accepted += 1
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()


class ScriptedUpstream(Listener):
    """Serves each request on each connection with the script of the moment; connections end with the play."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.wrap: Callable[[socket.socket], socket.socket] = lambda plain: plain
        self._script: Script = lambda wire: None
        self._told: list[Told] = []
        self._failures: list[BaseException] = []
        self._served: list[Served] = []
        super().__init__(host, port)

    def begin(self, script: Script) -> list[Told]:
        self._script, self._told, self._failures = script, [], []
        return self._told

    def end(self) -> None:
        """End every connection, wait until the other side has ended it too, and raise what a script raised."""
        for served in self._served:
            assert served.is_idle.wait(PATIENCE * 2), "a script of the upstream did not end"
            served.wire.finish()
        for served in self._served:
            served.thread.join(PATIENCE)
            assert not served.thread.is_alive(), "a connection to the upstream was not ended"
        self._served.clear()
        if self._failures:
            raise self._failures[0]

    def serve(self, connection: socket.socket) -> None:
        try:
            wire = Wire(self.wrap(connection), self._told)
        except OSError:
            connection.close()
            return
        served = Served(wire, threading.current_thread(), threading.Event())
        self._served.append(served)
        try:
            while not wire.is_closed and self._is_asked(served):
                wire.told = self._told
                self._script(wire)
        except (AssertionError, OSError, ValueError) as failure:
            self._failures.append(failure)
        finally:
            wire.close()
            served.is_idle.set()

    @staticmethod
    def _is_asked(served: Served) -> bool:
        if not served.wire.is_at_end():
            return True
        served.is_idle.set()
        is_asked = served.wire.has_more()
        served.is_idle.clear()
        return is_asked


class Stage:
    """A scripted upstream, and a sidecar in front of it at `through`."""

    def __init__(
        self,
        upstream: ScriptedUpstream,
        through: tuple[str, int],
        direct: Callable[[], socket.socket] | None = None,
        authority: bytes | None = None,
    ) -> None:
        self.upstream = upstream
        self._through = through
        self._direct = direct
        self._authority = upstream.authority if authority is None else authority

    def direct(self, client: Script, upstream: Script) -> Heard:
        """The play without a sidecar."""
        host, _, port = self._authority.decode().rpartition(":")
        plain = socket.create_connection((host.strip("[]"), int(port))) if self._direct is None else self._direct()
        return self._play(plain, self._authority, client, upstream)

    def through(self, client: Script, upstream: Script) -> Heard:
        """The play with one between."""
        host, port = self._through
        written = f"[{host}]" if ":" in host else host
        return self._play(socket.create_connection((host, port)), b"%b:%d" % (written.encode(), port), client, upstream)

    def same(self, client: Script, upstream: Script) -> Heard:
        """Both plays, which must not differ; gives what was heard."""
        direct = self.direct(client, upstream)
        through = self.through(client, upstream)
        for side, told, without in (
            ("upstream", through.upstream, direct.upstream),
            ("client", through.client, direct.client),
        ):
            assert told == without, difference(side, without, told)
        return direct

    def _play(self, connection: socket.socket, host: bytes, client: Script, upstream: Script) -> Heard:
        told: list[Told] = []
        heard = self.upstream.begin(upstream)
        wire = Wire(connection, told, host)
        try:
            client(wire)
        finally:
            wire.close()
            self.upstream.end()
        return Heard(told, heard)


def difference(side: str, direct: list[Told], through: list[Told]) -> str:
    """The first thing in which two plays differ, as it was told to one side."""
    for first, second in zip_longest(direct, through):
        if isinstance(first, Head) and isinstance(second, Head):
            for line, other in zip_longest(first.lines, second.lines):
                if line != other:
                    return f"{side}: a line is {_short(line)} directly and {_short(other)} through the sidecar"
        if first != second:
            return f"{side}: directly {_short(first)}, through the sidecar {_short(second)}"
    return f"{side}: no difference"


def _short(told: object) -> str:
    return repr(told)[:400]


def until(claim: Callable[[], bool]) -> None:
    """Wait until the claim holds."""
    deadline = time.monotonic() + PATIENCE
    while not claim():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
