"""What the supervisor and one of its processes say to each other, a line of JSON each, on a socket of their own."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from typing import Literal

import msgspec
from msgspec import Struct

LONGEST_LINE = 64 * 1024  # bytes; more is none of ours

# From a process: `ready` (it could be made from its settings), `serving`, `reload` (the admin port was asked to),
# `taken` (whether new settings are in force). To a process: `go` (serve), `take` (read the settings anew), `answer`.
Kind = Literal["ready", "serving", "reload", "taken", "go", "take", "answer"]


class Note(Struct, frozen=True, omit_defaults=True):
    """One line. Of an answer, `status` is that of HTTP and `text` what to say; `taken` says in `text` why not.
    With `take` it says whether the workers stay.
    """

    kind: Kind
    text: str = ""
    status: int = 200


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Note).decode


class Control:
    """One end of the socket, within an event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def on(cls, own_end: socket.socket) -> Control:
        """The control of a connected socket, which it closes in the end."""
        own_end.setblocking(False)
        return cls(*await asyncio.open_unix_connection(sock=own_end, limit=LONGEST_LINE))

    def say(self, note: Note) -> None:
        """Tell the other end; nothing happens where it has gone."""
        if not self._writer.is_closing():
            self._writer.write(_encode(note) + b"\n")

    async def hear(self) -> Note | None:
        """The next note; None when the other end has gone, or does not speak as agreed."""
        with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError):
            line = await self._reader.readline()
            return _decode(line) if line.endswith(b"\n") else None
        return None

    async def has_heard(self, kind: Kind) -> bool:
        """Wait for a note of this kind; False when the other end has gone without it."""
        while (note := await self.hear()) is not None:
            if note.kind == kind:
                return True
        return False

    def close(self) -> None:
        self._writer.close()


def wait_to_go(own_end: socket.socket) -> bool:
    """Say `ready` and wait for `go`, outside of an event loop. False when the supervisor has gone."""
    received = b""
    try:
        own_end.sendall(_encode(Note("ready")) + b"\n")
        while not received.endswith(b"\n"):
            more = own_end.recv(1)  # no more than the line: what follows is read by Control
            if not more or len(received) > LONGEST_LINE:
                return False
            received += more
        return _decode(received).kind == "go"
    except (OSError, msgspec.MsgspecError):
        return False


def ends_at_signals() -> tuple[asyncio.Event, asyncio.Event]:
    """Set by what ends this process: the first at a stop (SIGTERM, SIGINT), the second then and when it gives way to
    another of its kind (SIGUSR1)."""
    loop = asyncio.get_running_loop()
    stop, leave = asyncio.Event(), asyncio.Event()

    def end() -> None:
        stop.set()
        leave.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    loop.add_signal_handler(signal.SIGUSR1, leave.set)
    return stop, leave
